"""Shared types of deciders, environments and training: observations at decisions, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from controller.learning.errors import LearningError

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Actions = npt.NDArray[np.intp]

COMMON: Final = 4
"""Features of an observation that are of the system and the task, not of an action; they come first."""
LOADS: Final = 7
"""Figures of a node's load: queued, wait, compute, arriving, leaving, fetching, evicting; `foretold` adds one."""
JOB_LOADS: Final = 6
"""Figures of a waiting job that stand in their place: see `OrderingSettings.job_features`; `foretold` adds one."""


@dataclass(frozen=True, slots=True, eq=False)
class Observation:
    """Observation at one decision among n actions: nodes, or positions in a window of waiting jobs.

    `row` holds utilisation, operations, size and is_write, then n values each of free and similarity; with network
    features also of delay and bandwidth; and with load features also of these seven or eight, or six or seven of a job:
    4 + 2 n, 4 n, 8 n to 12 n numbers, all between 0 and 1. `candidates` are the actions that are possible now. Both are
    read-only.
    """

    row: Floats
    candidates: Bools

    @classmethod
    def of(
        cls,
        *,
        utilisation: float,
        operations: float,
        size: float,
        is_write: float,
        free: npt.ArrayLike,
        similarity: npt.ArrayLike,
        candidates: npt.ArrayLike,
        delay: npt.ArrayLike | None = None,
        bandwidth: npt.ArrayLike | None = None,
        load: Sequence[npt.ArrayLike] = (),
    ) -> Self:
        """Return an observation of its features; raise LearningError if their lengths differ.

        `delay` and `bandwidth` are None together: features of the network are off. `load` has all its vectors or none.
        """
        vectors = [free, similarity] if delay is None or bandwidth is None else [free, similarity, delay, bandwidth]
        columns = [np.asarray(vector, np.float32) for vector in (*vectors, *load)]
        possible = np.asarray(candidates, np.bool_)
        is_whole = (delay is None) == (bandwidth is None) and len(load) in {0, JOB_LOADS, LOADS, LOADS + 1}
        if not is_whole or any(column.shape != possible.shape for column in columns):
            shapes = [column.shape for column in columns]
            raise LearningError(
                f"features of shapes {shapes} and candidates of {possible.shape} are not an observation"
            )
        common = np.array([utilisation, operations, size, is_write], np.float32)
        return cls(np.concatenate([common, *columns]), possible)

    @property
    def actions(self) -> int:
        """Number of actions, possible or not."""
        return len(self.candidates)

    @property
    def figures(self) -> int:
        """Number of features per action."""
        return (len(self.row) - COMMON) // max(len(self.candidates), 1)

    @property
    def has_network(self) -> bool:
        """True if network features are on."""
        return self.figures in {4, 4 + JOB_LOADS, 4 + LOADS, 4 + LOADS + 1}

    @property
    def has_load(self) -> bool:
        """True if load features are on."""
        return self.figures >= 2 + JOB_LOADS

    @property
    def utilisation(self) -> float:
        """Feature 1: resource utilisation of the whole system."""
        return float(self.row[0])

    @property
    def operations(self) -> float:
        """Feature 2: operations of the task, on a logarithmic scale; ints counted by the chips' ratio of peak rates."""
        return float(self.row[1])

    @property
    def size(self) -> float:
        """Feature 3: size of the request in pages, on a logarithmic scale."""
        return float(self.row[2])

    @property
    def is_write(self) -> float:
        """Feature 4: the written part of the request's bytes: 0 for a read, 1 for a write."""
        return float(self.row[3])

    @property
    def free(self) -> Floats:
        """Feature 5: the free part of its fast local memory, for every action."""
        return self._vector(0)

    @property
    def similarity(self) -> Floats:
        """Feature 6: the local part of the task's data, for every action."""
        return self._vector(1)

    @property
    def delay(self) -> Floats:
        """The network's delay to the task's data, for every action; zeros if features of the network are off."""
        return self._vector(2) if self.has_network else np.zeros(self.actions, np.float32)

    @property
    def bandwidth(self) -> Floats:
        """The network's bandwidth to the task's data, for every action; zeros if those features are off."""
        return self._vector(3) if self.has_network else np.zeros(self.actions, np.float32)

    @property
    def load(self) -> Floats:
        """Load features per action, [7 or 8, n]: see `PoolSettings`; zeros if these are off."""
        if not self.has_load:
            return np.zeros((LOADS, self.actions), np.float32)
        start = COMMON + (4 if self.has_network else 2) * self.actions
        return self.row[start:].reshape(-1, self.actions)

    def flat(self) -> Floats:
        """Return the whole observation as one token."""
        return self.row

    def tokens(self) -> Floats:
        """Return one token per action, [n, 4 + figures of an action]: the common features, then its own."""
        count = self.actions
        rows = np.empty((count, COMMON + self.figures), np.float32)
        rows[:, :COMMON] = self.row[:COMMON]
        rows[:, COMMON:] = self.row[COMMON:].reshape(-1, count).T
        return rows

    def without_network(self) -> Observation:
        """Return the observation without features of the network."""
        if not self.has_network:
            return self
        start = COMMON + 2 * self.actions
        return Observation(np.concatenate([self.row[:start], self.row[start + 2 * self.actions :]]), self.candidates)

    def _vector(self, number: int) -> Floats:
        start = COMMON + number * self.actions
        return self.row[start : start + self.actions]


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """An observation, the action, its reward, and the observation `elapsed_ns` later; None at the end of an episode."""

    observation: Observation
    action: int
    reward: float
    following: Observation | None
    elapsed_ns: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """Result of one decision: the next observation (None: the end), the reward, and the model's predictions.

    `task` is the number of the task decided on, which arrived at `submitted_ns`; for a task of a graph that is when its
    last predecessor ended. The times `wait_ns` to its start, `latency_ns` to its data being served and `response_ns` to
    its end count from then. `evicted_bytes` had to make room for its data, which takes `eviction_ns`. The next decision
    follows `elapsed_ns` after this one.
    """

    observation: Observation | None
    reward: float
    task: int
    wait_ns: int
    latency_ns: int
    response_ns: int
    evicted_bytes: int = 0
    eviction_ns: int = 0
    elapsed_ns: int = 0
    submitted_ns: int = 0


Choice = TypeVar("Choice", bound=StrEnum)


def one_of(choices: type[Choice], text: str, key: str) -> Choice:
    """Return the choice that a plain string names; raise LearningError, with the key, if there is none."""
    try:
        return choices(text)
    except ValueError as error:
        raise LearningError(f"{key} is {text!r}, not one of {', '.join(choices)}", at=key) from error


View_co = TypeVar("View_co", covariant=True)
Seen_contra = TypeVar("Seen_contra", contravariant=True)


class Environment(Protocol[View_co]):
    """Decisions one after another, in virtual time."""

    @property
    def actions(self) -> int:
        """Number of actions, possible or not."""
        ...

    @property
    def view(self) -> View_co:
        """Readable state for heuristics, always current."""
        ...

    def start(self, seed: int) -> Observation:
        """Restart and return the first observation."""
        ...

    def step(self, action: int) -> Step:
        """Act and return the result; raise LearningError for an action that is not a candidate."""
        ...


class Chooser(Protocol[Seen_contra]):
    """Decider: a heuristic, which may read the environment's view, or an agent, which uses observations."""

    def choose(self, observation: Observation, view: Seen_contra) -> int:
        """Return one of the observation's candidates."""
        ...
