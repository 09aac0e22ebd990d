"""Table entries that set the number of reports per packet."""

from __future__ import annotations

from finsy import P4TableAction, P4TableEntry

from controller.network.tables.telemetry.gather import Gathering
from controller.network.tables.telemetry.reporting import Reporting
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities


def written(topology: Topology, gathering: Gathering) -> list[P4TableAction]:
    entities = base_entities(topology, reporting=Reporting(gathering=gathering))["b"]
    entries = [entity for key, entity in entities.items() if key.table == "gather"]
    actions = [entry.action for entry in entries if isinstance(entry, P4TableEntry)]
    return [action for action in actions if isinstance(action, P4TableAction)]


def test_every_switch_gathers_as_many(diamond: Topology) -> None:
    action = P4TableAction("gather_reports", most=3, age_us=2_000)
    assert written(diamond, Gathering(reports=3, longest_wait_ns=2_000_999)) == [action]


def test_one_report_a_packet_needs_no_entry(diamond: Topology) -> None:
    assert written(diamond, Gathering()) == []
