"""Queries to the path server, its answers, and what it records."""

from __future__ import annotations

from dataclasses import dataclass

from controller.common.standby.values import StandbyStatus
from controller.network.intents import FlowSpec
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.deciding.graph import Path, PathFigures
from controller.network.paths.engineering.engineer import EngineeringRound
from dataplane.load.values import NO_LOAD, DaemonLoad
from dataplane.topology.values import LinkKey


@dataclass(frozen=True, slots=True)
class RecordRow:
    """A row of the record table as an explanation shows it; switches by name, `next_hop` the node at the port."""

    received_ns: int
    packet_id: int
    hop_index: int
    switch: str
    next_hop: str
    hop_latency_ns: int | None
    queue_occupancy_frames: int | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a flow: its path and the candidates now, the reason for its path, and its last moves.

    `records` are the newest rows of the record table between its hosts, newest packet first. `figures_age_ns` is the
    age of the state behind the figures; while the feed is silent, it is not used for decisions. `pinned` is the path to
    which the flow is pinned by hand, if any.
    """

    flow: FlowSpec
    present: PathFigures
    candidates: tuple[PathFigures, ...]
    rate_bps: int
    reason: str
    moves: tuple[Decision, ...]
    records: tuple[RecordRow, ...] = ()
    figures_age_ns: int | None = None
    feed_is_silent: bool = False
    pinned: Path = ()


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Query for decisions: from or to hosts, in the time span from `start_ns` (inclusive) to `end_ns` (exclusive)."""

    src: str | None = None
    dst: str | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class History:
    """Decisions about flows and changes of weights, newest first, and rounds of traffic engineering since the start.

    Changes of weights concern all hosts of a switch: `src` of a query leaves them out, `dst` those to other switches.
    """

    decisions: tuple[Decision, ...]
    rounds: tuple[EngineeringRound, ...] = ()
    rebalances: tuple[Rebalance, ...] = ()


@dataclass(frozen=True, slots=True)
class RecordQuery:
    """Query for hop records: between two addresses (of one flow, with protocol and ports), of a link or a time.

    Addresses are text; the time span is from `start_ns` (inclusive) to `end_ns` (exclusive).
    """

    src: str | None = None
    dst: str | None = None
    protocol: int | None = None
    src_port: int | None = None
    dst_port: int | None = None
    link: LinkKey | None = None
    start_ns: int | None = None
    end_ns: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class LinkChange:
    """A directed link between switches went down or came back."""

    link: LinkKey
    up: bool


@dataclass(frozen=True, slots=True)
class Drain:
    """A drained element (`A->B`, `A<->B`, or a switch): since when, by whom, and a note."""

    element: str
    since_ns: int
    by: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class DrainChange:
    """Request to drain an element, or to put it back.

    With a `revision` it is refused if the drains have changed since an answer with that one.
    """

    element: str
    drained: bool
    by: str = ""
    note: str = ""
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class StayingFlow:
    """A flow that stays on a drained element, and why."""

    flow: FlowSpec
    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class DrainEffect:
    """Effect of a `DrainChange`, or its prediction by the decider.

    `moves` are the managed flows that leave or return; `others` the number of measured 5-tuples on the element that
    follow base or weighted routes. `hosts` have no other switch: their traffic stays. The fullest links are those
    before and after, as predicted for managed flows. `drain` is the element's, now or after; None if it is put back.
    `revision` is that of the drains as they are now.
    """

    drain: Drain | None
    is_change: bool
    moves: tuple[Decision, ...]
    stays: tuple[StayingFlow, ...]
    others: int
    hosts: tuple[str, ...]
    fullest_before: LinkKey | None
    utilisation_before: float
    fullest_after: LinkKey | None
    utilisation_after: float
    revision: str


@dataclass(frozen=True, slots=True)
class DrainList:
    """All drains, the flows that stay on them, and the revision of the set."""

    drains: tuple[Drain, ...]
    stays: tuple[StayingFlow, ...]
    revision: str


@dataclass(frozen=True, slots=True)
class PathServerStatus:
    """The path server's counters: what it keeps, does and drops; the age of its newest network state.

    `now_ns` is its time, UTC, for ages of records; `nodes` are the switches by their numbers in records; `pinned` flows
    are held on their paths by users, `drained` elements out of use; `load` is the server's own, `standby`
    its role in a pair.
    """

    version: int
    flows: int
    explicit_routes: int
    last_step_ns: int | None
    snapshot_age_ns: int | None
    counters: dict[str, int]
    last_problem: str | None
    feed_is_silent: bool
    now_ns: int
    nodes: dict[str, int]
    pinned: int
    load: DaemonLoad = NO_LOAD
    drained: int = 0
    standby: StandbyStatus | None = None


@dataclass(frozen=True, slots=True)
class Assigned:
    """An explicit path and the time at which the flow moved there."""

    path: Path
    since_ns: int
