"""Return from gloo's ring to the switches: the workers join a job again, and all go over to it at one all-reduce.

Each worker tries to join from time to time, and tells the others through the group's store. Once all have, the first
of them proposes the all-reduce from which on the switches add up. The proposal is in the store before it starts its
next all-reduce, and names one that nobody can start before that: no worker is more than `LEAD` all-reduces ahead of
another. A worker whose membership ends before there is a proposal withdraws; compare_set lets one of both win.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch.distributed as dist

from dataplane.allreduce.membership import Membership
from dataplane.allreduce.torch.agreement import Agreement
from dataplane.allreduce.torch.job_membership import JobMember
from dataplane.errors import AllReduceError

logger = logging.getLogger("millrace.allreduce")

LEAD: Final = 4
"""Maximum number of concurrent all-reduces of gloo's ring."""
_LONGEST_WAIT_S: Final = 60.0
_WATCH_S: Final = 0.25
_STOP_S: Final = 1.0
"""Maximum wait for the thread, which may be joining a job; it then leaves it by itself."""
_WITHDRAWN: Final = "withdrawn"


@dataclass(frozen=True, slots=True)
class Trip:
    """A membership in a job that all may go over to, under a name that is the same at all workers."""

    membership: Membership
    name: str


@dataclass(frozen=True, slots=True)
class Rejoin:
    """Call by which a worker joins a job of so many workers again, as a host, at first after `interval_s`."""

    join: Callable[[int], Membership]
    host: str
    interval_s: float


class Returning:
    """Takes the workers of one training back, as often as they leave; `at` and `take` are for one thread."""

    def __init__(
        self, rejoin: Rejoin, agree: Callable[[str, JobMember], Agreement], store: dist.Store, name: str, rank: int
    ) -> None:
        """`agree` returns the agreement for leaving the switches again; `name` is the same at all workers."""
        self._rejoin, self._agree, self._store, self._name, self._rank = rejoin, agree, store, name, rank
        self._ranks: tuple[int, ...] = ()
        self._trip: Trip | None = None
        self._proposal: int | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, ranks: tuple[int, ...]) -> None:
        """Try to take these ranks back from now on."""
        self._ranks, self._trip, self._proposal, self._ended = ranks, None, None, threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._ended,), name="millrace-return", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Try no longer; a job that has not been gone over to is left."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(_STOP_S)

    def at(self, started: int) -> int | None:
        """Return the all-reduce that the switches add up first, once agreed; call it before each one starts.

        `started` is the number of the one about to start. Raises AllReduceError if the store does not answer.
        """
        trip = self._trip
        if trip is None or self._proposal is not None:
            return self._proposal
        try:
            if self._rank == self._ranks[0] and self._are_all_there(trip):
                self._store.compare_set(self._key(trip, "at"), "", str(started + LEAD))
            decided = self._decided(trip)
        except RuntimeError as error:
            raise AllReduceError(f"gloo's ring: the group's store does not answer: {error}") from error
        if decided is not None and decided != _WITHDRAWN:
            self._proposal = int(decided)
        return self._proposal

    def take(self) -> tuple[JobMember, Agreement]:
        """Return the job that was agreed on, and the agreement to leave it; its membership is the caller's."""
        trip, self._trip = self._trip, None
        assert trip is not None, "it is taken once `at` has returned a number"
        self._ended.set()
        member = JobMember(trip.membership, self._rejoin.host)
        return member, self._agree(f"{trip.name}/leave", member)

    def _run(self, ended: threading.Event) -> None:
        wait_s = self._rejoin.interval_s
        while not ended.wait(wait_s):
            try:
                self._try(ended)
            except AllReduceError as error:
                logger.info("still on gloo's ring: %s", error)
            except RuntimeError as error:  # the store is gone, which the ring reports
                logger.info("still on gloo's ring: the group's store does not answer: %s", error)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)

    def _try(self, ended: threading.Event) -> None:
        """Join, and wait until all go over, or this cannot be; raise AllReduceError, RuntimeError of the store."""
        membership = self._rejoin.join(len(self._ranks))
        trip = self._trip = Trip(membership, f"{self._name}/{membership.identity}")
        try:
            self._store.set(self._key(trip, str(self._rank)), "there")
            while not ended.wait(_WATCH_S):
                decided = self._decided(trip)
                if decided is None and not self._is_complete(trip):
                    self._store.compare_set(self._key(trip, "at"), "", _WITHDRAWN)
                elif decided == _WITHDRAWN:
                    why = membership.failure or "another worker's membership has ended"
                    raise AllReduceError(f"not all workers could join: {why}")
        finally:
            if self._trip is trip:  # not taken
                self._trip = None
                membership.close()

    def _is_complete(self, trip: Trip) -> bool:
        return trip.membership.failure is None and len(trip.membership.members) == len(self._ranks)

    def _are_all_there(self, trip: Trip) -> bool:
        keys = [self._key(trip, str(rank)) for rank in self._ranks]
        return self._is_complete(trip) and self._store.check(keys)

    def _decided(self, trip: Trip) -> str | None:
        key = self._key(trip, "at")
        return self._store.get(key).decode() if self._store.check([key]) else None

    @staticmethod
    def _key(trip: Trip, what: str) -> str:
        return f"{trip.name}/{what}"
