"""Batch logs in the Standard Workload Format, as jobs that wait for processors."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np

from controller.cluster.workloads.files import swf_jobs
from controller.learning.environment.values import MOST_TIME_NS
from controller.learning.errors import LearningError
from controller.learning.inputs.values import Jobs
from dataplane.clock import NS_PER_S
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind


class JobSettings(Strict, frozen=True):
    """Conversion of a log into jobs on `processors`.

    The estimate of a job is the run time that its user requested, if the log has it, or the actual run time if longer.
    Otherwise the estimate is the run time times a factor drawn evenly from 1 to `estimate_factor`: the f-model, exact
    at 1. A run time of 0 counts as 1 s. `jobs` are taken from number `first` on; 0 takes all that follow.
    """

    processors: int = 256
    estimate_factor: float = 1.0
    first: int = 0
    jobs: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.processors < 1 or min(self.first, self.jobs) < 0:
            raise LearningError(f"invalid choice: {self.jobs} jobs from {self.first} on, {self.processors} processors")
        if not 1 <= self.estimate_factor <= 1000:
            raise LearningError(
                f"estimate_factor is {self.estimate_factor}, not between 1 and 1000", at="estimate_factor"
            )


def read_jobs(path: Path, settings: JobSettings | None = None, skipped: Counter[str] | None = None) -> Jobs:
    """Return a log's jobs by submission; raise WorkloadError with file and line, LearningError for a job too big.

    Lines that are not read as jobs are counted in `skipped` by reason.
    """
    settings = settings or JobSettings()
    rng = random.Random(f"jobs/{settings.seed}")
    end = settings.first + settings.jobs if settings.jobs else None
    tasks = swf_jobs(path, skipped)[settings.first : end]
    if not tasks:
        raise LearningError(f"{path}: no job from number {settings.first} on")
    # Logs have whole seconds, so that 0 s is a short run.
    runs_ns = [max((task.duration_ns or {})[DeviceKind.CPU], NS_PER_S) for task in tasks]
    estimates_ns = [
        max(
            run_ns, round(run_ns * rng.uniform(1, settings.estimate_factor)) if task.limit_ns is None else task.limit_ns
        )
        for task, run_ns in zip(tasks, runs_ns, strict=True)
    ]
    if tasks[-1].arrival_ns + sum(estimates_ns) > MOST_TIME_NS or max(task.arrival_ns for task in tasks) > MOST_TIME_NS:
        raise LearningError(
            f"{path}: jobs are submitted or run later than {MOST_TIME_NS} ns, one after another:"
            " select a part (swf.first, swf.jobs)"
        )
    if (most := max(task.instances for task in tasks)) > settings.processors:
        raise LearningError(f"{path}: a job needs {most} processors, more than {settings.processors} (swf.processors)")
    submitted_ns = np.array([task.arrival_ns for task in tasks], np.int64)
    return Jobs(
        path.name,
        settings.processors,
        submitted_ns - submitted_ns[0],
        np.array(runs_ns, np.int64),
        np.array(estimates_ns, np.int64),
        np.array([task.instances for task in tasks], np.int64),
    )
