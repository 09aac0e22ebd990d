"""Events: a link whose queue is full, and what the routes of a path server do about it.

An event begins when the first report of a packet over the congested link is sent. It is seen when a route set takes a
flow off that link; after `PATIENCE_S` it never is. All here is bookkeeping: times are arguments, in monotonic ns.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from controller.network.intents import RouteSet
from dataplane.topology.values import LinkKey
from tests.benchmarks.chaining.flows import Flows, Path, fabric_links

PATIENCE_S = 4.0
QUIET_S = 1.0
"""Between two events."""
LEAST_FLOWS = 4
"""Links with fewer flows are not congested: one without reports cannot be seen."""


@dataclass(slots=True)
class Event:
    """A congestion, the flows that crossed its link when it began, and those that were taken off it since."""

    link: LinkKey
    flows: frozenset[int]
    heavy: frozenset[int]
    """Those of `flows` that are heavy; all where none is."""
    begun_ns: int | None = None
    seen_ns: int | None = None
    source: str = ""
    """The first switch of the flow that was taken off it first: the one whose entry moves that flow."""
    moved: set[int] = field(default_factory=set)
    patience_s: float = PATIENCE_S

    @property
    def reaction_ms(self) -> float:
        """Time until it was seen; infinite where that took too long."""
        if self.begun_ns is None or self.seen_ns is None:
            return math.inf
        took_s = (self.seen_ns - self.begun_ns) / 1e9
        return 1000 * took_s if took_s <= self.patience_s else math.inf

    @property
    def decided(self) -> int:
        """Number of heavy flows moved off the link."""
        return len(self.moved & self.heavy)

    def take(self, moved: Iterable[tuple[int, Path]], at_ns: int) -> None:
        """Take note of flows that have another path now."""
        if self.begun_ns is None:
            return
        for flow, path in moved:
            if flow in self.flows and (self.link.src, self.link.dst) not in pairwise(path):
                self.moved.add(flow)
                if self.seen_ns is None:
                    self.seen_ns, self.source = at_ns, path[0]


class Steering:
    """The paths that flows take: those of the newest route set, and the first ones for all that it does not name."""

    def __init__(self, flows: Flows) -> None:
        self.flows = flows
        self._base = {number: flow.path for number, flow in enumerate(flows.flows)}
        self._explicit: set[int] = set()
        self.unroutable = 0
        """Routes of other lengths than reports have: they count as moves, but their flows' reports stay as they are."""

    def take(self, routes: RouteSet) -> tuple[list[tuple[int, Path]], list[int]]:
        """Return the flows that a route set takes to another path, each with that; and those whose reports change."""
        wanted = {
            self.flows.number[pair]: route.switches
            for route in routes.routes
            if (pair := (route.flow.src_host, route.flow.dst_host)) in self.flows.number
        }
        moved = [(flow, path) for flow, path in wanted.items() if self.flows.flows[flow].path != path]
        back = [(flow, self._base[flow]) for flow in self._explicit - wanted.keys()]
        self._explicit = set(wanted)
        followed: list[int] = []
        for flow, path in moved + back:
            if len(path) != self.flows.hops:
                self.unroutable += 1
            elif self.flows.flows[flow].path != path:
                self.flows.reroute(flow, path)
                followed.append(flow)
        return moved, followed


def next_event(flows: Flows, rng: np.random.Generator, before: Event | None) -> Event:
    """Return an event at a random link between switches, which no flow of the one before crosses; nor is it begun.

    So a late move that the one before has caused is not taken for an answer to this.
    """
    links = fabric_links(flows.topology)
    recent = frozenset[int]() if before is None else before.flows
    for number in rng.permutation(len(links)):
        crossing = flows.crossing(links[number])
        heavy = flows.heavy_of(crossing)
        if len(heavy) >= LEAST_FLOWS and recent.isdisjoint(crossing.tolist()):
            return Event(links[number], frozenset(crossing.tolist()), frozenset(heavy.tolist()))
    raise ValueError(f"no link of {flows.topology.name} is crossed by {LEAST_FLOWS} flows that the last event spared")


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest of the values that so great a share of them does not exceed; infinite if there are none."""
    return sorted(values)[max(math.ceil(share * len(values)) - 1, 0)] if values else math.inf
