"""All-reduces that wait for their turn: first come, first begun, unless the job's service holds them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from dataplane.errors import AllReduceError

T = TypeVar("T")
Then: TypeAlias = Callable[[AllReduceError | None], None]


class Line(Generic[T]):
    """Things to be done by one thread, in order; others put them in line, and hold the line at one of them."""

    def __init__(self, who: str, begun: int = 0) -> None:
        """`who` stands in messages; `begun` is how many the others had done before this worker came."""
        self._who = who
        self._changed = threading.Condition()
        self._things: deque[T] = deque()
        self._begun = self._finished = begun
        self._limit: int | None = None
        self._held_until_s = 0.0
        self._held_for_s = 0.0
        self._failure: AllReduceError | None = None
        self._watchers: list[tuple[Callable[[], bool], Then]] = []

    @property
    def failure(self) -> AllReduceError | None:
        """Why nothing more is begun."""
        return self._failure

    @property
    def begun(self) -> int:
        """How many were begun."""
        return self._begun

    @property
    def is_quiet(self) -> bool:
        """Whether the line is held, and all that were begun are done."""
        with self._changed:
            return self._limit is not None and self._begun == self._finished == self._limit

    def put(self, thing: T) -> AllReduceError | None:
        """Put something in line, or return why it will not be done."""
        with self._changed:
            if self._failure is None:
                self._things.append(thing)
                self._changed.notify_all()
            return self._failure

    def take(self) -> T | None:
        """Wait for the next one's turn, begin it and return it; None once the line has failed and is empty."""
        with self._changed:
            while not self._has_turn():
                left_s = None if self._limit is None else self._held_until_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    self.fail(self._overdue())
                else:
                    self._changed.wait(left_s)
            if not self._things:
                return None
            self._begun += 1
            return self._things.popleft()

    def finish(self) -> None:
        """Say that the one begun last is done."""
        with self._changed:
            self._finished += 1
            self._tell()

    def fail(self, error: AllReduceError) -> None:
        """Begin nothing more; the first error counts. What is in line comes out of `take` to be failed."""
        with self._changed:
            self._failure = self._failure or error
            self._tell()

    def hold(self, deadline_s: float) -> int:
        """Begin no more for now, and return how many were begun; raise what the line has failed with."""
        with self._changed:
            self._check()
            self._limit = self._begun
            self._held_for_s, self._held_until_s = deadline_s, time.monotonic() + deadline_s
            self._changed.notify_all()
            return self._begun

    def when(self, condition: Callable[[], bool], then: Then) -> None:
        """Call `then` when a condition holds, looked at whenever something is done, or with the line's failure."""
        with self._changed:
            self._watchers.append((condition, then))
            self._tell()

    def run_until(self, count: int, then: Then) -> None:
        """Begin up to so many although the line is held; call `then` once they are done, or with what it fails with.

        Raises AllReduceError if the line is not held.
        """
        with self._changed:
            self._check()
            if self._limit is None:
                raise AllReduceError(f"{self._who}: all-reduces are not held, so they cannot be held at {count}")
            self._limit = max(self._limit, count)
            self._watchers.append((lambda: self._finished >= count, then))
            self._tell()

    def release(self) -> None:
        """Go on."""
        with self._changed:
            self._limit = None
            self._changed.notify_all()

    def _overdue(self) -> AllReduceError:
        done = f"{self._finished} of {self._limit}" if self._limit else "0"
        return AllReduceError(
            f"{self._who}: the service held all-reduces, of which {done} are done, and did not release them for "
            f"{self._held_for_s:g} s"
        )

    def _tell(self) -> None:
        """Tell all who wait how things stand; the caller holds the lock."""
        self._changed.notify_all()
        watchers, self._watchers = self._watchers, []
        for condition, then in watchers:
            is_met = condition()
            if is_met or self._failure is not None:
                then(None if is_met else self._failure)
            else:
                self._watchers.append((condition, then))

    def _has_turn(self) -> bool:
        if self._failure is not None:
            return True
        return bool(self._things) and (self._limit is None or self._begun < self._limit)

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
