"""The best decisions of a small window: all alternatives are tried, or the most promising of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from controller.learning.environment.model import Model
from controller.learning.errors import LearningError
from controller.learning.inputs.values import Jobs
from controller.learning.values import Observation, Step
from dataplane.clock import NS_PER_S

SavedT = TypeVar("SavedT")

MOST_STEPS: Final = 2_000_000
"""Decisions beyond which a search is given up."""
MOST_TASKS: Final = 64
_NEVER_NS: Final = 1 << 63


class Rewindable(Protocol[SavedT]):
    """An environment that can go back: the pool, and the ordering of jobs."""

    def step(self, action: int) -> Step:
        """Act."""
        ...

    def save(self) -> SavedT:
        """Return the current state."""
        ...

    def restore(self, saved: SavedT) -> Observation | None:
        """Restore a saved state."""
        ...


class Objective(Enum):
    """Minimised quantity: the sum of all response times, or the end of the last task."""

    RESPONSE = "response"
    MAKESPAN = "makespan"


@dataclass(frozen=True, slots=True)
class Best:
    """The best decisions found: their cost in ns, the number of steps needed, and whether it is proven."""

    actions: tuple[int, ...]
    cost_ns: int
    steps: int
    is_exact: bool


def pool_floors_ns(model: Model, first: int = 0, count: int | None = None) -> dict[int, int]:
    """Return lower bounds of the responses of `count` tasks from the `first` on, all of them by default.

    That is their operations on the fastest engine.
    """
    workload = model.workload
    least = np.full(len(workload), np.inf)
    for engine in (engine for node in model.system.nodes for engine in node.engines):
        seconds = workload.float_operations / engine.float_ops_per_s + workload.int_operations / engine.int_ops_per_s
        can = (workload.kinds & engine.kind.bit) != 0
        least = np.where(can, np.minimum(least, seconds * NS_PER_S), least)
    numbers = range(first, len(workload) if count is None else min(first + count, len(workload)))
    return {task: int(least[task]) if np.isfinite(least[task]) else 0 for task in numbers}


def job_floors_ns(jobs: Jobs) -> dict[int, int]:
    """Return a lower bound of each job's response: its run time; raise LearningError for inexact estimates.

    With those, the cost of a decision is unknown at that decision.
    """
    if (jobs.estimate_ns != jobs.run_ns).any():
        raise LearningError(f"{jobs.name}: an oracle needs exact estimates")
    return dict(enumerate(jobs.run_ns.tolist()))


def exact(
    environment: Rewindable[SavedT],
    seen: Observation,
    floors_ns: Mapping[int, int],
    objective: Objective = Objective.RESPONSE,
    most_steps: int = MOST_STEPS,
) -> Best:
    """Return the best decisions from here on, where `seen` is observed, by branch and bound.

    `floors_ns` has the tasks of the window, which come next whatever is decided, and lower bounds of their responses.
    Raise LearningError if that takes too many steps, or a task of them can run nowhere.
    """
    if not 0 < len(floors_ns) <= MOST_TASKS:
        raise LearningError(f"no exact search of {len(floors_ns)} tasks: take a window of 1 to {MOST_TASKS}")
    search = _Search(environment, floors_ns, objective, most_steps)
    search.visit(seen, 0, sum(floors_ns.values()), [])
    if not search.best:
        raise nowhere()
    return Best(tuple(search.best), search.cost_ns, search.steps, is_exact=True)


class _Search(Generic[SavedT]):
    def __init__(
        self, environment: Rewindable[SavedT], floors_ns: Mapping[int, int], objective: Objective, most_steps: int
    ) -> None:
        self.environment, self.floors_ns = environment, floors_ns
        self.objective, self.most_steps = objective, most_steps
        self.steps, self.cost_ns = 0, _NEVER_NS
        self.best: list[int] = []

    def visit(self, seen: Observation, cost_ns: int, floor_ns: int, taken: list[int]) -> None:
        """Try all alternatives here, the cheapest first; `floor_ns` is a lower bound of the rest."""
        saved = self.environment.save()
        is_last = len(taken) + 1 == len(self.floors_ns)
        for cost, action, task in sorted(self._tried(seen, saved, cost_ns)):
            left_ns = floor_ns - self.floors_ns[task] if self.objective is Objective.RESPONSE else 0
            if cost + left_ns >= self.cost_ns:
                continue
            if is_last:
                self.cost_ns, self.best = cost, [*taken, action]
                continue
            # Trying the actions has moved the environment.
            self.environment.restore(saved)
            following = self.environment.step(action).observation
            if following is not None:
                self.visit(following, cost, left_ns, [*taken, action])

    def _tried(self, seen: Observation, saved: SavedT, cost_ns: int) -> list[tuple[int, int, int]]:
        """Return cost so far, action and task of each possible action."""
        steps = []
        for action in np.flatnonzero(seen.candidates).tolist():
            self.steps += 1
            if self.steps > self.most_steps:
                raise LearningError(f"no exact search within {self.most_steps} steps: take a smaller window")
            self.environment.restore(saved)
            step = self.environment.step(action)
            if step.task not in self.floors_ns:
                raise LearningError(f"task {step.task} is not in the window")
            steps.append((added_ns(self.objective, cost_ns, step), action, step.task))
        return steps


def added_ns(objective: Objective, cost_ns: int, step: Step) -> int:
    """Return the cost after a step."""
    if objective is Objective.MAKESPAN:
        return max(cost_ns, step.submitted_ns + step.response_ns)
    return cost_ns + step.response_ns


def beam(
    environment: Rewindable[SavedT],
    seen: Observation,
    tasks: int,
    width: int,
    objective: Objective = Objective.RESPONSE,
    *,
    rest_ns: Callable[[], int] = lambda: 0,
) -> Best:
    """Return the best decisions found from here on if after each one only the `width` cheapest ways are followed.

    For larger windows: there may be better ones. `rest_ns` estimates the cost still to come from the environment's
    state: without it, ways that postpone long tasks look cheap.

    Raise LearningError if on all of these ways a task can run nowhere.
    """
    if width < 1:
        raise LearningError(f"invalid beam of {width} ways")
    ways: list[_Way[SavedT]] = [_Way(0, (), environment.save(), seen)]
    steps = 0
    for _ in range(tasks):
        extensions = [
            _ranked(added_ns(objective, way.cost_ns, _stepped(environment, way, action)), rest_ns(), number, action)
            for number, way in enumerate(ways)
            for action in ([] if way.seen is None else np.flatnonzero(way.seen.candidates).tolist())
        ]
        steps += len(extensions)
        followed = []
        for _, cost, number, action in sorted(extensions)[:width]:
            following = _stepped(environment, ways[number], action).observation
            followed.append(_Way(cost, (*ways[number].actions, action), environment.save(), following))
        ways = followed
    if not ways:
        raise nowhere()
    return Best(ways[0].actions, ways[0].cost_ns, steps, is_exact=False)


def _ranked(cost_ns: int, rest_ns: int, number: int, action: int) -> tuple[int, int, int, int]:
    return cost_ns + rest_ns, cost_ns, number, action


def nowhere() -> LearningError:
    """Return the error for a window in which some task can run nowhere."""
    return LearningError("no way found on which every task can run: an oracle needs a window whose tasks all can")


@dataclass(frozen=True, slots=True)
class _Way(Generic[SavedT]):
    cost_ns: int
    actions: tuple[int, ...]
    saved: SavedT
    seen: Observation | None


def _stepped(environment: Rewindable[SavedT], way: _Way[SavedT], action: int) -> Step:
    environment.restore(way.saved)
    return environment.step(action)


def replay(
    environment: Rewindable[SavedT], seen: Observation, tasks: int, choose: Callable[[Observation], int]
) -> tuple[int, int]:
    """Return the cost of a rule for this many tasks from here on: the sum of responses, and the last end, in ns."""
    responses_ns = end_ns = 0
    following: Observation | None = seen
    for _ in range(tasks):
        if following is None:
            raise nowhere()
        step = environment.step(choose(following))
        responses_ns = added_ns(Objective.RESPONSE, responses_ns, step)
        end_ns = added_ns(Objective.MAKESPAN, end_ns, step)
        following = step.observation
    return responses_ns, end_ns
