"""Queue of submissions for a job's all-reduce thread, in order; each stays until it is settled."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from typing import Final, Generic, TypeVar

from dataplane.errors import AllReduceError

T = TypeVar("T")

MOST_SUBMISSIONS: Final = 1 << 16
"""Maximum queue length; each submission keeps the caller's values in memory."""


class SubmissionQueue(Generic[T]):
    """FIFO; any thread puts, one thread takes."""

    def __init__(self, who: str) -> None:
        """Name the worker as `who` in messages."""
        self._who = who
        self._changed = threading.Condition()
        self._waiting: deque[T] = deque()
        self._closed: AllReduceError | None = None

    def is_over(self) -> bool:
        """Return whether the queue is empty and closed."""
        with self._changed:
            return self._closed is not None and not self._waiting

    def put(self, submission: T) -> AllReduceError | None:
        """Append a submission, or return why it is rejected."""
        with self._changed:
            if self._closed is None and len(self._waiting) >= MOST_SUBMISSIONS:
                return AllReduceError(f"{self._who}: {MOST_SUBMISSIONS} all-reduces are already waiting")
            if self._closed is None:
                self._waiting.append(submission)
                self._changed.notify_all()
            return self._closed

    def first(self, wait_s: float | None = None) -> T | None:
        """Return the oldest without removing it; None once `is_over`, or if none has come within `wait_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed is not None, wait_s)
            return self._waiting[0] if self._waiting else None

    def ahead(self, count: int) -> list[T]:
        """Return up to `count` of the oldest."""
        with self._changed:
            return list(itertools.islice(self._waiting, count))

    def settle(self, submission: T) -> bool:
        """Remove the oldest, whose submitter gets its outcome now; False if `drain` has already given it one."""
        with self._changed:
            is_there = bool(self._waiting) and self._waiting[0] is submission
            if is_there:
                self._waiting.popleft()
            return is_there

    def close(self, reason: AllReduceError) -> None:
        """Accept nothing more, for the first reason given; queued submissions still run."""
        with self._changed:
            self._closed = self._closed or reason
            self._changed.notify_all()

    def drain(self, reason: AllReduceError) -> list[T]:
        """Accept nothing more, as `close`, and return all submissions without an outcome: the caller gives them one."""
        with self._changed:
            self._closed = self._closed or reason
            drained = list(self._waiting)
            self._waiting.clear()
            self._changed.notify_all()
            return drained
