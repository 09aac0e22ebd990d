"""ProbeTask: a small program of probe kernels that resembles a task; immutable."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Count, Line, Name, Resource
from controller.apiserver.resources.kind import Kind, Rights, Strategy, Usage
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind

_WORD = r"^[a-z][a-z0-9_-]*$(?!\n)"
Word = Annotated[str, Meta(pattern=_WORD, max_length=64)]
Identifier = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]*$(?!\n)", max_length=63)]
"""Identifier of a kernel."""
Positive = Annotated[int, Meta(ge=1, le=1 << 53)]
PositiveS = Annotated[float, Meta(gt=0, le=1e9)]
SizeMap = Annotated[dict[Word, Count], Meta(max_length=64)]


class ImplementationSpec(Strict, frozen=True):
    """A kernel's code for a kind of device: `module:function`, or an image if `library` is container."""

    device: DeviceKind
    library: Literal["numpy", "scipy", "torch", "duckdb", "python", "container"]
    entry: Line
    threads: bool = False
    """It uses all threads that it is given."""


class KernelUseSpec(Strict, frozen=True):
    """Repetitions of a kernel that represent a number of executions of an operator in the target."""

    name: Name
    kernel: Identifier
    version: Positive
    implementation: ImplementationSpec
    tolerance: Annotated[float, Meta(ge=0, le=1e9)]
    sizes: SizeMap = msgspec.field(default_factory=dict)
    repetitions: Annotated[int, Meta(ge=1, le=100_000)] = 1
    executions: Positive = 1
    operator: Line = ""
    scale: Annotated[float, Meta(gt=0, le=1e18)] = 1.0
    """Work per execution in the target divided by work per execution here."""
    splits: Line = ""
    """Sizes that are divided when several processes share the work, separated by blanks."""


class LinkSpec(Strict, frozen=True):
    """One use's mean output is an input of another."""

    src: Name
    dst: Name


class TargetRunSpec(Strict, frozen=True):
    """CPU times of the target and of each use of a kernel, on one core where the probe task was built."""

    cpu_time_s: PositiveS
    """All executions, without process start."""
    kernels_s: Annotated[dict[Name, PositiveS], Meta(max_length=256)]
    """One execution."""


class ProbeTaskSpec(Strict, frozen=True):
    """Kernels to run, and what they were built from."""

    category: Word
    uses: Annotated[tuple[KernelUseSpec, ...], Meta(min_length=1, max_length=256)]
    links: Annotated[tuple[LinkSpec, ...], Meta(max_length=4096)] = ()
    task_type: Name | None = None
    target: Line = ""
    """The operator graph that it was built from; empty if an expert wrote it."""
    ratio: Positive = 1000
    unmatched: Annotated[tuple[Line, ...], Meta(max_length=4096)] = ()
    share_matched: Annotated[float, Meta(ge=0, le=1)] | None = None
    """Share of the target's time, or work, that its kernels represent."""
    seed: Count = 0
    format_version: Literal[1] = 1
    reference: TargetRunSpec | None = None
    """Measurements from where it was built."""


class ProbeTaskStatus(Strict, frozen=True):
    """Known facts about running it."""

    run_time_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """On one unit, when it was checked."""
    reason: Line = ""


class ProbeTask(Resource, frozen=True):
    """A small program of probe kernels."""

    spec: ProbeTaskSpec
    status: ProbeTaskStatus = ProbeTaskStatus()
    kind: Literal["ProbeTask"] = "ProbeTask"


class ProbeTaskStrategy(Strategy[ProbeTask]):
    """Probe tasks: users write them, within their quota."""

    def usage(self, resource: ProbeTask) -> Usage:
        """Count nothing but the object and its size."""
        return Usage()


PROBE_TASK = Kind(
    "ProbeTask",
    "probetasks",
    ProbeTask,
    fields={
        "task-type": lambda probe: probe.spec.task_type,
        "category": lambda probe: probe.spec.category,
        "kernel": lambda probe: tuple(sorted({use.kernel for use in probe.spec.uses})),
    },
    columns={
        "category": lambda probe: probe.spec.category,
        "kernels": lambda probe: " ".join(f"{use.kernel}x{use.repetitions}" for use in probe.spec.uses),
        "of": lambda probe: probe.spec.task_type or probe.spec.target,
    },
    rights=Rights(is_public=True, users_write=True),
    strategy=ProbeTaskStrategy(),
)
