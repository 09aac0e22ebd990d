"""What telemetry shows of the flows that are looked after: which 5-tuple belongs to which, where they are, their rates.

A flow is all traffic between two hosts, or what of it names its protocol and ports. A 5-tuple belongs to the flow that
names most of it, as its packets do in the switches' tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from collectors.values import FlowKey, Snapshot
from controller.intents import PROBE_UDP_PORT, FlowSpec
from controller.paths.deciding.graph import Path
from controller.paths.measured_rate import MeasuredRate
from controller.tables.flow_paths import specificity
from dataplane.topology.values import Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP


class SeenFlows:
    """Names measured 5-tuples by the flows that they belong to."""

    def __init__(self, topology: Topology, flows: Iterable[FlowSpec]) -> None:
        self._topology = topology
        self._named: dict[FlowSpec, list[FlowSpec]] = {}
        for flow in flows:
            self.name(flow)

    def name(self, flow: FlowSpec) -> None:
        """Tell a flow that names protocol or ports from the others of its hosts."""
        pair = FlowSpec(flow.src_host, flow.dst_host)
        known = self._named.setdefault(pair, [])
        if flow != pair and flow not in known:
            known.append(flow)
            known.sort(key=specificity, reverse=True)

    def forget(self, flow: FlowSpec) -> None:
        """Count a flow among the others of its hosts again."""
        pair = FlowSpec(flow.src_host, flow.dst_host)
        self._named[pair] = [one for one in self._named.get(pair, ()) if one != flow]

    def pair_of(self, key: FlowKey) -> FlowSpec | None:
        """Return the hosts of a 5-tuple, None where they are not two of the topology."""
        hosts = self._topology.host_by_address
        src, dst = hosts.get(key.src), hosts.get(key.dst)
        return None if src is None or dst is None or src is dst else FlowSpec(src.name, dst.name)

    def flow_of(self, key: FlowKey) -> FlowSpec | None:
        """Return the flow that a 5-tuple belongs to, None where its hosts are not two of the topology."""
        pair = self.pair_of(key)
        named = () if pair is None else self._named.get(pair, ())
        return next((flow for flow in named if _has(flow, key)), pair)

    def paths(self, snapshot: Snapshot) -> Mapping[FlowSpec, Path]:
        """Return the path that each flow was last seen on; of several 5-tuples, that of the one that sends most."""
        found: dict[FlowSpec, tuple[tuple[int, int], Path]] = {}
        for key, state in snapshot.paths.items():
            rank, flow = (state.rate_bps or 0, -state.age_ns), self.flow_of(key)
            if flow is not None and (flow not in found or rank > found[flow][0]):
                found[flow] = rank, state.switches
        return {flow: path for flow, (_, path) in found.items()}

    def rates(self, snapshot: Snapshot) -> Mapping[FlowSpec, MeasuredRate]:
        """Return what telemetry says that each flow sends; 5-tuples add up.

        A pair of hosts with a flow that has no rate yet has none itself: the sum would take it for silent.
        """
        rates: dict[FlowSpec, MeasuredRate] = {}
        unknown: set[FlowSpec] = set()
        for key, state in snapshot.paths.items():
            one, flow = MeasuredRate.of(state), self.flow_of(key)
            if flow is None:
                continue
            if one is None:
                unknown.add(flow)
            else:
                rates[flow] = one + rates[flow] if flow in rates else one
        return {flow: found for flow, found in rates.items() if flow not in unknown}


def is_probe(key: FlowKey) -> bool:
    """Whether a flow is there to measure links: it stays where it is, or links are measured no longer."""
    return key.protocol == PROTOCOL_UDP and key.dst_port == PROBE_UDP_PORT


def _has(flow: FlowSpec, key: FlowKey) -> bool:
    """Whether a 5-tuple between a flow's hosts has the protocol and ports that the flow names."""
    named = ((flow.protocol, key.protocol), (flow.src_port, key.src_port), (flow.dst_port, key.dst_port))
    return all(wanted in (None, seen) for wanted, seen in named)
