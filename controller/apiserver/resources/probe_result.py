"""ProbeResult: measurements of a probe task at a centre."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Count, Line, Lines, Name, Names, Resource, Seconds, TimeNs
from controller.apiserver.resources.kind import Kind, Own, Rights, Verb
from dataplane.config import Strict
from dataplane.rpc.access import Role

MOST_POINTS: Final = 64
"""Figures with points in a result."""


class ProbeResultSpec(Strict, frozen=True):
    """The probe, the task type and the place."""

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
    """Repeated runs on a number of units; one figure per repetition."""

    units: Count
    run_times_s: Times
    started_ns: TimeNs | None = None
    unit: Name | None = None
    """Unit type."""
    cores: Count | None = None
    """Cores of all these units."""
    accuracies: Annotated[tuple[Relative, ...], Meta(max_length=10_000)] = ()
    """Worst relative error of the kernels in each repetition, against their true values."""
    kernels_s: Annotated[dict[Name, Times], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """Seconds per execution by use of a kernel, averaged over each repetition of the probe task."""
    steady_s: Annotated[dict[Name, Seconds], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """Seconds per execution by use of a kernel in a long-running program: including the gaps of a quota."""
    kernel_accuracies: Annotated[dict[Name, Relative], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """Worst relative error by use of a kernel."""
    start_s: Seconds | None = None
    """From program start until all imports are done: paid once, not part of the run times."""
    prepare_s: Seconds | None = None
    """Time to prepare the kernels' data."""
    wall_s: Seconds | None = None
    """From program start to end: what the probe took away from others, on each of the units."""
    peak_memory_bytes: Count | None = None
    outcome: Literal["succeeded", "crash", "hang", "wrong-value", "out-of-memory", "refused"] = "succeeded"
    problem: Line = ""
    figures: Annotated[dict[Name, float], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    score: float | None = None
    """By the status's policy; None if not scored yet, or if a required figure is missing."""
    points: Annotated[dict[Name, float], Meta(max_length=MOST_POINTS)] = msgspec.field(default_factory=dict)
    notes: Lines = ()
    """Parts that the score leaves out, and why."""


class ProbeResultStatus(Strict, frozen=True):
    """Results of the runs."""

    runs: Annotated[tuple[ProbeRun, ...], Meta(max_length=64)] = ()
    unit: Name | None = None
    """Unit type used."""
    units: Count | None = None
    """Number of units held, which the centre picked if the probe stated none; each run says how many it used."""
    could_run: Names = ()
    score: float | None = None
    """Score of the run on the fewest units; comparable with others of the same probe on `score_units`."""
    score_units: Count | None = None
    points: Annotated[dict[Name, float], Meta(max_length=MOST_POINTS)] = msgspec.field(default_factory=dict)
    policy: Line = ""
    """Name of the policy that gave the scores."""
    policy_digest: Annotated[str, Meta(max_length=64)] = ""
    """Its version: scores are comparable if it is the same."""
    problems: Lines = ()

    @property
    def scored_by(self) -> str:
        """Policy and version of the scores, `default@0123456789ab`; '' if there are none."""
        return f"{self.policy}@{self.policy_digest}" if self.policy_digest else self.policy


class ProbeResult(Resource, frozen=True):
    """Measurements of a probe task."""

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
    columns={
        "probe": lambda result: result.spec.probe,
        "centre": lambda result: result.spec.centre,
        "score": lambda result: result.status.score,
        "policy": lambda result: result.status.scored_by,
    },
    rights=Rights(own={Role.CENTRE: Own("centre", frozenset({Verb.READ}))}),
)
