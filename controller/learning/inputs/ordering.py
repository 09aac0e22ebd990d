"""The environment of batch logs: choose the next waiting job, on processors of one kind, in virtual time."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import Final

import msgspec
import numpy as np

from controller.learning.errors import LearningError
from controller.learning.inputs.predicted_waits import predicted_waits_ns
from controller.learning.inputs.values import Jobs, Longs
from controller.learning.values import JOB_LOADS, Floats, Observation, Step, one_of
from dataplane.clock import NS_PER_S
from dataplane.config import Strict

NOBODY: Final = -1
_NEVER_NS: Final = 1 << 62
_LOG_S: Final = 24
"""A logarithmic feature of a time is log2(1 + seconds) over this, 194 days at most."""


class Gain(StrEnum):
    """Reward function."""

    SLOWDOWN = "slowdown"
    """lambda U + 1 / L, the specification's; L is the predicted slowdown: response over run time, of 10 s at least."""
    RESPONSE = "response"
    """A departure: minus the hours that jobs wait or run until the next decision."""
    FORETOLD = "foretold"
    """A departure: minus the hours by which all waits together exceed the prediction from before the decision.

    That is the hours waited until the next decision, plus the waits predicted there, minus those predicted before:
    `predicted_waits`. The best decisions stay the best, without a discount (potentials: Ng, Harada and Russell, 1999).
    """


