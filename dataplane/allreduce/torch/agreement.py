"""Workers agree to leave the switch: who goes on by gloo's ring, and how many results each of them has.

Each worker that cannot go on writes how many results it has given to its training. When all have, or the deadline has
passed, the first to see it proposes those who have as the survivors, and the store's compare_set lets one proposal win.
Less than a majority of the group never goes on, so that no two parts of it train apart from each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import torch.distributed as dist

from dataplane.clock import Clock, MonotonicClock
from dataplane.errors import AllReduceError

_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Decision:
    """Ranks of the survivors and, for each, how many results it has; `reason` is that of the worker who called."""

    ranks: tuple[int, ...]
    results: tuple[int, ...]
    reason: str

    @property
    def source(self) -> int:
        """The rank with the most results."""
        return self.ranks[self.results.index(max(self.results))]


class Agreement:
    """One decision of the workers `ranks` through the store that they share; `name` is the same for all."""

    def __init__(
        self,
        store: dist.Store,
        name: str,
        rank: int,
        ranks: tuple[int, ...],
        *,
        deadline_s: float,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._store, self._name, self._rank, self._ranks = store, name, rank, ranks
        self._deadline_s, self._clock, self._pause = deadline_s, clock or MonotonicClock(), pause

    def called(self) -> str | None:
        """Return the reason of the worker who has left the switch, None while nobody has or the store does not answer.

        Once somebody has, the switch cannot complete anything new, and all must settle.
        """
        try:
            return self._read("called") if self._store.check([self._key("called")]) else None
        except RuntimeError:
            return None

    def settle(self, results: int, reason: str) -> Decision:
        """Say how many results this worker has and return what is decided; raise AllReduceError if it goes without it.

        The worker must take no more results of the switch's from here on.
        """
        try:
            self._store.compare_set(self._key("called"), "", f"worker {self._rank}: {reason}")
            self._store.set(self._key(str(self._rank)), str(results))
            survivors = self._decided()
            counts = tuple(int(self._read(str(rank))) for rank in survivors)
            decision = Decision(survivors, counts, self._read("called"))
        except RuntimeError as error:
            raise AllReduceError(f"{reason}; and the group's store does not answer: {error}") from error
        if self._rank not in survivors:
            raise AllReduceError(f"{decision.reason}; workers {listed(survivors)} went on without worker {self._rank}")
        return decision

    def _decided(self) -> tuple[int, ...]:
        until_ns = self._clock.now_ns() + int(self._deadline_s * 1e9)
        while not self._store.check([self._key("decided")]):
            here = tuple(rank for rank in self._ranks if self._store.check([self._key(str(rank))]))
            is_late = self._clock.now_ns() >= until_ns
            if len(here) == len(self._ranks) or (is_late and 2 * len(here) > len(self._ranks)):
                self._store.compare_set(self._key("decided"), "", ",".join(map(str, here)))
            elif is_late:
                gone = listed(rank for rank in self._ranks if rank not in here)
                raise AllReduceError(
                    f"{self._read('called')}; waited {self._deadline_s:g} s for workers {gone} to go on by the ring; "
                    f"{len(here)} of {len(self._ranks)} are no majority"
                )
            else:
                self._pause(_PAUSE_S)
        return tuple(int(rank) for rank in self._read("decided").split(","))

    def _key(self, what: str) -> str:
        return f"{self._name}/{what}"

    def _read(self, what: str) -> str:
        return str(self._store.get(self._key(what)).decode())


def listed(ranks: Iterable[int]) -> str:
    """Return ranks as text."""
    return ", ".join(map(str, ranks))
