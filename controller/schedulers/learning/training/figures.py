"""What came of the decisions of one run of an input."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from controller.schedulers.learning.inputs.ordering import Ordering
from controller.schedulers.learning.inputs.values import Longs
from controller.schedulers.learning.values import Step


@dataclass(frozen=True, slots=True)
class Figures:
    """Means over all decisions of a run; `utilisation` is held time of slots or processors over all that there was.

    `p99_latency_ns` is of data being served after a task is ready; of batch jobs, of their start after submission.
    """

    decisions: int
    mean_wait_ns: float
    mean_response_ns: float
    utilisation: float
    p99_latency_ns: float
    mean_reward: float


@dataclass(slots=True)
class Tally:
    """Steps of a run, as they come, in columns."""

    rewards: list[float] = field(default_factory=list)
    times_ns: list[tuple[int, int, int, int]] = field(default_factory=list)

    def add(self, step: Step) -> None:
        """Count a step."""
        self.rewards.append(step.reward)
        self.times_ns.append((step.submitted_ns, step.wait_ns, step.latency_ns, step.response_ns))

    def of_pool(self, slots: int) -> Figures:
        """Return the figures of a run on a pool whose engines run `slots` tasks at a time."""
        times: Longs = np.array(self.times_ns, np.int64)
        submitted, waits, latencies, responses = times.T
        span_ns = int((submitted + responses).max() - submitted.min())
        held_ns = int((responses - waits).sum())
        return self._figures(waits, responses, held_ns / max(slots * span_ns, 1), latencies)

    def of_jobs(self, ordering: Ordering) -> Figures:
        """Return the figures of a run that ordered jobs, by when they really started."""
        started: Longs = np.array(ordering.started_ns, np.int64)
        waits = started - ordering.jobs.submitted_ns
        return self._figures(waits, waits + ordering.jobs.run_ns, ordering.outcome().utilisation, waits)

    def _figures(self, waits: Longs, responses: Longs, utilisation: float, latencies: Longs) -> Figures:
        return Figures(
            len(self.rewards),
            float(waits.mean()),
            float(responses.mean()),
            utilisation,
            float(np.percentile(latencies, 99)),
            float(np.mean(self.rewards)),
        )
