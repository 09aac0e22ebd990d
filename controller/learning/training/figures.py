"""Results of the decisions of one run of an input."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from controller.learning.inputs.ordering import Ordering
from controller.learning.inputs.values import Graphs, Longs
from controller.learning.values import Step

_LEAST_RUN_NS: Final = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Figures:
    """Means of a run; `utilisation` is held time of slots or processors over all of it.

    Wait and response count from submission: of requests, of jobs, or of whole graphs, until the first task of a graph
    starts and until the last one ends. Those of tasks count from when each is ready; without dependencies they are the
    same. `p99_latency_ns` is of data being served after a task is ready; of batch jobs, of their start after
    submission. `mean_slowdown` is of batch jobs only, 0 elsewhere: response over run time, of 10 s at least, and never
    below 1 (the bounded slowdown).
    """

    decisions: int
    mean_wait_ns: float
    mean_response_ns: float
    utilisation: float
    p99_latency_ns: float
    mean_reward: float
    mean_task_wait_ns: float
    mean_task_response_ns: float
    mean_slowdown: float = 0.0


@dataclass(slots=True)
class Tally:
    """Steps of a run, as columns."""

    rewards: list[float] = field(default_factory=list)
    times_ns: list[tuple[int, int, int, int, int]] = field(default_factory=list)

    def add(self, step: Step) -> None:
        """Count a step."""
        self.rewards.append(step.reward)
        self.times_ns.append((step.task, step.submitted_ns, step.wait_ns, step.latency_ns, step.response_ns))

    def of_pool(self, slots: int, graphs: Graphs) -> Figures:
        """Return the figures of a run on a pool whose engines run `slots` tasks at a time.

        Of a graph, only decided tasks count.
        """
        times: Longs = np.array(self.times_ns, np.int64)
        tasks, ready, waits, latencies, responses = times.T
        span_ns = int((ready + responses).max() - ready.min())
        held_ns = int((responses - waits).sum())
        numbers, of_step = np.unique(graphs.of_task[tasks], return_inverse=True)
        starts, ends = np.full(len(numbers), np.iinfo(np.int64).max), np.zeros(len(numbers), np.int64)
        np.minimum.at(starts, of_step, ready + waits)
        np.maximum.at(ends, of_step, ready + responses)
        submitted = graphs.submitted_ns[numbers]
        return Figures(
            len(self.rewards),
            float((starts - submitted).mean()),
            float((ends - submitted).mean()),
            held_ns / max(slots * span_ns, 1),
            float(np.percentile(latencies, 99)),
            float(np.mean(self.rewards)),
            float(waits.mean()),
            float(responses.mean()),
        )

    def of_jobs(self, ordering: Ordering) -> Figures:
        """Return the figures of a run that ordered jobs, by their actual starts."""
        started: Longs = np.array(ordering.started_ns, np.int64)
        waits, runs = started - ordering.jobs.submitted_ns, ordering.jobs.run_ns
        wait_ns, response_ns = float(waits.mean()), float((waits + runs).mean())
        return Figures(
            len(self.rewards),
            wait_ns,
            response_ns,
            ordering.outcome().utilisation,
            float(np.percentile(waits, 99)),
            float(np.mean(self.rewards)),
            wait_ns,
            response_ns,
            float(np.maximum((waits + runs) / np.maximum(runs, _LEAST_RUN_NS), 1).mean()),
        )
