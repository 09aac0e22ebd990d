"""ProbeResult: what a probe task has measured at a centre."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Count, Kind, Line, Lines, Name, Names, Resource, Seconds, TimeNs
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


Times = Annotated[tuple[Seconds, ...], Meta(max_length=10_000)]
Relative = Annotated[float, Meta(ge=0, le=1e300)]
"""A relative error."""


class ProbeRun(Strict, frozen=True):
    """A run on so many units, repeated; one figure a repetition."""

    units: Count
    run_times_s: Times
    started_ns: TimeNs | None = None
    unit: Name | None = None
    """The type of units."""
    cores: Count | None = None
    """All that these units have."""
    accuracies: Annotated[tuple[Relative, ...], Meta(max_length=10_000)] = ()
    """The worst relative error of a repetition's kernels against their true values."""
    kernels_s: Annotated[dict[Name, Times], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """By use of a kernel the seconds of one execution, the mean within each repetition of the probe task."""
    steady_s: Annotated[dict[Name, Seconds], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """By use of a kernel the seconds of one execution in a program that runs for long: with the gaps of a quota."""
    kernel_accuracies: Annotated[dict[Name, Relative], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """By use of a kernel the worst relative error."""
    start_s: Seconds | None = None
    """From the start of the program until all was imported: paid once, in none of the run times."""
    prepare_s: Seconds | None = None
    """Making the kernels' data."""
    wall_s: Seconds | None = None
    """From the start of the program to its end: what the probe took away from others, on each of the units."""
    peak_memory_bytes: Count | None = None
    outcome: Literal["succeeded", "crash", "hang", "wrong-value", "out-of-memory", "refused"] = "succeeded"
    problem: Line = ""
    figures: Annotated[dict[Name, float], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    score: float | None = None
    """By the status's policy; None as long as nobody has scored it, or where a figure is missing that counts."""
    points: Annotated[dict[Name, float], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    notes: Lines = ()
    """What the score leaves out, and why."""


class ProbeResultStatus(Strict, frozen=True):
    """What came back."""

    runs: Annotated[tuple[ProbeRun, ...], Meta(max_length=64)] = ()
    unit: Name | None = None
    """Which was used, where the centre chose."""
    could_run: Names = ()
    score: float | None = None
    """That of the run on the fewest units; comparable with others of the same probe on `score_units`."""
    score_units: Count | None = None
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
