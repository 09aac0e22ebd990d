"""The experience buffer: full before training starts, duplicates dropped before sampling, sampled entries removed."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from controller.learning.values import Experience

_Identity = tuple[bytes, bytes, int]
"""Identity of an experience: what was observed, what was possible, what was chosen."""
_Entry = tuple[Experience, float | None]


@dataclass(frozen=True, slots=True)
class Drawn:
    """Experiences of one batch: their numbers, and weights of their errors that compensate for the sampling."""

    numbers: tuple[int, ...]
    experiences: tuple[Experience, ...]
    importance: tuple[float, ...]


class Buffer:
    """The newest experiences, at most `capacity`, each with a number and its last error.

    Numbers count up; an error of None means that it was never trained on.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.duplicates = 0
        """Number of experiences dropped as duplicates."""
        self._held: OrderedDict[int, _Entry] = OrderedDict()
        self._next = 0
        self._fresh: list[int] = []
        """Experiences not yet compared with the others."""
        self._first: dict[_Identity, int] = {}
        """Number of each compared experience, keyed by what identifies duplicates."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[tuple[int, Experience, float | None]]:
        return ((number, experience, error) for number, (experience, error) in self._held.items())

    @property
    def is_full(self) -> bool:
        """True once training may start."""
        return len(self._held) == self.capacity

    def add(self, experience: Experience) -> None:
        """Add an experience; when full, drop the oldest."""
        if self.is_full:
            self._forget(next(iter(self._held)))
        self._held[self._next] = (experience, None)
        self._fresh.append(self._next)
        self._next += 1
        if len(self._fresh) > 2 * self.capacity:
            self._fresh = [number for number in self._fresh if number in self._held]

    def restore(self, held: Sequence[tuple[int, Experience, float | None]], following: int, duplicates: int) -> None:
        """Restore the contents from a checkpoint."""
        self._held = OrderedDict((number, (experience, error)) for number, experience, error in held)
        self._fresh, self._first = list(self._held), {}
        self._next, self.duplicates = following, duplicates

    @property
    def next_number(self) -> int:
        """Number of the next experience."""
        return self._next

    def drop_duplicates(self) -> None:
        """Keep only the newest of experiences with the same observation and action, with the mean of all their rewards.

        The mean is the specification's "mean measured over runs". Only experiences added since the last call are
        compared.
        """
        same: dict[_Identity, list[int]] = {}
        for number in self._fresh:
            if number in self._held:
                identity = _identity(self._held[number][0])
                before = self._first.get(identity)
                group = same.setdefault(identity, [] if before is None else [before])
                group.append(number)
        for identity, group in same.items():
            self._first[identity] = group[-1]
            if len(group) > 1:
                rewards = [self._held[number][0].reward for number in group]
                newest, error = self._held[group[-1]]
                self._held[group[-1]] = (replace(newest, reward=math.fsum(rewards) / len(rewards)), error)
                for number in group[:-1]:
                    del self._held[number]
                self.duplicates += len(group) - 1
        self._fresh = []

    def draw(
        self, generator: np.random.Generator, batch: int, batches: int, *, power: float = 0.0, importance: float = 0.0
    ) -> list[Drawn]:
        """Return up to `batches` batches of different experiences; the last is smaller if too few are held.

        With `power` > 0, sampling is by the last error to that power; an experience never trained on counts as the
        worst.
        """
        held = list(self._held)
        count = min(len(held), batch * batches)
        if not count:
            return []
        chances = _chances([error for _, error in self._held.values()], power) if power else None
        places = generator.choice(len(held), count, replace=False, p=chances)
        weights = np.ones(count) if chances is None else (len(held) * chances[places]) ** -importance
        # Weights only ever scale gradients down (Schaul and others, 2016).
        weights = weights / weights.max()
        numbers = [held[index] for index in places.tolist()]
        return [
            Drawn(
                tuple(numbers[start : start + batch]),
                tuple(self._held[number][0] for number in numbers[start : start + batch]),
                tuple(weights[start : start + batch].tolist()),
            )
            for start in range(0, count, batch)
        ]

    def remove(self, numbers: set[int]) -> None:
        """Remove experiences by their numbers."""
        for number in numbers:
            if number in self._held:
                self._forget(number)

    def remember_errors(self, errors: dict[int, float]) -> None:
        """Store the last errors of experiences by their numbers."""
        for number, error in errors.items():
            if number in self._held:
                self._held[number] = (self._held[number][0], error)

    def _forget(self, number: int) -> None:
        experience, _ = self._held.pop(number)
        if not self._first:
            return
        identity = _identity(experience)
        if self._first.get(identity) == number:
            del self._first[identity]


def _identity(experience: Experience) -> _Identity:
    return experience.observation.row.tobytes(), experience.observation.candidates.tobytes(), experience.action


def _chances(errors: list[float | None], power: float) -> npt.NDArray[np.float64]:
    measured = [error for error in errors if error is not None]
    worst = max(measured, default=1.0)
    weights = np.array([worst if error is None else error for error in errors], np.float64)
    # An error of 0 must leave some chance of being drawn.
    weights = np.power(weights + 1e-6, power)
    chances: npt.NDArray[np.float64] = weights / weights.sum()
    return chances
