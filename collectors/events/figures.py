"""The figures that rules can watch: numbers in the states of links, paths, reporters, jobs and who contributes to them.

They have their fields' names.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

import numpy as np

from collectors.columns import Numbers
from collectors.link_states import LinkStates
from collectors.values import (
    ChildState,
    Evidence,
    JobState,
    LinkState,
    PathState,
    ReporterKey,
    ReporterState,
    Snapshot,
    Subject,
)

State = LinkState | PathState | ReporterState | JobState | ChildState
Reading = Callable[[Any], float | None]


class Scope(StrEnum):
    """What a rule is about."""

    LINK = "link"
    PATH = "path"
    REPORTER = "reporter"
    JOB = "job"
    CHILD = "child"


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
_JOB: Final = (
    "items",
    "items_per_s",
    "reported",
    "repeated",
    "repeated_per_item",
    "cells_used",
    "wait_mean_ns",
    "wait_p50_ns",
    "wait_p99_ns",
    "wait_max_ns",
    "age_ns",
    "samples",
)
_CHILD: Final = ("last", "last_share", "wait_mean_ns", "wait_max_ns", "wait_caused_ns", "samples")

FIGURES: Final[Mapping[Scope, Mapping[str, Reading]]] = {
    Scope.LINK: {name: attrgetter(name) for name in _LINK},
    Scope.PATH: {**{name: attrgetter(name) for name in _PATH}, "hops": lambda path: len(path.switches)},
    Scope.REPORTER: {name: attrgetter(name) for name in _COUNTERS},
    Scope.JOB: {name: attrgetter(name) for name in _JOB},
    Scope.CHILD: {name: attrgetter(name) for name in _CHILD},
}
"""How each figure is read; None where the snapshot does not know it."""


class Observation:
    """A snapshot as rules look at it: figures side by side, in the snapshot's order, each read when first asked for."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._subjects: dict[Scope, list[Subject]] = {}
        self._places: dict[Scope, Mapping[Any, int]] = {}
        self._values: dict[tuple[Scope, str], Numbers] = {}

    @property
    def time_ns(self) -> int:
        """When the snapshot was taken."""
        return self.snapshot.taken_ns

    def subjects(self, scope: Scope) -> list[Subject]:
        """Return what a rule of this scope looks at."""
        found = self._subjects.get(scope)
        if found is None:
            states = _states(self.snapshot, scope)
            found = [ReporterKey(*key) for key in states] if scope is Scope.REPORTER else list(states)
            self._subjects[scope] = found
        return found

    def place(self, scope: Scope, subject: Subject) -> int | None:
        """Return a subject's place, None when the snapshot lacks it."""
        if scope not in self._places:
            states = _states(self.snapshot, scope)
            own = states.places if isinstance(states, LinkStates) else None
            self._places[scope] = own or {key: place for place, key in enumerate(self.subjects(scope))}
        return self._places[scope].get(subject)

    def values(self, scope: Scope, figure: str) -> Numbers:
        """Return a figure of every subject, NaN where the snapshot does not know it."""
        found = self._values.get((scope, figure))
        if found is None:
            states = _states(self.snapshot, scope)
            if isinstance(states, LinkStates):
                found = states.column(figure)
            else:
                read = FIGURES[scope][figure]
                found = np.array([read(state) for state in states.values()], np.float64)
            self._values[scope, figure] = found
        return found

    def growth(self, last: Observation, scope: Scope, figure: str) -> Numbers:
        """Return by how much a figure has grown since an older snapshot, per second."""
        now, before = self.values(scope, figure), last.values(scope, figure)
        if self.subjects(scope) != last.subjects(scope):
            places = [last.place(scope, subject) for subject in self.subjects(scope)]
            before = np.array([math.nan if place is None else before[place] for place in places])
        grown: Numbers = (now - before) * 1e9 / (self.time_ns - last.time_ns)
        return grown

    def state(self, scope: Scope, subject: Subject) -> State:
        """Return the state of a subject that the snapshot has."""
        key = (subject.node_id, subject.hw_id) if isinstance(subject, ReporterKey) else subject
        return _states(self.snapshot, scope)[key]


def _states(snapshot: Snapshot, scope: Scope) -> Mapping[Any, State]:
    match scope:
        case Scope.LINK:
            return snapshot.links
        case Scope.PATH:
            return snapshot.paths
        case Scope.REPORTER:
            return snapshot.reporters
        case Scope.JOB:
            return snapshot.jobs
        case Scope.CHILD:
            return {child.key: child for job in snapshot.jobs.values() for child in job.children}


def companions(scope: Scope, state: State, time_ns: int, without: str) -> tuple[Evidence, ...]:
    """Return every other known figure of a subject: what stood beside the one that the rule saw."""
    found = ((name, read(state)) for name, read in FIGURES[scope].items() if name != without)
    return tuple(Evidence(time_ns, name, float(value)) for name, value in found if value is not None)
