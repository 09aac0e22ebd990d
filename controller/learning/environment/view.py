"""Readable state of the environment, and its refusals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from controller.learning.environment.model import LAST_NS, Model
from controller.learning.errors import LearningError


@dataclass(frozen=True, slots=True)
class Forecast:
    """Predicted start, data arrival and end of a task."""

    start_ns: int
    served_ns: int
    end_ns: int


class Refusal(IntEnum):
    """Reason why a task is never decided on: that of the node that comes nearest to running it."""

    NO_ENGINE = 1
    """No present node has an engine that can run it."""
    NO_DATA = 2
    """Nobody has its input, or no path leads from there."""
    NO_ROOM = 3
    """The task's data does not fit into fast memory."""
    AFTER_REFUSED = 4
    """A task that it depends on is refused."""


class NodesView(Protocol):
    """Readable state of nodes for rules that predict nothing: a simulated pool has it, and a real one."""

    def queued(self, action: int) -> int:
        """Return how many tasks are assigned to a node and have not ended."""
        ...

    def slots(self, action: int) -> int:
        """Return how many tasks a node runs at a time."""
        ...

    def fast_bytes(self, action: int) -> int:
        """Return the capacity of a node's fast memory."""
        ...

    @property
    def needed_bytes(self) -> int:
        """Size of all data of the task to decide on."""
        ...


class PoolView(NodesView, Protocol):
    """Readable state for heuristics and oracles; always current, and predictions change nothing."""

    @property
    def model(self) -> Model:
        """System, workload and settings."""
        ...

    @property
    def task(self) -> int:
        """The task to decide on, -1 at the end."""
        ...

    @property
    def now_ns(self) -> int:
        """Current time, at which the task is ready."""
        ...

    @property
    def candidates(self) -> tuple[bool, ...]:
        """Nodes that can run the task."""
        ...

    def predict(self, action: int) -> Forecast:
        """Return how the task would run on a candidate; it will run exactly so."""
        ...

    def local_bytes(self, action: int) -> int:
        """Return how much of the task's data is local to a node."""
        ...


def wrong_action(action: int, task: int) -> LearningError:
    """Return the error for an impossible action."""
    if task < 0:
        return LearningError("all tasks are decided on: start again")
    return LearningError(f"node {action} is not a candidate for task {task}")


def no_time(task: int) -> LearningError:
    """Return the error for a task that would end after the time limit."""
    return LearningError(f"task {task} would end after the limit of {LAST_NS} ns")


def nothing_runs(refusals: Mapping[int, Refusal]) -> LearningError:
    """Return the error for a workload that cannot run at all."""
    counts = Counter(why.name.lower().replace("_", " ") for why in refusals.values())
    reasons = ", ".join(f"{reason} for {count}" for reason, count in counts.most_common())
    return LearningError(f"no task can run on any node: {reasons}")
