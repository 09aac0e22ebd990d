"""The experience buffer: full before training starts, duplicates dropped before sampling, sampled entries removed."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from controller.schedulers.learning.values import Experience, Observation


@dataclass(frozen=True, slots=True)
class Drawn:
    """Experiences of one batch: their numbers, and weights of their errors that make up for how they were drawn."""

    numbers: tuple[int, ...]
    experiences: tuple[Experience, ...]
    importance: tuple[float, ...]


class Buffer:
    """The newest experiences, at most `capacity` of them, each with a number and its last error.

    The numbers count up, and error None means that it was never trained on.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.duplicates = 0
        """How many were dropped because another was the same."""
        self._held: deque[tuple[int, Experience, float | None]] = deque(maxlen=capacity)
        self._next = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[tuple[int, Experience, float | None]]:
        return iter(self._held)

    @property
    def is_full(self) -> bool:
        """Whether training may start."""
        return len(self._held) == self.capacity

    def add(self, experience: Experience) -> None:
        """Take an experience; where the buffer is full, the oldest goes."""
        self._held.append((self._next, experience, None))
        self._next += 1

    def restore(self, held: Sequence[tuple[int, Experience, float | None]], following: int, duplicates: int) -> None:
        """Hold what a checkpoint had."""
        self._held = deque(held, maxlen=self.capacity)
        self._next, self.duplicates = following, duplicates

    @property
    def next_number(self) -> int:
        """The number of the experience that comes next."""
        return self._next

    def drop_duplicates(self) -> None:
        """Keep of experiences with the same observation and action the newest, with the mean of all their rewards.

        The mean is the specification's "mean measured over runs".
        """
        same: dict[tuple[bytes, bytes, int], list[tuple[int, Experience, float | None]]] = {}
        for entry in self._held:
            same.setdefault(_identity(entry[1].observation, entry[1].action), []).append(entry)
        self.duplicates += len(self._held) - len(same)
        newest = sorted((_merged(group) for group in same.values()), key=lambda entry: entry[0])
        self._held = deque(newest, maxlen=self.capacity)

    def draw(
        self, generator: np.random.Generator, batch: int, batches: int, *, power: float = 0.0, importance: float = 0.0
    ) -> list[Drawn]:
        """Return up to `batches` batches of different experiences; the last is smaller where too few are held.

        With `power` > 0, one is drawn by its last error to that power, and one that was never trained on as the worst.
        """
        held = list(self._held)
        count = min(len(held), batch * batches)
        if not count:
            return []
        chances = _chances([error for _, _, error in held], power)
        places = generator.choice(len(held), count, replace=False, p=chances)
        weights = np.ones(count) if chances is None else (len(held) * chances[places]) ** -importance
        weights = weights / weights.max()
        return [
            Drawn(
                tuple(held[place][0] for place in places[start : start + batch]),
                tuple(held[place][1] for place in places[start : start + batch]),
                tuple(weights[start : start + batch].tolist()),
            )
            for start in range(0, count, batch)
        ]

    def remove(self, numbers: set[int]) -> None:
        """Forget experiences by their numbers."""
        self._held = deque((entry for entry in self._held if entry[0] not in numbers), maxlen=self.capacity)

    def remember_errors(self, errors: dict[int, float]) -> None:
        """Keep the last error of experiences by their numbers."""
        found = ((number, one, errors.get(number, error)) for number, one, error in self._held)
        self._held = deque(found, maxlen=self.capacity)


def _identity(observation: Observation, action: int) -> tuple[bytes, bytes, int]:
    return observation.row.tobytes(), observation.candidates.tobytes(), action


def _merged(group: list[tuple[int, Experience, float | None]]) -> tuple[int, Experience, float | None]:
    number, newest, error = group[-1]
    if len(group) == 1:
        return group[-1]
    mean = math.fsum(one.reward for _, one, _ in group) / len(group)
    return number, replace(newest, reward=mean), error


def _chances(errors: list[float | None], power: float) -> npt.NDArray[np.float64] | None:
    if power == 0:
        return None
    known = [error for error in errors if error is not None]
    worst = max(known, default=1.0)
    weights = np.array([worst if error is None else error for error in errors], np.float64)
    weights = np.power(weights + 1e-6, power)
    found: npt.NDArray[np.float64] = weights / weights.sum()
    return found
