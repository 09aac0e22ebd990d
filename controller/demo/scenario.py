"""What happens in the demo, worked out before anything runs: flows, the link that congests, and when.

Background flows follow the demand matrix. At `congest_ns` one more flow starts between the hosts at the two ends of the
busiest link, so large that the link can no longer carry what the base routes put on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated

import msgspec
import networkx as nx

from controller.base_paths import base_paths, next_hops
from controller.intents import FlowSpec
from dataplane.config import Strict
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Arrivals, Flow, flow_between
from dataplane.fabric.topology import Link, LinkKey, Topology

NS_PER_S = 1_000_000_000
_LEAST_QUEUE_FRAMES = 8

Positive = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class ScenarioSettings(Strict, frozen=True):
    """The run's shape; times are seconds of the fabric's own clock."""

    rate_divisor: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Links and demands are this many times slower than the topology says; left out, what `hops_per_s` needs."""
    hops_per_s: Positive | None = None
    """Frames times switches that the background makes a second; left out, what the simulator (4000), or processes that
    share a few cores (1200), can follow."""
    peak_utilisation: Share = 0.3
    """Demands are stretched so that the busiest link between switches carries this share of its rate."""
    matrix: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Which matrix of a file that holds several."""
    frame_bytes: Annotated[int, msgspec.Meta(ge=100, le=1400)] = 1000
    """Length of a data frame, Ethernet header included."""
    buffer_s: Positive = 0.15
    """Queues hold what a link sends in this time: slower links need fewer frames for the same delay."""
    warm_up_s: Positive = 2.0
    """Time before the first figure counts: queues and windows fill."""
    before_s: Positive = 5.0
    """Time with the demand matrix alone."""
    during_s: Positive = 7.0
    """Time with the surge in which the path server reacts and queues drain."""
    after_s: Positive = 6.0
    """Time with the surge after that."""
    overload: Positive = 1.1
    """The load on the congested link, as a share of its rate, if nothing moved."""


@dataclass(frozen=True, slots=True)
class PlannedFlow:
    """One host's stream to another; the surge comes on top of what its two hosts send each other anyway."""

    flow: FlowSpec
    rate_bps: float
    start_ns: int
    stop_ns: int
    surge: bool = False


@dataclass(frozen=True, slots=True)
class Scenario:
    """The whole plan; the topology is already scaled."""

    topology: Topology
    flows: tuple[PlannedFlow, ...]
    congested: LinkKey
    warm_up_ns: int
    congest_ns: int
    after_ns: int
    end_ns: int
    frame_bytes: int

    def packet_flows(self) -> tuple[Flow, ...]:
        """Return the flows as hosts send them, numbered as in `flows`: Poisson arrivals, but the surge is constant."""
        return tuple(
            flow_between(
                self.topology,
                number,
                planned.flow.src_host,
                planned.flow.dst_host,
                max(1, round(planned.rate_bps)),
                frame_bytes=self.frame_bytes,
                arrivals=Arrivals.CONSTANT if planned.surge else Arrivals.POISSON,
                start_ns=planned.start_ns,
                stop_ns=planned.stop_ns,
            )
            for number, planned in enumerate(self.flows)
        )


def plan(topology: Topology, demands_bps: Mapping[tuple[str, str], float], settings: ScenarioSettings) -> Scenario:
    """Return the plan for a topology and demands that are both scaled already.

    `demands_bps` is by (source host, destination host). Raises FabricError if no link has a way around it.
    """
    topology = _with_buffers(topology, settings)
    load = base_load_bps(topology, demands_bps)
    congested = _busiest_with_a_way_around(topology, load)
    congest_ns = round((settings.warm_up_s + settings.before_s) * NS_PER_S)
    after_ns = congest_ns + round(settings.during_s * NS_PER_S)
    end_ns = after_ns + round(settings.after_s * NS_PER_S)
    flows = [
        PlannedFlow(FlowSpec(src, dst), rate_bps, 0, end_ns)
        for (src, dst), rate_bps in sorted(demands_bps.items())
        if rate_bps > 0
    ]
    link = topology.directed_links[congested]
    surge_bps = settings.overload * link.rate_bps - load.get(congested, 0.0)
    surge = FlowSpec(_host_at(topology, congested.src), _host_at(topology, congested.dst))
    flows.append(PlannedFlow(surge, max(surge_bps, 0.1 * link.rate_bps), congest_ns, end_ns, surge=True))
    return Scenario(
        topology=topology,
        flows=tuple(flows),
        congested=congested,
        warm_up_ns=round(settings.warm_up_s * NS_PER_S),
        congest_ns=congest_ns,
        after_ns=after_ns,
        end_ns=end_ns,
        frame_bytes=settings.frame_bytes,
    )


def _with_buffers(topology: Topology, settings: ScenarioSettings) -> Topology:
    def frames(link: Link) -> int:
        return max(_LEAST_QUEUE_FRAMES, round(link.rate_bps * settings.buffer_s / (8 * settings.frame_bytes)))

    return replace(topology, links=tuple(replace(link, queue_frames=frames(link)) for link in topology.links))


def base_load_bps(topology: Topology, demands_bps: Mapping[tuple[str, str], float]) -> dict[LinkKey, float]:
    """Return what the base routes put on each directed link between switches (equal-cost paths share evenly)."""
    hops = next_hops(topology)
    load: dict[LinkKey, float] = {}
    for (src, dst), rate_bps in demands_bps.items():
        paths = list(base_paths(hops, topology.attachment[src].node, topology.attachment[dst].node))
        for path in paths:
            for tail, head in pairwise(path):
                load[LinkKey(tail, head)] = load.get(LinkKey(tail, head), 0.0) + rate_bps / len(paths)
    return load


def _busiest_with_a_way_around(topology: Topology, load: Mapping[LinkKey, float]) -> LinkKey:
    """Links by load over rate, busiest first; the first that is no bridge and has a host at both ends."""
    with_host = {edge.node for edge in topology.attachment.values()}
    bridges = set(_bridges(topology))

    def usable() -> Iterator[LinkKey]:
        for key in topology.directed_links:
            ends = {key.src, key.dst}
            if ends <= with_host and frozenset(ends) not in bridges:
                yield key

    busiest = max(
        usable(), key=lambda key: (load.get(key, 0.0) / topology.directed_links[key].rate_bps, key), default=None
    )
    if busiest is None:
        raise FabricError(
            f"topology {topology.name}: no link has hosts at both ends and a way around it; nothing to show"
        )
    return busiest


def _bridges(topology: Topology) -> Iterator[frozenset[str]]:
    graph = nx.Graph()
    graph.add_edges_from(
        (link.a.node, link.b.node)
        for link in topology.links
        if link.a.node in topology.switch and link.b.node in topology.switch
    )
    for a, b in nx.bridges(graph):
        yield frozenset((a, b))


def _host_at(topology: Topology, switch: str) -> str:
    collector = topology.collector.host if topology.collector else None
    return next(host for host, edge in topology.attachment.items() if edge.node == switch and host != collector)
