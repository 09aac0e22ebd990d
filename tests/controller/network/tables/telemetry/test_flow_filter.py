"""Table entries that filter out reports of flows."""

from __future__ import annotations

from finsy import P4TableAction, P4TableEntry

from controller.network.tables.telemetry.reporting import FlowFilter, Reporting
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities


def written(topology: Topology, *flows: FlowFilter) -> list[P4TableEntry]:
    """Return switch a's filters of IPv4 and IPv6, in this order."""
    entities = base_entities(topology, reporting=Reporting(flows=flows))["a"]
    entries = [entity for key, entity in entities.items() if key.table.endswith("flow_filter")]
    return [entry for entry in entries if isinstance(entry, P4TableEntry)]


def test_a_rule_is_for_both_families(diamond: Topology) -> None:
    four, six = written(diamond, FlowFilter(latency_quantum_ns=7, refresh_ns=2_000_999))
    assert (four.table_id, six.table_id) == ("ipv4_flow_filter", "ipv6_flow_filter")
    assert four.action == six.action == P4TableAction("filter_reports", quantum_ns=7, refresh_us=2_000)


def test_a_host_without_ipv6_has_a_rule_for_ipv4_only(diamond: Topology) -> None:
    (entry,) = written(diamond, FlowFilter(dst="hb", protocol=17))
    assert entry.match == {"protocol": (17, 0xFF), "dst_addr": (0x0A000201, 0xFFFFFFFF)}


def test_the_first_rule_that_matches_wins(diamond: Topology) -> None:
    assert [entry.priority for entry in written(diamond, FlowFilter(src="ha"), FlowFilter())] == [2, 2, 1, 1]
