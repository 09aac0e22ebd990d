"""A snapshot as columns for rules: each figure of all subjects side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from collectors.events.scopes import FIGURES, Scope, State
from collectors.state.link_states import LinkStates
from collectors.statistics.columns import Numbers
from collectors.values import ReporterKey, Snapshot, Subject


class Observation:
    """A snapshot as columns for rules, in the snapshot's order; each figure is read when first needed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self._subjects: dict[Scope, list[Subject]] = {}
        self._places: dict[Scope, Mapping[Any, int]] = {}
        self._values: dict[tuple[Scope, str], Numbers] = {}

    @property
    def time_ns(self) -> int:
        """Time at which the snapshot was taken."""
        return self.snapshot.taken_ns

    def subjects(self, scope: Scope) -> list[Subject]:
        """Return the subjects of a scope."""
        cached = self._subjects.get(scope)
        if cached is None:
            states = states_of(self.snapshot, scope)
            cached = [ReporterKey(*key) for key in states] if scope is Scope.REPORTER else list(states)
            self._subjects[scope] = cached
        return cached

    def place(self, scope: Scope, subject: Subject) -> int | None:
        """Return a subject's index, None when the snapshot lacks it."""
        if scope not in self._places:
            states = states_of(self.snapshot, scope)
            own = states.places if isinstance(states, LinkStates) else None
            self._places[scope] = own or {key: index for index, key in enumerate(self.subjects(scope))}
        return self._places[scope].get(subject)

    def values(self, scope: Scope, figure: str) -> Numbers:
        """Return a figure of every subject, NaN where it is unknown."""
        column = self._values.get((scope, figure))
        if column is None:
            states = states_of(self.snapshot, scope)
            if isinstance(states, LinkStates):
                column = states.column(figure)
            else:
                read = FIGURES[scope][figure]
                column = np.array([read(state) for state in states.values()], np.float64)
            self._values[scope, figure] = column
        return column

    def growth(self, last: Observation, scope: Scope, figure: str) -> Numbers:
        """Return by how much a figure has grown since an older snapshot, per second."""
        now, before = self.values(scope, figure), last.values(scope, figure)
        if self.subjects(scope) != last.subjects(scope):
            places = [last.place(scope, subject) for subject in self.subjects(scope)]
            before = np.array([math.nan if index is None else before[index] for index in places])
        grown: Numbers = (now - before) * 1e9 / (self.time_ns - last.time_ns)
        return grown

    def state(self, scope: Scope, subject: Subject) -> State:
        """Return the state of a subject that the snapshot has."""
        key = (subject.node_id, subject.hw_id) if isinstance(subject, ReporterKey) else subject
        return states_of(self.snapshot, scope)[key]


def states_of(snapshot: Snapshot, scope: Scope) -> Mapping[Any, State]:
    """Return the states of a scope, in the snapshot's order."""
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
