"""A runner's order, and its report as the runner writes it; `results` is the strict reader of this JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import Final


class Outcome(StrEnum):
    """Outcome of a run; the value is also what people read."""

    SUCCEEDED = "succeeded"
    CRASH = "crash"
    HANG = "hang"
    WRONG_VALUE = "wrong-value"
    OUT_OF_MEMORY = "out-of-memory"
    REFUSED = "refused"


EXIT_CODES: Final = {
    Outcome.SUCCEEDED: 0,
    Outcome.REFUSED: 2,
    Outcome.CRASH: 10,
    Outcome.HANG: 11,
    Outcome.WRONG_VALUE: 12,
    Outcome.OUT_OF_MEMORY: 13,
}
MOST_TIMES: Final = 200_000
"""Most execution times in a report; of more, means of consecutive ones are kept."""
MOST_REPETITIONS: Final = 10_000
MOST_FIGURES: Final = 64


@dataclass(frozen=True, slots=True)
class Order:
    """Order for a run: number of units and their cores, repetitions, least duration, and deadline."""

    units: int
    cores: int
    repeat: int
    deadline_s: float
    at_least_s: float


@dataclass(frozen=True, slots=True)
class Repetition:
    """The whole probe task once: seconds of each kernel's executions, and the worst relative error of each one."""

    run_time_s: float
    kernels_s: Mapping[str, Sequence[float]]
    accuracies: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Report:
    """A run of a probe task: its repetitions, or the problem and the use of a kernel that it occurred in.

    `start_s` are seconds from the program's start until everything is imported, including those that a warm process has
    saved; `prepare_s` the time of making the kernels' data after that, `warm_up_s` of running each once, `wall_s` the
    total until the end. `steady_s` are seconds of one execution by use (`steady`), `cpu_s` their CPU time. `started_ns`
    is since 1970 by this machine's clock, `figures` are the kernels' figures of their last run, as USE.NAME.
    """

    probe: str
    units: int
    cores: int
    outcome: Outcome
    problem: str = ""
    use: str | None = None
    repetitions: Sequence[Repetition] = ()
    steady_s: Mapping[str, float] = field(default_factory=dict)
    started_ns: int | None = None
    start_s: float | None = None
    prepare_s: float | None = None
    warm_up_s: float | None = None
    wall_s: float | None = None
    peak_memory_bytes: int | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float] = field(default_factory=dict)
    cpu_s: Mapping[str, float] = field(default_factory=dict)


def encode(report: Report) -> bytes:
    """Return a report as one line of JSON text."""
    return json.dumps({"millrace": 1, **asdict(report)}, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def folded(times: Sequence[float], most: int) -> tuple[float, ...]:
    """Return at most this many numbers of equal mean: those given, or means of consecutive ones, equally many each."""
    if len(times) <= most:
        return tuple(times)
    bounds = [len(times) * index // most for index in range(most + 1)]
    pairs = pairwise(bounds)
    return tuple(sum(times[start:end]) / (end - start) for start, end in pairs)
