"""Figures that rules can watch: numbers in the states of links, paths, reporters, jobs and their contributors.

They are named like their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, Final

from collectors.values import LINK_FIGURES, ChildState, Evidence, JobState, LinkState, PathState, ReporterState

State = LinkState | PathState | ReporterState | JobState | ChildState
Reading = Callable[[Any], float | None]


class Scope(StrEnum):
    """Kind of subject that a rule applies to."""

    LINK = "link"
    PATH = "path"
    REPORTER = "reporter"
    JOB = "job"
    CHILD = "child"


_COUNTERS: Final = ("received", "lost", "late", "duplicate", "restarts", "contested")

_LINK: Final = tuple(name for name, figure in LINK_FIGURES.items() if figure.uses.is_watched)
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
"""Reader of each figure; it returns None if the snapshot does not know the figure."""


def companions(scope: Scope, state: State, time_ns: int, without: str) -> tuple[Evidence, ...]:
    """Return every other known figure of a subject: the context of the figure that the rule watches."""
    figures = ((name, read(state)) for name, read in FIGURES[scope].items() if name != without)
    return tuple(Evidence(time_ns, name, float(value)) for name, value in figures if value is not None)
