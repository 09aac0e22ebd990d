"""Table entries that select the drops to report."""

from __future__ import annotations

from dataclasses import replace

import pytest
from finsy import P4TableAction, P4TableEntry

from controller.common.errors import ControllerError
from controller.network.tables.telemetry.drop_watch import DropWatch
from controller.network.tables.telemetry.reporting import Reporting
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities


def written(topology: Topology, *drops: DropWatch) -> dict[str, list[P4TableEntry]]:
    """Return switch a's drop entries by table."""
    entries: dict[str, list[P4TableEntry]] = {}
    for key, entity in base_entities(topology, reporting=Reporting(drops=drops))["a"].items():
        if "drop" in key.table and isinstance(entity, P4TableEntry):
            entries.setdefault(key.table, []).append(entity)
    return entries


def test_without_rules_drops_are_not_even_copied(diamond: Topology) -> None:
    assert written(diamond) == {}


def test_a_rule_without_a_flow_watches_everything(diamond: Topology) -> None:
    tables = written(diamond, DropWatch(quota=7))
    assert tables["drop_reports"][0].action == P4TableAction("report_drops")
    assert {table: [dict(entry.match or {}) for entry in tables[table]] for table in tables if "watch" in table} == {
        "ipv4_drop_watch": [{}],
        "ipv6_drop_watch": [{}],
        "other_drop_watch": [{}],
    }


def test_each_entry_has_a_quota_of_its_own(diamond: Topology) -> None:
    tables = written(diamond, DropWatch(reasons=("no_route", "ttl_expired")), DropWatch(src="ha"))
    entries = [entry for table, rows in tables.items() if "watch" in table for entry in rows]
    actions = [entry.action for entry in entries if isinstance(entry.action, P4TableAction)]
    assert len({action.args["watch_id"] for action in actions}) == len(actions) == 8
    assert {action.args["quota"] for action in actions} == {100}


def test_flow_rule_does_not_apply_to_other_than_ip(diamond: Topology) -> None:
    tables = written(diamond, DropWatch(src="ha", dst_port=80, reasons=("no_route",)))
    assert "other_drop_watch" not in tables
    (entry,) = tables["ipv4_drop_watch"]
    assert entry.match == {"src_addr": (0x0A000101, 0xFFFFFFFF), "dst_port": (80, 0xFFFF), "reason": (7, 0xFF)}


def test_the_first_rule_that_matches_wins(diamond: Topology) -> None:
    tables = written(diamond, DropWatch(reasons=("no_route",)), DropWatch())
    assert [entry.priority for entry in tables["other_drop_watch"]] == [2, 1]


def test_an_unknown_reason_is_refused_with_those_there_are(diamond: Topology) -> None:
    with pytest.raises(ControllerError, match=r"unknown drop reason 'bad_luck'; known: unknown, .*mtu_exceeded"):
        base_entities(diamond, reporting=Reporting(drops=(DropWatch(reasons=("bad_luck",)),)))


def test_more_rules_than_quotas_are_refused(diamond: Topology) -> None:
    with pytest.raises(ControllerError, match="342 rules, but a switch has room for 341"):
        base_entities(diamond, reporting=Reporting(drops=(DropWatch(),) * 342))


def test_a_fabric_without_a_collector_reports_nothing(diamond: Topology) -> None:
    assert written(replace(diamond, collector=None), DropWatch()) == {}
