"""What a job's only thread of all-reduces works through: submissions in order, each there until it is settled."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import Final, Generic, TypeVar

from dataplane.errors import AllReduceError

T = TypeVar("T")

MOST_SUBMISSIONS: Final = 1 << 16
"""How many may wait; each has its values in memory that the caller keeps."""


class SubmissionQueue(Generic[T]):
    """First come, first carried out; any thread puts, one takes."""

    def __init__(self, who: str) -> None:
        """`who` stands in messages."""
        self._who = who
        self._changed = threading.Condition()
        self._waiting: deque[T] = deque()
        self._closed: AllReduceError | None = None

    def is_over(self) -> bool:
        """Return whether nothing waits, and nothing will."""
        with self._changed:
            return self._closed is not None and not self._waiting

    def put(self, submission: T) -> AllReduceError | None:
        """Put one behind the others, or return why it is not taken."""
        with self._changed:
            if self._closed is None and len(self._waiting) >= MOST_SUBMISSIONS:
                return AllReduceError(f"{self._who}: {MOST_SUBMISSIONS} all-reduces wait already")
            if self._closed is None:
                self._waiting.append(submission)
                self._changed.notify_all()
            return self._closed

    def first(self, wait_s: float | None = None) -> T | None:
        """Return the oldest, which stays; None once `is_over`, or if none has come within `wait_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed is not None, wait_s)
            return self._waiting[0] if self._waiting else None

    def ahead(self, count: int) -> list[T]:
        """Return the oldest, so many at most."""
        with self._changed:
            return list(itertools.islice(self._waiting, count))

    def settle(self, submission: T) -> bool:
        """Take the oldest, whose outcome its submitter gets now; False if it has got one already, from `drain`."""
        with self._changed:
            is_there = bool(self._waiting) and self._waiting[0] is submission
            if is_there:
                self._waiting.popleft()
            return is_there

    def close(self, reason: AllReduceError) -> None:
        """Take nothing more, because of the first reason that is given; what waits is carried out."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def drain(self, reason: AllReduceError) -> list[T]:
        """Take nothing more, as `close`, and return all that has no outcome: the caller gives it one."""
        with self._changed:
            self._closed = self._closed or reason
            drained = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
            return drained