class OrderingSettings(Strict, frozen=True):
    """Ordering of jobs: the oldest `window` waiting jobs can be chosen.

    With `backfilling`, jobs that fit may overtake a chosen job that waits for processors, as long as the estimates say
    that it is not delayed: EASY's rule. With `early` a job is chosen as soon as one waits, and processors are reserved
    for it if it does not fit; without, decisions fall only when some job of the window fits. With `episode` a run is
    not the whole log but so many consecutive jobs, drawn by its seed; with `at_once` all are submitted at its time 0.
    `waits_and_sizes` switches the two features in the network's positions on or off, `job_features` six more in the
    load's positions, and with `foretold`, which needs these, a seventh: the change in the sum of all waits. Without
    `empty_places` there are no more actions than waiting jobs. `utilisation_weight` is lambda; `gain_hours` is the
    number of hours of the other gains that count as 1. With `foresight`, predictions include the jobs yet to come in
    the episode, so that only the choice changes them: a reward to learn from that the observation does not reveal.
    """

    window: int = 128
    backfilling: bool = True
    early: bool = True
    episode: int = 0
    at_once: bool = False
    waits_and_sizes: bool = True
    job_features: bool = False
    foretold: bool = False
    empty_places: bool = True
    gain: Gain = Gain.SLOWDOWN
    utilisation_weight: float = 1.0
    gain_hours: float = 1.0
    foresight: bool = False

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "gain", one_of(Gain, self.gain, "gain"))
        if not 1 <= self.window <= 4096:
            raise LearningError(f"window is {self.window}, not between 1 and 4096", at="window")
        if self.foretold and not self.job_features:
            raise LearningError("foretold needs job_features", at="foretold")
        if self.episode < 0:
            raise LearningError(f"invalid episode of {self.episode} jobs", at="episode")
        if not 0 < self.gain_hours < float("inf"):
            raise LearningError(f"gain_hours cannot be {self.gain_hours}", at="gain_hours")
        if not 0 <= self.utilisation_weight < float("inf"):
            raise LearningError(f"utilisation_weight cannot be {self.utilisation_weight}", at="utilisation_weight")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results over all jobs: means, and processor time used out of the total until the end."""

    mean_wait_ns: float
    mean_response_ns: float
    utilisation: float


class Ordering:
    """Decisions on the next job; an action is a position among the oldest waiting jobs.

    A chosen job starts at once if enough processors are free. If not, they are reserved for it, and it starts as soon
    as they are free; until then only jobs that can be backfilled are candidates. Each job is decided on once.
    """

    def __init__(self, jobs: Jobs, settings: OrderingSettings | None = None) -> None:
        self.log = jobs
        self.settings = settings or OrderingSettings()
        if self.settings.episode > len(jobs):
            raise LearningError(f"{jobs.name}: an episode of {self.settings.episode} jobs, but there are {len(jobs)}")
        self._take(self._drawn(0))
        self._begin()

    @property
    def actions(self) -> int:
        """Size of the window."""
        return self.settings.window

    @property
    def view(self) -> Ordering:
        """State for heuristics: the environment itself, without real run times."""
        return self

    @property
    def window(self) -> Sequence[int]:
        """Observable jobs by number, the oldest first: action 0 is the first of them."""
        return self._waiting[: self.settings.window]

    @property
    def places(self) -> Sequence[int]:
        """Actions possible now."""
        return self._places

    def start(self, seed: int) -> Observation:
        """Restart, with jobs drawn by the seed if an episode is not the whole log."""
        self._take(self._drawn(seed))
        self._begin()
        self._advance()
        self._predict()
        return self._observed()

    def step(self, action: int) -> Step:
        """Start the job at a position, or reserve for it; raise LearningError for a position that cannot be chosen."""
        if action not in self._places:
            raise LearningError(
                f"place {action} of the window is not one of the {len(self._places)} that can be chosen"
            )
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
        self._job_ns = self._wait_ns = 0
        foretold_ns = self._foretold_ns
        self._advance()
        self._predict()
        self._wait_ns += self._foretold_ns - foretold_ns
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
        """Return the current state, to go back to."""
        return self._copy_to(copy(self))

    def restore(self, saved: Ordering) -> Observation | None:
        """Restore a saved state, and return its observation; None at the end."""
        for name, value in vars(saved).items():
            setattr(self, name, value)
        self._copy_to(self)
        return self._observed() if self._places else None

    def outcome(self) -> Outcome:
        """Return the jobs' results; raise LearningError before all have begun."""
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

    def rest_ns(self) -> int:
        """Return the predicted sum of responses of jobs that are there and not yet chosen (`predicted_waits`)."""
        reserved_ns = 0 if self.reserved == NOBODY else self._shadow()[0] - self.now_ns
        known_ns = sum(self.now_ns - self._submitted[job] + self._estimate[job] for job in self._waiting)
        return self._foretold(foresight=False) - reserved_ns + known_ns

    def lengthened_ns(self) -> Sequence[int]:
        """Return for each of `places` how much longer all waits together become if its job is chosen now.

        By estimates, compared with the shortest that fits, if that always goes first from then on and no more jobs
        come.
        """
        usual_ns = self._foretold(foresight=False)
        chosen_ns = (self._foretold(foresight=False, chosen=self._waiting[position]) for position in self._places)
        return [wait_ns - usual_ns for wait_ns in chosen_ns]

    def processors_of(self, job: int) -> int:
        """Return how many processors a job needs."""
        return self._processors[job]

    def estimate_of(self, job: int) -> int:
        """Return a job's estimated run time, in ns."""
        return self._estimate[job]

    def submitted_of(self, job: int) -> int:
        """Return when a job was submitted, in ns from the beginning of the run."""
        return self._submitted[job]

    def waited_ns(self, job: int) -> int:
        """Return how long a job has waited until now."""
        return self.now_ns - self._submitted[job]

    def _copy_to(self, other: Ordering) -> Ordering:
        for name in ("_waiting", "_ends", "_foreseen", "started_ns", "_places"):
            setattr(other, name, getattr(self, name).copy())
        return other

    def _drawn(self, seed: int) -> Jobs:
        count = self.settings.episode or len(self.log)
        if count == len(self.log) and not self.settings.at_once:
            return self.log
        first = int(np.random.default_rng(seed).integers(len(self.log) - count + 1))
        return self.log.window(first, count, at_once=self.settings.at_once)

    def _take(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self._submitted: list[int] = jobs.submitted_ns.tolist()
        self._run: list[int] = jobs.run_ns.tolist()
        self._estimate: list[int] = jobs.estimate_ns.tolist()
        self._processors: list[int] = jobs.processors.tolist()
        self._logs: Floats = _logarithmic(jobs.estimate_ns)

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
        self._job_ns = self._wait_ns = self._foretold_ns = 0
        self.started_ns = [-1] * len(self.jobs)

    def _advance(self) -> None:
        """Advance until there is something to choose, or everything has ended."""
        while True:
            if self.reserved != NOBODY and self._processors[self.reserved] <= self.free:
                job, self.reserved = self.reserved, NOBODY
                self._run_now(job)
            self._places = self._possible()
            if self._places or not self._pass_time():
                return

    def _possible(self) -> list[int]:
        if self.reserved == NOBODY:
            places = list(range(min(len(self._waiting), self.settings.window)))
            has_room = self.settings.early or any(self._processors[job] <= self.free for job in self.window)
            return places if has_room else []
        if not self.settings.backfilling or not self.free:
            return []
        self.shadow_ns, self.spare = self._shadow()
        return [position for position, job in enumerate(self.window) if self._can_go_before(job)]

    def _can_go_before(self, job: int) -> bool:
        needed = self._processors[job]
        if needed > self.free:
            return False
        return needed <= self.spare or self.now_ns + self._estimate[job] <= self.shadow_ns

    def _shadow(self) -> tuple[int, int]:
        """Return the latest start of the reserved job, and how many processors are left then."""
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
        """Go on to the next submission or end, and process all of that moment; return whether there was one."""
        arrival_ns = self._submitted[self._next] if self._next < len(self._submitted) else _NEVER_NS
        end_ns = self._ends[0][0] if self._ends else _NEVER_NS
        following_ns = min(arrival_ns, end_ns)
        if following_ns == _NEVER_NS:
            return False
        waiting = len(self._waiting) + (self.reserved != NOBODY)
        self._job_ns += (waiting + len(self._ends)) * (following_ns - self.now_ns)
        self._wait_ns += waiting * (following_ns - self.now_ns)
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

    def _predict(self) -> None:
        """Predict the remaining waits of jobs, if that is rewarded."""
        if self.settings.gain is Gain.FORETOLD:
            self._foretold_ns = self._foretold(foresight=self.settings.foresight)

    def _foretold(self, *, foresight: bool, chosen: int = NOBODY) -> int:
        estimate, processors = self._estimate, self._processors
        free, reserving = self.free, self.reserved
        running = [(end_ns - self.now_ns, processors[job]) for end_ns, job in self._foreseen]
        waiting = [(estimate[job], processors[job]) for job in self._waiting if job != chosen]
        if chosen != NOBODY and processors[chosen] <= free:
            free -= processors[chosen]
            running.append((estimate[chosen], processors[chosen]))
        elif chosen != NOBODY:
            reserving = chosen
        reserved = None if reserving == NOBODY else (estimate[reserving], processors[reserving])
        coming = [
            (self._submitted[job] - self.now_ns, (estimate[job], processors[job]))
            for job in (range(self._next, len(self._submitted)) if foresight else ())
        ]
        return predicted_waits_ns(free, running, waiting, reserved, coming)

    def _reward(self, used: float, response_ns: int, run_ns: int) -> float:
        if self.settings.gain is not Gain.SLOWDOWN:
            cost_ns = self._job_ns if self.settings.gain is Gain.RESPONSE else self._wait_ns
            return -cost_ns / (self.settings.gain_hours * 3600 * NS_PER_S)
        # Bounded slowdown: runs of less than 10 s count as 10 s.
        slowdown = max(1.0, response_ns / max(run_ns, 10 * NS_PER_S))
        return self.settings.utilisation_weight * used + 1 / slowdown

    def _observed(self) -> Observation:
        """Return the six features, and more if they are on; empty places are all zeros."""
        total, settings, window = self.jobs.total, self.settings, self.window
        numbers = np.array(window, np.int64)
        sizes = self.jobs.processors[numbers]
        count = settings.window if settings.empty_places else len(window)
        vectors = np.zeros((4 + JOB_LOADS + settings.foretold, count), np.float32)
        vectors[0, : len(window)] = (1 + (self.free - sizes) / total) / 2
        vectors[1, : len(window)] = 1 - self._logs[numbers]
        vectors[2, : len(window)] = _logarithmic(self.now_ns - self.jobs.submitted_ns[numbers])
        vectors[3, : len(window)] = sizes / total
        if settings.job_features:
            vectors[4 : 4 + JOB_LOADS, : len(window)] = self._job_features(sizes)
        if settings.foretold:
            vectors[-1, : len(window)] = 0.5
            vectors[-1, self._places] = self._shortened()
        candidates = np.zeros(count, np.bool_)
        candidates[self._places] = True
        return Observation.of(
            utilisation=1 - self.free / total,
            operations=float(_logarithmic(float(sizes.astype(np.float64) @ self.jobs.estimate_ns[numbers]) / total)),
            size=0.0 if self.reserved == NOBODY else self._processors[self.reserved] / total,
            is_write=float(self.reserved != NOBODY),
            free=vectors[0],
            similarity=vectors[1],
            candidates=candidates,
            delay=vectors[2] if settings.waits_and_sizes else None,
            bandwidth=vectors[3] if settings.waits_and_sizes else None,
            load=list(vectors[4:]) if settings.job_features else (),
        )

    def _job_features(self, sizes: Longs) -> Floats:
        """Return whether each job of these sizes fits, when it would, and its processors on a logarithmic scale.

        Then, the same for all: the occupied part of the window, the latest start of the reserved job, and how much is
        left next to it.
        """
        total, is_reserved = self.jobs.total, self.reserved != NOBODY
        ends_ns = np.array([0, *(end_ns - self.now_ns for end_ns, _ in self._foreseen)], np.int64)
        freed = self.free + np.cumsum([0, *(self._processors[job] for _, job in self._foreseen)])
        features = np.empty((JOB_LOADS, len(sizes)), np.float32)
        features[0] = sizes <= self.free
        features[1] = _logarithmic(ends_ns[np.searchsorted(freed, sizes)])
        features[2] = np.log2(sizes) / max(np.log2(total), 1)
        features[3] = len(sizes) / self.settings.window
        features[4] = _logarithmic(self.shadow_ns - self.now_ns) if is_reserved else 0
        features[5] = self.spare / total if is_reserved else 0
        return features

    def _shortened(self) -> Floats:
        """Return how much shorter each job that can be chosen makes all waits, from 0 to 1: 0.5 is no difference."""
        units = -np.array(self.lengthened_ns()) / (self.settings.gain_hours * 3600 * NS_PER_S)
        features: Floats = (0.5 + 0.5 * units / (1 + np.abs(units))).astype(np.float32)
        return features


def _logarithmic(times_ns: Longs | float) -> Floats:
    features: Floats = np.minimum(np.log2(1 + np.asarray(times_ns, np.float64) / NS_PER_S) / _LOG_S, 1).astype(
        np.float32
    )
    return features
