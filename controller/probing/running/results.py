"""Result of a run of a probe task, as a JSON file; its reader treats it as written by an attacker."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from controller.apiserver.resources.base import Count, Line, Name, Seconds, TimeNs
from controller.apiserver.resources.probe_result import ProbeRun, Relative, Times
from controller.probing.errors import ProbeError
from controller.probing.running.report import MOST_FIGURES, MOST_REPETITIONS, Outcome
from dataplane.config import Strict
from dataplane.malformed import MALFORMED

MAX_BYTES: Final = 16 << 20
"""Largest size of a result's file."""


class Repetition(Strict, frozen=True):
    """The whole probe task once: seconds of each kernel's executions, and the worst relative error of each one."""

    run_time_s: Seconds
    kernels_s: Annotated[dict[Name, Times], Meta(max_length=256)]
    accuracies: Annotated[dict[Name, Relative], Meta(max_length=256)]


class RunResult(Strict, frozen=True, kw_only=True):
    """A run: its repetitions on its units, or the problem and the use of a kernel that it occurred in."""

    millrace: Literal[1] = 1
    probe: Name
    units: Count
    cores: Count
    outcome: Outcome
    problem: Line = ""
    use: Name | None = None
    repetitions: Annotated[tuple[Repetition, ...], Meta(max_length=MOST_REPETITIONS)] = ()
    steady_s: Annotated[dict[Name, Seconds], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """Seconds of one execution in a program that runs for long (`steady`), by use."""
    cpu_s: Annotated[dict[Name, Seconds], Meta(max_length=256)] = msgspec.field(default_factory=dict)
    """CPU time of one execution, whatever other load the machine had, by use."""
    started_ns: TimeNs | None = None
    """Time of the program's start, in nanoseconds since 1970 by this machine's clock."""
    start_s: Seconds | None = None
    """Seconds from the program's start to the end of imports: a target that uses the same libraries takes them, too."""
    prepare_s: Seconds | None = None
    """Seconds of making the kernels' data."""
    warm_up_s: Seconds | None = None
    """Seconds of running each kernel once before the first repetition; not counted."""
    wall_s: Seconds | None = None
    """Seconds from the program's start until this was written: the time that the probe took from others."""
    peak_memory_bytes: Count | None = None
    versions: Annotated[dict[Name, Line], Meta(max_length=64)] = msgspec.field(default_factory=dict)
    figures: Annotated[dict[Name, float], Meta(max_length=MOST_FIGURES)] = msgspec.field(default_factory=dict)
    """Kernels' figures of their last run, as USE.NAME."""


def read(path: Path) -> RunResult:
    """Return the result in a file; raise ProbeError with its name and the problem: its size, or its content."""
    try:
        # A job may leave anything under the name of its result: a link, or a pipe that nobody writes to.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ProbeError(f"{path}: not a file")
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ProbeError(f"{path}: {error.strerror or 'cannot be read'}") from error
    return decode(content, source=str(path))


def decode(content: bytes, *, source: str = "result") -> RunResult:
    """Return a result from JSON text; raise ProbeError for invalid text, and for invalid or too many numbers."""
    if len(content) > MAX_BYTES:
        raise ProbeError(f"{source}: more than {MAX_BYTES} bytes")
    try:
        return msgspec.json.decode(content, type=RunResult)
    except MALFORMED as error:
        raise ProbeError(f"{source}: not a result of a probe task: {error}") from error


def to_probe_run(result: RunResult, *, unit: str | None = None) -> ProbeRun:
    """Return a result in the API's form: means within each repetition, the worst of errors."""
    names = sorted({name for repetition in result.repetitions for name in repetition.kernels_s})
    means = {
        name: tuple(
            sum(times) / len(times) for repetition in result.repetitions if (times := repetition.kernels_s.get(name))
        )
        for name in names
    }
    worst = {
        name: max(errors)
        for name in names
        if (
            errors := [
                repetition.accuracies[name] for repetition in result.repetitions if name in repetition.accuracies
            ]
        )
    }
    return ProbeRun(
        units=result.units,
        run_times_s=tuple(repetition.run_time_s for repetition in result.repetitions),
        started_ns=result.started_ns,
        unit=unit,
        cores=result.cores,
        accuracies=tuple(max(repetition.accuracies.values(), default=0.0) for repetition in result.repetitions),
        kernels_s=means,
        steady_s=result.steady_s,
        kernel_accuracies=worst,
        figures=result.figures,
        start_s=result.start_s,
        prepare_s=result.prepare_s,
        wall_s=result.wall_s,
        peak_memory_bytes=result.peak_memory_bytes,
        outcome=result.outcome.value,
        problem=result.problem,
    )
