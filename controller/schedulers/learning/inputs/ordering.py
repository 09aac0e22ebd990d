"""The environment of batch logs: which of the jobs that wait is next, on processors of one kind, in virtual time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final

import numpy as np

from controller.schedulers.learning.errors import LearningError
from controller.schedulers.learning.inputs.values import Jobs, Longs
from controller.schedulers.learning.values import Floats, Observation, Step
from dataplane.config import Strict

NOBODY: Final = -1
_NEVER_NS: Final = 1 << 62
_NS_PER_S: Final = 1_000_000_000
_LOG_S: Final = 24
"""A logarithmic feature of a time is log2(1 + seconds) over this, 194 days at most."""


class Gain(StrEnum):
    """What is rewarded."""

    SLOWDOWN = "slowdown"
    """lambda U + 1 / L, the specification's, with L the foretold slowdown: response over run time, of 10 s at least."""
    RESPONSE = "response"
    """A departure: minus the hours that jobs, waiting or running, are there until the next decision."""


class OrderingSettings(Strict, frozen=True):
    """How jobs are ordered: `window` of those waiting, the oldest, can be chosen.

    With `backfilling`, jobs that fit may go before one that was chosen and waits for processors, as long as that one
    is not delayed by what estimates say: EASY's rule. `waits_and_sizes` switches the two features that stand in the
    places of the network's on or off. `utilisation_weight` is lambda.
    """

    window: int = 128
    backfilling: bool = True
    waits_and_sizes: bool = True
    gain: Gain = Gain.SLOWDOWN
    utilisation_weight: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.window <= 4096:
            raise LearningError(f"window is {self.window}, not from 1 to 4096", at="window")
        if not 0 <= self.utilisation_weight < float("inf"):
            raise LearningError(f"utilisation_weight cannot be {self.utilisation_weight}", at="utilisation_weight")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of all jobs: means, and used processor time over all that there was until the end."""

    mean_wait_ns: float
    mean_response_ns: float
    utilisation: float


class Ordering:
    """Decisions on which job is next; an action is a place among the oldest that wait.

    A job that is chosen starts at once where enough processors are free. Where not, it is reserved for, and starts as
    soon as they are; until then only jobs that can be backfilled are candidates. Each job is decided on once.
    """

    def __init__(self, jobs: Jobs, settings: OrderingSettings | None = None) -> None:
        self.jobs = jobs
        self.settings = settings or OrderingSettings()
        self._submitted: list[int] = jobs.submitted_ns.tolist()
        self._run: list[int] = jobs.run_ns.tolist()
        self._estimate: list[int] = jobs.estimate_ns.tolist()
        self._processors: list[int] = jobs.processors.tolist()
        self._logs: Floats = _logarithmic(jobs.estimate_ns)
        self._begin()

    @property
    def actions(self) -> int:
        """How many places the window has."""
        return self.settings.window

    @property
    def view(self) -> Ordering:
        """What heuristics may read: the environment itself, but not how long jobs really run."""
        return self

    @property
    def window(self) -> Sequence[int]:
        """The jobs that can be looked at, by their numbers, the oldest first: action 0 is the first of them."""
        return self._waiting[: self.settings.window]

    @property
    def places(self) -> Sequence[int]:
        """Which actions are possible now."""
        return self._places

    def start(self, seed: int) -> Observation:  # noqa: ARG002 - nothing is drawn here
        """Begin anew; nothing depends on the seed, as a log is what it is."""
        self._begin()
        self._advance()
        return self._observed()

    def step(self, action: int) -> Step:
        """Start or reserve for the job at a place; raise LearningError for a place that cannot be chosen."""
        if action not in self._places:
            raise LearningError(f"place {action} of the window is none of {len(self._places)} that can be chosen")
        job = self._waiting.pop(action)
        before_ns, submitted_ns = self.now_ns, self._submitted[job]
        if self._processors[job] <= self.free:
            start_ns = self.now_ns
            self._run_now(job)
        else:
            self.reserved = job
            self.shadow_ns, self.spare = self._shadow()
            start_ns = self.shadow_ns
        response_ns = start_ns - submitted_ns + self._run[job]
        used = 1 - self.free / self.jobs.total
        self._job_ns = 0
        self._advance()
        return Step(
            observation=self._observed() if self._places else None,
            reward=self._reward(used, response_ns, self._run[job]),
            task=job,
            wait_ns=start_ns - submitted_ns,
            latency_ns=start_ns - submitted_ns,
            response_ns=response_ns,
            elapsed_ns=self.now_ns - before_ns,
            submitted_ns=submitted_ns,
        )

    def save(self) -> Ordering:
        """Return this moment, to go back to."""
        return self._copy_to(copy(self))

    def restore(self, saved: Ordering) -> Observation | None:
        """Go back to a moment that was saved, and return what is seen there; None at the end."""
        for name, value in vars(saved).items():
            setattr(self, name, value)
        self._copy_to(self)
        return self._observed() if self._places else None

    def outcome(self) -> Outcome:
        """Return what became of the jobs; raise LearningError before all have begun."""
        started: Longs = np.array(self.started_ns, np.int64)
        if (started < 0).any():
            raise LearningError(f"{int((started < 0).sum())} jobs have not begun")
        ended = started + self.jobs.run_ns
        used = float((self.jobs.run_ns * self.jobs.processors.astype(np.float64)).sum())
        waits = started - self.jobs.submitted_ns
        return Outcome(
            float(waits.mean()),
            float((ended - self.jobs.submitted_ns).mean()),
            used / (self.jobs.total * float(ended.max() - self.jobs.submitted_ns[0])),
        )

    def processors_of(self, job: int) -> int:
        """Return how many processors a job needs."""
        return self._processors[job]

    def estimate_of(self, job: int) -> int:
        """Return how long a job is thought to run, in ns."""
        return self._estimate[job]

    def _copy_to(self, other: Ordering) -> Ordering:
        for name in ("_waiting", "_ends", "_foreseen", "started_ns", "_places"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def _begin(self) -> None:
        self.now_ns = 0
        self.free = self.jobs.total
        self.reserved = NOBODY
        self.shadow_ns, self.spare = _NEVER_NS, 0
        self._next = 0
        self._waiting: list[int] = []
        self._ends: list[tuple[int, int]] = []
        self._foreseen: list[tuple[int, int]] = []
        self._places: list[int] = []
        self._job_ns = 0
        self.started_ns = [-1] * len(self.jobs)

    def _advance(self) -> None:
        """Let time go on until there is something to choose, or everything has ended."""
        while True:
            if self.reserved != NOBODY and self._processors[self.reserved] <= self.free:
                job, self.reserved = self.reserved, NOBODY
                self._run_now(job)
            self._places = self._possible()
            if self._places or not self._pass_time():
                return

    def _possible(self) -> list[int]:
        if self.reserved == NOBODY:
            return list(range(min(len(self._waiting), self.settings.window)))
        if not self.settings.backfilling or not self.free:
            return []
        self.shadow_ns, self.spare = self._shadow()
        return [place for place, job in enumerate(self.window) if self._can_go_before(job)]

    def _can_go_before(self, job: int) -> bool:
        needed = self._processors[job]
        if needed > self.free:
            return False
        return needed <= self.spare or self.now_ns + self._estimate[job] <= self.shadow_ns

    def _shadow(self) -> tuple[int, int]:
        """Return when the reserved job starts at the latest, and how many processors are then left."""
        free, needed = self.free, self._processors[self.reserved]
        for end_ns, job in self._foreseen:
            free += self._processors[job]
            if free >= needed:
                return end_ns, free - needed
        raise AssertionError("running jobs hold what is not free")

    def _run_now(self, job: int) -> None:
        self.free -= self._processors[job]
        self.started_ns[job] = self.now_ns
        heappush(self._ends, (self.now_ns + self._run[job], job))
        insort(self._foreseen, (self.now_ns + self._estimate[job], job))

    def _pass_time(self) -> bool:
        """Go on to the next submission or end and do all of that moment; return whether there was one."""
        arrival_ns = self._submitted[self._next] if self._next < len(self._submitted) else _NEVER_NS
        end_ns = self._ends[0][0] if self._ends else _NEVER_NS
        following_ns = min(arrival_ns, end_ns)
        if following_ns == _NEVER_NS:
            return False
        there = len(self._waiting) + len(self._ends) + (self.reserved != NOBODY)
        self._job_ns += there * (following_ns - self.now_ns)
        self.now_ns = following_ns
        while self._ends and self._ends[0][0] == following_ns:
            _, job = heappop(self._ends)
            self.free += self._processors[job]
            foreseen = (self.started_ns[job] + self._estimate[job], job)
            del self._foreseen[bisect_left(self._foreseen, foreseen)]
        while self._next < len(self._submitted) and self._submitted[self._next] == following_ns:
            self._waiting.append(self._next)
            self._next += 1
        return True

    def _reward(self, used: float, response_ns: int, run_ns: int) -> float:
        if self.settings.gain is Gain.RESPONSE:
            return -self._job_ns / (3600 * _NS_PER_S)
        slowdown = max(1.0, response_ns / max(run_ns, 10 * _NS_PER_S))
        return self.settings.utilisation_weight * used + 1 / slowdown

    def _observed(self) -> Observation:
        """Return the six features, and two more where waits and sizes are on; empty places are all zeros."""
        total, count = self.jobs.total, self.settings.window
        window = self.window
        numbers = np.array(window, np.int64)
        sizes = self.jobs.processors[numbers]
        vectors = np.zeros((4, count), np.float32)
        vectors[0, : len(window)] = (1 + (self.free - sizes) / total) / 2
        vectors[1, : len(window)] = 1 - self._logs[numbers]
        vectors[2, : len(window)] = _logarithmic(self.now_ns - self.jobs.submitted_ns[numbers])
        vectors[3, : len(window)] = sizes / total
        candidates = np.zeros(count, np.bool_)
        candidates[self._places] = True
        is_on = self.settings.waits_and_sizes
        return Observation.of(
            utilisation=1 - self.free / total,
            operations=float(_logarithmic(float(sizes.astype(np.float64) @ self.jobs.estimate_ns[numbers]) / total)),
            size=0.0 if self.reserved == NOBODY else self._processors[self.reserved] / total,
            is_write=float(self.reserved != NOBODY),
            free=vectors[0],
            similarity=vectors[1],
            candidates=candidates,
            delay=vectors[2] if is_on else None,
            bandwidth=vectors[3] if is_on else None,
        )


def _logarithmic(times_ns: Longs | float) -> Floats:
    found: Floats = np.minimum(np.log2(1 + np.asarray(times_ns, np.float64) / _NS_PER_S) / _LOG_S, 1).astype(np.float32)
    return found
