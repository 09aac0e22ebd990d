"""ProbeResult: what a probe task has measured at a centre."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controller.api.resources.base import Count, Kind, Line, Lines, Name, Names, Resource, TimeNs
from dataplane.config import Strict


class ProbeResultSpec(Strict, frozen=True):
    """What was asked: which probe, of which task type, where."""

    probe: Name
    centre: Name
    task_type: Name | None = None
    unit: Name | None = None
    task: Name | None = None
    """The Task that ran it."""
    kernels: Annotated[dict[Name, Count], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """Repetitions by kernel."""


class ProbeRun(Strict, frozen=True):
    """A run on so many units, repeated; one figure a repetition."""

    units: Count
    run_times_s: Annotated[tuple[float, ...], Meta(max_length=10_000)]
    started_ns: TimeNs | None = None
    accuracies: Annotated[tuple[float, ...], Meta(max_length=10_000)] = ()
    """Errors against the kernel's true value."""
    figures: Annotated[dict[Name, float], Meta(max_length=64)] = msgspec.field(default_factory=dict)


class ProbeResultStatus(Strict, frozen=True):
    """What came back."""

    runs: Annotated[tuple[ProbeRun, ...], Meta(max_length=64)] = ()
    unit: Name | None = None
    """Which was used, where the centre chose."""
    could_run: Names = ()
    score: float | None = None
    points: Annotated[dict[Name, float], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    policy: Line = ""
    problems: Lines = ()


class ProbeResult(Resource, frozen=True):
    """What a probe task has measured."""

    spec: ProbeResultSpec
    status: ProbeResultStatus = msgspec.field(default_factory=ProbeResultStatus)
    kind: Literal["ProbeResult"] = "ProbeResult"


PROBE_RESULT = Kind(
    "ProbeResult",
    "proberesults",
    ProbeResult,
    fields={
        "centre": lambda result: result.spec.centre,
        "probe": lambda result: result.spec.probe,
        "task-type": lambda result: result.spec.task_type,
    },
)
