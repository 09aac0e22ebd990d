"""Plan the demo before anything runs: flows, the link that congests, and when.

Background flows follow the demand matrix. At `congest_ns` a surge starts over the busiest link that traffic can bypass,
large enough that the link can no longer carry the load of the base routes (`controller.apps.demo.surge`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import msgspec

from controller.apps.demo.surge import base_load_bps, plan_surge
from controller.network.intents import FlowSpec
from dataplane.clock import NS_PER_S
from dataplane.config import Settings
from dataplane.fabric.hosts import Arrivals, Flow, flow_between
from dataplane.topology.values import Link, LinkKey, Topology

_LEAST_QUEUE_FRAMES = 8

Positive = Annotated[float, msgspec.Meta(gt=0)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class ScenarioSettings(Settings, frozen=True):
    """The run's shape; times are seconds of the fabric's own clock."""

    rate_divisor: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Divisor of the topology's rates and demands; default: what `hops_per_s` requires."""
    hops_per_s: Positive | None = None
    """Frames times switches per second of the background; default: what the simulator (4000), or processes that share a
    few cores (1200), can follow."""
    peak_utilisation: Share = 0.3
    """Demands are stretched so that the busiest link between switches carries this share of its rate."""
    matrix: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Matrix number in a file that holds several."""
    frame_bytes: Annotated[int, msgspec.Meta(ge=100, le=1400)] = 1000
    """Length of a data frame, Ethernet header included."""
    buffer_s: Positive = 0.15
    """Queue capacity, as sending time of the link: slower links need fewer frames for the same delay."""
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
    """One host's stream to another; a surge adds to its two hosts' background flow.

    `number` is carried by packets and determines ports; background flows count from 0.
    """

    number: int
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
        """Return the hosts' flows, in the order of `flows`: Poisson arrivals, but a surge is constant."""
        return tuple(
            flow_between(
                self.topology,
                planned.number,
                planned.flow.src_host,
                planned.flow.dst_host,
                max(1, round(planned.rate_bps)),
                frame_bytes=self.frame_bytes,
                arrivals=Arrivals.CONSTANT if planned.surge else Arrivals.POISSON,
                start_ns=planned.start_ns,
                stop_ns=planned.stop_ns,
            )
            for planned in self.flows
        )

    def by_number(self) -> dict[int, PlannedFlow]:
        """Return the flows by their numbers."""
        return {planned.number: planned for planned in self.flows}


def plan(topology: Topology, demands_bps: Mapping[tuple[str, str], float], settings: ScenarioSettings) -> Scenario:
    """Return the plan for an already scaled topology and demands.

    `demands_bps` is by (source host, destination host). Raises FabricError if no link has a way around it.
    """
    topology = with_buffers(topology, settings)
    congest_ns = round((settings.warm_up_s + settings.before_s) * NS_PER_S)
    after_ns = congest_ns + round(settings.during_s * NS_PER_S)
    end_ns = after_ns + round(settings.after_s * NS_PER_S)
    wanted = sorted((pair, rate_bps) for pair, rate_bps in demands_bps.items() if rate_bps > 0)
    flows = [
        PlannedFlow(number, FlowSpec(*pair), rate_bps, 0, end_ns) for number, (pair, rate_bps) in enumerate(wanted)
    ]
    congested, surges = plan_surge(topology, base_load_bps(topology, demands_bps), settings.overload, len(flows))
    flows += [PlannedFlow(s.number, s.flow, s.rate_bps, congest_ns, end_ns, surge=True) for s in surges]
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


def with_buffers(topology: Topology, settings: ScenarioSettings) -> Topology:
    """Return a topology whose queues hold what their links send in `buffer_s`."""

    def frames(link: Link) -> int:
        return max(_LEAST_QUEUE_FRAMES, round(link.rate_bps * settings.buffer_s / (8 * settings.frame_bytes)))

    return replace(topology, links=tuple(replace(link, queue_frames=frames(link)) for link in topology.links))
