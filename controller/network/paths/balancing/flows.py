"""The flows that weights can redirect: those without an explicit path that telemetry shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from collectors.values import FlowKey
from controller.network.algorithms.link_table import Flags
from controller.network.paths.balancing.values import MeasuredFlow
from controller.network.paths.deciding.graph import Network, Path
from controller.network.paths.seen_flows import SeenRows
from controller.network.paths.telemetry_load import DEFAULT_PACKET_BYTES, TelemetryLoad
from controller.network.tables.path_choice import flow_hash, packed_hash
from dataplane.topology.addressing import switch_ipv4
from dataplane.wire.ipv4 import PROTOCOL_UDP

_MANY: Final = 1e9
"""Packets behind a rate that is computed and not measured."""


def measured_flows(seen: SeenRows, network: Network, free: Flags, stale_after_ns: int) -> list[MeasuredFlow]:
    """Return the flows of a snapshot between hosts of different switches that are `free`, without an explicit path."""
    rates_bps, rows = seen.paths.integers("rate_bps"), seen.book.rows
    ages_ns, nbytes = seen.paths.integers("age_ns"), seen.paths.integers("measured_bytes")
    chosen = free & seen.is_on_way & (rates_bps > 0) & (ages_ns <= stale_after_ns) & (rows.hops[seen.path] > 0)
    flows: list[MeasuredFlow] = []
    for row in np.flatnonzero(chosen).tolist():
        links = network.rows(seen.book.paths[seen.path[row]])
        rate_bps, packets = int(rates_bps[row]), max(1.0, int(nbytes[row]) / DEFAULT_PACKET_BYTES)
        pps = rate_bps / (8 * DEFAULT_PACKET_BYTES)
        ends = int(seen.first[row]), int(seen.last[row])
        flows.append(MeasuredFlow(packed_hash(*seen.key(row)), links, *ends, rate_bps, pps, packets))
    return flows


def report_flows(
    seen: SeenRows,
    network: Network,
    watch: TelemetryLoad,
    path_of: Callable[[int, int, int], tuple[int, ...] | None],
) -> Iterator[MeasuredFlow]:
    """Yield the reports of each switch to the collector, one 5-tuple each.

    `path_of` returns the links that a hash takes from a switch to another; the path of reports is not measured.
    """
    topology, table = network.topology, network.table
    collector = topology.collector
    if collector is None:
        return
    address, end = topology.host[collector.host].ipv4, topology.attachment[collector.host].node
    for switch, bps in _report_rates(seen, network, watch).items():
        if switch == end:
            continue
        source = switch_ipv4(topology.switch[switch].node_id)
        hashed = flow_hash(FlowKey(source, address, PROTOCOL_UDP, collector.udp_port, collector.udp_port))
        ends = table.switch_number[switch], table.switch_number[end]
        rows = path_of(hashed, *ends)
        if rows:
            yield MeasuredFlow(hashed, rows, *ends, round(bps), 0.0, _MANY)


def _report_rates(seen: SeenRows, network: Network, watch: TelemetryLoad) -> dict[str, float]:
    """Return the bit/s of each switch's reports, in the order in which flows first cross the switches."""
    names, numbers = network.table.switches, network.table.switch_number
    reports = [_reports(path, numbers, watch) for path in seen.paths.routes]
    counts = np.array([len(each) for each in reports], np.int64)
    pool = np.array([link_load for each in reports for link_load in each], np.float64).reshape(-1, 2)
    rates_bps = seen.paths.integers("rate_bps")
    rows = np.flatnonzero(rates_bps > 0)
    route = seen.paths.route[rows]
    count = counts[route]
    ahead = np.repeat((np.cumsum(counts) - counts)[route] - (np.cumsum(count) - count), count)
    at = ahead + np.arange(len(ahead))
    switch, pps = pool[at, 0].astype(np.int64), np.repeat(rates_bps[rows] / (8 * DEFAULT_PACKET_BYTES), count)
    # One after the other, in order of flow and hop: sums of floats depend on it.
    bps = np.bincount(switch, 8 * pps * pool[at, 1], len(names))
    shown, first = np.unique(switch, return_index=True)
    return {names[number]: float(bps[number]) for number in shown[np.argsort(first)].tolist()}


def _reports(path: Path, numbers: Mapping[str, int], watch: TelemetryLoad) -> Sequence[tuple[int, float]]:
    """Return which switches of a path report its packets, none where the network lacks one of them."""
    if not path or any(name not in numbers for name in path):
        return ()
    return watch.reports([numbers[name] for name in path])
