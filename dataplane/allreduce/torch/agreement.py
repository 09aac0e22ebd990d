"""Agreement of workers to leave the switch: which continue on gloo's ring, and how many results each has.

Each worker that cannot continue writes how many results it has given to its training. When all have, or the deadline
has passed, the first to notice proposes those that have as the survivors, and the store's compare_set lets one proposal
win. Less than a majority of the job's workers never continues, so that no two parts of it train separately. Former
members of the job are neither heard nor waited for.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

import torch.distributed as dist

from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.errors import AllReduceError

_PAUSE_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Voters:
    """Ranks of the group that are in the job, and the job's number of workers: some may be outside the group."""

    ranks: tuple[int, ...]
    workers: int


@dataclass(frozen=True, slots=True)
class Decision:
    """Ranks of the survivors with their number of results; `reason` is that of the first worker to call."""

    ranks: tuple[int, ...]
    results: tuple[int, ...]
    reason: str

    @property
    def source(self) -> int:
        """The rank with the most results."""
        return self.ranks[self.results.index(max(self.results))]


class Agreement:
    """One decision of a job's workers through their shared store; `name` is the same for all."""

    def __init__(
        self,
        store: dist.Store,
        name: str,
        rank: int,
        voters: Callable[[], Voters],
        *,
        deadline_s: float,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`voters` returns the current members of the job."""
        self._store, self._name, self._rank, self._voters = store, name, rank, voters
        self._deadline_s, self._clock, self._pause = deadline_s, clock or MonotonicClock(), pause
        self._heard = 0

    def called(self) -> str | None:
        """Return the reason of a worker that has left the switch, None while none has or the store does not answer.

        Once one has, the switch cannot complete anything new, and all must settle.
        """
        try:
            while self._store.check([self._key(f"call/{self._heard + 1}")]):
                self._heard += 1
                rank, _, reason = self._read(f"call/{self._heard}").partition(" ")
                if int(rank) in self._voters().ranks:
                    return f"worker {rank}: {reason}"
        except RuntimeError:
            return None
        return None

    def ask_for_record(self, number: int) -> None:
        """Ask all workers to write their flight records, because of an all-reduce without a result."""
        with contextlib.suppress(RuntimeError):  # a store that is gone is reported when the switch is left
            self._store.set(self._key("record"), str(number))

    def asked_for_record(self, reported: int) -> int | None:
        """Return the number of a later all-reduce than `reported` of which some worker waits for the result."""
        try:
            if self._store.check([self._key("record")]):
                number = int(self._read("record"))
                return number if number > reported else None
        except RuntimeError:
            return None
        return None

    def settle(self, results: int, reason: str, *, called: bool) -> Decision:
        """Publish this worker's result count and return the decision; raise AllReduceError if it excludes this worker.

        `called` says that `called` returned the reason. The worker must accept no more results from the switch from
        here on.
        """
        try:
            self._store.set(self._key(str(self._rank)), str(results))
            if not called:
                number = self._store.add(self._key("calls"), 1)
                self._store.set(self._key(f"call/{number}"), f"{self._rank} {reason}")
            decision = self._decided(reason if called else f"worker {self._rank}: {reason}")
        except RuntimeError as error:
            raise AllReduceError(f"{reason}; and the group's store does not answer: {error}") from error
        if self._rank not in decision.ranks:
            went = listed(decision.ranks)
            raise AllReduceError(f"{decision.reason}; workers {went} went on without worker {self._rank}")
        return decision

    def _decided(self, reason: str) -> Decision:
        until_ns = self._clock.now_ns() + int(self._deadline_s * NS_PER_S)
        while not self._store.check([self._key("decided")]):
            voters, is_late = self._voters(), self._clock.now_ns() >= until_ns
            here = tuple(rank for rank in voters.ranks if self._store.check([self._key(str(rank))]))
            is_complete, is_majority = here == voters.ranks, 2 * len(here) > voters.workers
            if is_majority and (is_complete or is_late):
                self._heard = 0  # so that the reason is the first caller's
                words = f"{','.join(map(str, here))} {self.called() or reason}"
                self._store.compare_set(self._key("decided"), "", words)
            elif is_complete or is_late:
                raise AllReduceError(f"{reason}; {self._missing(voters, here)}")
            else:
                self._pause(_PAUSE_S)
        ranks, _, first_reason = self._read("decided").partition(" ")
        survivors = tuple(int(rank) for rank in ranks.split(","))
        return Decision(survivors, tuple(int(self._read(str(rank))) for rank in survivors), first_reason)

    def _missing(self, voters: Voters, here: tuple[int, ...]) -> str:
        gone = listed(rank for rank in voters.ranks if rank not in here)
        waited = f"waited {self._deadline_s:g} s for workers {gone} to continue on the ring; " if gone else ""
        return f"{waited}{len(here)} of {voters.workers} workers are not a majority"

    def _key(self, what: str) -> str:
        return f"{self._name}/{what}"

    def _read(self, what: str) -> str:
        return str(self._store.get(self._key(what)).decode())


def listed(ranks: Iterable[int]) -> str:
    """Format ranks as text."""
    return ", ".join(map(str, ranks))
