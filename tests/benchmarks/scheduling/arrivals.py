"""Arrivals that agents of the four inputs were not trained for: twice the load, and tasks of another family.

Of a log, parts of 256 jobs are tried, as long as those that agents learn from; a log and a graph of another family are
drawn by a seed and written as files.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from controller.learning.inputs.jobs import JobSettings
from controller.learning.training.given import Given, LearningSettings, read_given
from tests.benchmarks.scheduling.cases import DATA, Case, changed, shortened

Lines = Callable[[Case, random.Random], list[str]]
"""Draws the lines of an input's file."""

JOBS: Final = 256
TASKS: Final = 400
_LAYERS: Final = 12
_PROCESSORS: Final = 256
_LOAD: Final = 0.9


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Changes to the settings of an input by their paths, and what its file has instead, if anything."""

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    lines: Lines | None = None
    kind: str = ""

    def given(self, case: Case, settings: LearningSettings, seed: int, *, quick: bool = False) -> Given[Any]:
        """Return the input of a case under these arrivals, drawn by a seed."""
        for path, value in self.changes.items():
            settings = changed(settings, path, value)
        settings = shortened(settings) if quick else settings
        kind = self.kind or case.kind
        if self.lines is not None:
            with tempfile.TemporaryDirectory(prefix="millrace-arrivals-") as folder:
                file = Path(folder) / self.name
                file.write_text("\n".join(self.lines(case, random.Random(f"{self.name}/{seed}"))) + "\n")
                return read_given(f"{kind}:{file}", replace(settings, swf=JobSettings()), seed)
        return read_given(kind if kind == "bursty" else f"{kind}:{DATA / case.file}", settings, seed)


def part_of_log(times: float, begin: int = 5000) -> Lines:
    """Return a drawer of successive jobs among 5,000 from one on, submitted so many times as fast."""

    def lines(case: Case, rng: random.Random) -> list[str]:
        text = (DATA / case.file).read_text(encoding="utf-8").splitlines()
        jobs = [line.split() for line in text if line and not line.startswith(";")]
        first = begin + rng.randrange(5000 - JOBS)
        part = jobs[first : first + JOBS]
        return [" ".join([job[0], str(int(int(job[1]) / times)), *job[2:]]) for job in part]

    return lines


def drawn_log(case: Case, rng: random.Random) -> list[str]:
    """Draw jobs of 30 s to 10 h, evenly on a logarithmic scale, on powers of two of processors, at a load of 0.9."""
    runs = [round(math.exp(rng.uniform(math.log(30), math.log(36_000)))) for _ in range(JOBS)]
    processors = [1 << rng.randrange(8) for _ in range(JOBS)]
    area = sum(run * count for run, count in zip(runs, processors, strict=True))
    submitted = sorted(round(rng.uniform(0, area / (_LOAD * _PROCESSORS))) for _ in range(JOBS))
    return [
        f"{number} {time} -1 {run} {count} -1 -1 -1 -1 -1 1 -1 -1 -1 0 -1 -1 -1"
        for number, (time, run, count) in enumerate(zip(submitted, runs, processors, strict=True), 1)
    ]


def drawn_graph(case: Case, rng: random.Random) -> list[str]:
    """Draw a graph of layers: each task after one to three of the layer before, most of them faster on a GPU."""
    lines, before = [], list[int]()
    for layer in range(_LAYERS):
        tasks = range(layer * TASKS // _LAYERS + 1, (layer + 1) * TASKS // _LAYERS + 1)
        for task in tasks:
            cpu_s = rng.lognormvariate(math.log(1.5) - 0.125, 0.5)
            gpu_s = cpu_s / math.exp(rng.uniform(math.log(0.5), math.log(20))) if rng.random() < 0.7 else -1
            after = sorted(rng.sample(before, min(len(before), rng.randint(1, 3))))
            lines.append(
                f"{task} {cpu_s:.6f} {gpu_s:.6f} {','.join(map(str, after))}".strip().replace("-1.000000", "-1")
            )
        before = list(tasks)
    return lines


def _faster(times: float) -> dict[str, Any]:
    return {"bursty.quiet_hz": 5_000.0 * times, "bursty.burst_hz": 60_000.0 * times}


_FAMILY: Final = {
    "bursty.zipf": 0.7,
    "bursty.drift": 500,
    "bursty.most_objects": 6,
    "bursty.write_share": 0.6,
    "bursty.cpu_only": 0.5,
}

_FIRST_REQUESTS: Final = {"blocks.first": 0, "blocks.requests": 20_000}
"""A part of the trace that nothing is learned from."""

TRIED: Final[Mapping[str, tuple[Arrivals, ...]]] = {
    "bursty": (
        Arrivals("as learned"),
        Arrivals("twice the load", _faster(2)),
        Arrivals("another family", _FAMILY),
    ),
    "cloudphysics": (
        Arrivals("as learned", _FIRST_REQUESTS),
        Arrivals("twice the load", {**_FIRST_REQUESTS, "blocks.time_compression": 200}),
        Arrivals("another family", kind="bursty"),
    ),
    "spotri": (
        Arrivals("as learned"),
        Arrivals("twice the load", {"spotri.copies": 2, "spotri.interval_ns": 1}),
        Arrivals("another family", lines=drawn_graph),
    ),
    "lublin": (
        Arrivals("as learned"),
        Arrivals("twice the load", lines=part_of_log(2)),
        Arrivals("another family", lines=drawn_log),
    ),
}
"""Arrivals on which agents of each case are tried; the first are those that they learned."""

WIDE: Final[Mapping[str, tuple[Arrivals, ...]]] = {
    "bursty": tuple(
        Arrivals(
            f"{times} times, zipf {zipf}",
            {**_faster(times), "bursty.zipf": zipf, "bursty.write_share": share, "bursty.tasks": 5000},
        )
        for times, zipf, share in (
            *((1, 1.1, 0.3), (3, 1.1, 0.1), (0.5, 0.9, 0.5), (1.5, 1.3, 0.3)),
            *((1, 0.9, 0.1), (3, 1.3, 0.5), (1.5, 1.1, 0.3), (1, 1.1, 0.5)),
        )
    ),
    "cloudphysics": tuple(
        Arrivals(
            f"compressed {compression} times",
            {"blocks.time_compression": compression, "blocks.first": first, "blocks.requests": 5000},
        )
        for compression, first in ((100, 60_000), (300, 65_000), (50, 70_000), (150, 75_000))
    ),
    "spotri": tuple(
        Arrivals(f"{copies} copies", {"spotri.copies": copies, "spotri.interval_ns": 1, "spotri.edge_bytes": nbytes})
        for copies, nbytes in ((1, 409_600), (3, 409_600), (1, 204_800), (1, 819_200)) * 4
    ),
    "lublin": tuple(Arrivals(f"{times} times", lines=part_of_log(times, 0)) for times in (1, 1.5, 1, 0.7, 3) * 16),
}
"""Lessons over families of loads and tasks, as many decisions as a case's own; what is tried is none of them."""
