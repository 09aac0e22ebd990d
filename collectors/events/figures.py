"""The figures that rules can watch: the numbers of a link's, a path's or a reporter's state, by their field names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from collectors.values import Evidence, LinkState, PathState, ReporterKey, ReporterState, Snapshot, Subject

State = LinkState | PathState | ReporterState
Reading = Callable[[Any], float | None]


class Scope(StrEnum):
    """What a rule is about."""

    LINK = "link"
    PATH = "path"
    REPORTER = "reporter"


_COUNTERS: Final = ("received", "lost", "late", "duplicate", "restarts")

_LINK: Final = (
    "delay_mean_ns",
    "delay_p50_ns",
    "delay_p99_ns",
    "delay_ewma_ns",
    "delay_max_ns",
    "delay_uncertainty_ns",
    "queue_occupancy_frames",
    "buffer_occupancy_frames",
    "utilisation",
    "available_bps",
    "loss",
    "age_ns",
    "samples",
)
_PATH: Final = (
    "delay_ns",
    "delay_p50_ns",
    "delay_p99_ns",
    "bottleneck_bps",
    "age_ns",
    "rate_bps",
    "loss",
    "samples",
)

FIGURES: Final[Mapping[Scope, Mapping[str, Reading]]] = {
    Scope.LINK: {name: attrgetter(name) for name in _LINK},
    Scope.PATH: {**{name: attrgetter(name) for name in _PATH}, "hops": lambda path: len(path.switches)},
    Scope.REPORTER: {name: attrgetter(name) for name in _COUNTERS},
}
"""How each figure is read; None where the snapshot does not know it."""


def subjects(snapshot: Snapshot, scope: Scope) -> Iterator[tuple[Subject, State]]:
    """Yield what a rule of this scope looks at, in the snapshot's order."""
    match scope:
        case Scope.LINK:
            yield from snapshot.links.items()
        case Scope.PATH:
            yield from snapshot.paths.items()
        case Scope.REPORTER:
            for (node_id, hw_id), state in snapshot.reporters.items():
                yield ReporterKey(node_id, hw_id), state


def state_of(snapshot: Snapshot, scope: Scope, subject: Subject) -> State | None:
    """Return a subject's state, None when the snapshot lacks it."""
    key = (subject.node_id, subject.hw_id) if isinstance(subject, ReporterKey) else subject
    return _states(snapshot, scope).get(key)


def count(snapshot: Snapshot, scope: Scope) -> int:
    """Return how many subjects of a scope the snapshot has."""
    return len(_states(snapshot, scope))


def _states(snapshot: Snapshot, scope: Scope) -> Mapping[Any, State]:
    match scope:
        case Scope.LINK:
            return snapshot.links
        case Scope.PATH:
            return snapshot.paths
        case Scope.REPORTER:
            return snapshot.reporters


def companions(scope: Scope, state: State, time_ns: int, without: str) -> tuple[Evidence, ...]:
    """Return every other known figure of a subject: what stood beside the one that the rule saw."""
    found = ((name, read(state)) for name, read in FIGURES[scope].items() if name != without)
    return tuple(Evidence(time_ns, name, float(value)) for name, value in found if value is not None)
