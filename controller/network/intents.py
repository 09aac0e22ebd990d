"""Intents of deciders, independent of the layout of tables.

Frozen values that only controller/network/tables turns into entries.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dataplane.topology.values import LinkKey


@dataclass(frozen=True, slots=True, order=True)
class FlowSpec:
    """Traffic from one host to another, by name; with protocol and ports None, all of it, of both IP families."""

    src_host: str
    dst_host: str
    protocol: int | None = None
    src_port: int | None = None
    dst_port: int | None = None


PROBE_UDP_PORT = 9
"""Destination port of link probes: UDP's discard service (RFC 863), which ignores them. They stay on base paths."""


@dataclass(frozen=True, slots=True)
class Route:
    """Request that a flow cross exactly these switches, from its source host's switch to its destination's."""

    flow: FlowSpec
    switches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WeightedRoute:
    """Split at one switch of traffic to hosts of another, without an explicit route, over these neighbours.

    `next_hops` are (switch, weight), weights from 1; flows stay together.
    """

    switch: str
    destination: str
    next_hops: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RouteSet:
    """All explicit and weighted routes wanted now; everything else follows the base routes.

    `version` grows by one with each change. `pins` are the paths to which flows are pinned by hand, whether they are on
    them now, as `routes` says, or had to leave for a dead or drained link. Base routes use the links that are
    `drained` only where no other path exists. `traceparent` is the W3C trace context of the round that made the set; it
    does not affect what is wanted. `token` is the fencing token of a path server in a pair, 0 of one that runs alone.
    """

    version: int
    routes: tuple[Route, ...]
    weighted: tuple[WeightedRoute, ...] = ()
    pins: tuple[Route, ...] = ()
    drained: tuple[LinkKey, ...] = ()
    traceparent: str = field(default="", compare=False)
    token: int = 0


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """A host that contributes to a job or takes its results, and the UDP port that it listens on."""

    host: str
    udp_port: int


@dataclass(frozen=True, slots=True)
class AggregationJob:
    """A job that adds up vectors of `workers`, one host each, in switches.

    `number` (1 to 65,535) names it in packets; `capacity` is how many of them may be members at a time; a worker may
    wait for the results of `window` items at a time. `server` also gets results that are marked as final. Switches
    accept no packet without `nonce`, a random number of 64 bits that only they and the job's workers know.
    """

    number: int
    workers: tuple[Worker, ...]
    capacity: int
    window: int
    server: Worker | None = None
    nonce: int = field(default=0, repr=False)


@dataclass(frozen=True, slots=True)
class Leaf:
    """A switch that adds up for its rack; a worker keeps its place in `workers` for as long as it may come back."""

    switch: str
    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AggregationTree:
    """Placement of a job's sums: at `root`, of leaves and of workers (by host) that contribute to it directly.

    A child's position in `children` is its number in the switch and never changes.
    """

    root: str
    children: tuple[str | Leaf, ...]


@dataclass(frozen=True, slots=True)
class Members:
    """Workers that must contribute now, by host; each change gets a new epoch (0 to 65,535, then 0 again)."""

    epoch: int
    workers: frozenset[str]
