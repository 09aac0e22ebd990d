"""The flows that weights can lead elsewhere: what telemetry shows of flows that have no explicit path."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from collectors.values import FlowKey, Snapshot
from controller.paths.balancing.values import MeasuredFlow
from controller.paths.deciding.graph import Network
from controller.paths.telemetry_load import DEFAULT_PACKET_BYTES, TelemetryLoad
from controller.tables.path_choice import flow_hash
from dataplane.topology.addressing import switch_ipv4
from dataplane.wire.ipv4 import PROTOCOL_UDP

_MANY: Final = 1e9
"""Packets behind a rate that is worked out and not measured."""


def measured_flows(
    snapshot: Snapshot, network: Network, has_path: Callable[[FlowKey, str, str], bool], stale_after_ns: int
) -> list[MeasuredFlow]:
    """Return the flows of a snapshot between hosts of different switches; `has_path` by flow and host names."""
    topology, numbers = network.topology, network.table.switch_number
    hosts = topology.host_by_address
    found: list[MeasuredFlow] = []
    for key, state in snapshot.paths.items():
        src, dst = hosts.get(key.src), hosts.get(key.dst)
        if src is None or dst is None or not state.rate_bps or state.age_ns > stale_after_ns:
            continue
        path = state.switches
        if len(path) < 2 or path[0] != topology.attachment[src.name].node or not network.has_path(path):
            continue
        if path[-1] != topology.attachment[dst.name].node or has_path(key, src.name, dst.name):
            continue
        packets = max(1.0, state.measured_bytes / DEFAULT_PACKET_BYTES)
        pps = state.rate_bps / (8 * DEFAULT_PACKET_BYTES)
        ends = numbers[path[0]], numbers[path[-1]]
        found.append(MeasuredFlow(flow_hash(key), network.rows(path), *ends, state.rate_bps, pps, packets))
    return found


def report_flows(
    snapshot: Snapshot,
    network: Network,
    watch: TelemetryLoad,
    path_of: Callable[[int, int, int], tuple[int, ...] | None],
) -> Iterator[MeasuredFlow]:
    """Yield the reports of each switch to the collector, one 5-tuple each.

    `path_of` returns the links that a hash takes from a switch to another; nobody measures where reports go.
    """
    topology, table = network.topology, network.table
    collector = topology.collector
    if collector is None:
        return
    address, end = topology.host[collector.host].ipv4, topology.attachment[collector.host].node
    for switch, bps in _report_rates(snapshot, network, watch).items():
        if switch == end:
            continue
        source = switch_ipv4(topology.switch[switch].node_id)
        hashed = flow_hash(FlowKey(source, address, PROTOCOL_UDP, collector.udp_port, collector.udp_port))
        ends = table.switch_number[switch], table.switch_number[end]
        rows = path_of(hashed, *ends)
        if rows:
            yield MeasuredFlow(hashed, rows, *ends, round(bps), 0.0, _MANY)


def _report_rates(snapshot: Snapshot, network: Network, watch: TelemetryLoad) -> dict[str, float]:
    rates: dict[str, float] = {}
    numbers, names = network.table.switch_number, network.table.switches
    for state in snapshot.paths.values():
        if not state.rate_bps or any(name not in numbers for name in state.switches):
            continue
        pps = state.rate_bps / (8 * DEFAULT_PACKET_BYTES)
        for number, nbytes in watch.reports([numbers[name] for name in state.switches]):
            rates[names[number]] = rates.get(names[number], 0.0) + 8 * pps * nbytes
    return rates
