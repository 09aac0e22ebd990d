"""Turns of all-reduces: they start one after the other, unless the job's service holds them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, TypeAlias

from dataplane.errors import AllReduceError

OnDone: TypeAlias = Callable[[AllReduceError | None], None]
Poll: TypeAlias = Callable[[], None]
"""Callback that a waiting caller runs from time to time; an exception from it ends the wait."""

POLL_S: Final = 0.25
"""Interval of those calls."""


class Turns:
    """Counts of all-reduces started, finished and permitted; one thread starts them, others hold it."""

    def __init__(self, who: str, begun: int = 0) -> None:
        """Take the name `who` for messages; `begun` is the number done before this worker joined."""
        self._who = who
        self._changed = threading.Condition()
        self._begun = self._finished = begun
        self._is_running = False
        self._limit: int | None = None
        self._held_for_s = self._held_until_s = 0.0
        self._alarm: threading.Timer | None = None
        self._failure: AllReduceError | None = None
        self._watchers: list[tuple[Callable[[], bool], OnDone]] = []

    @property
    def failure(self) -> AllReduceError | None:
        """The error because of which nothing more is started."""
        return self._failure

    @property
    def begun(self) -> int:
        """Number of all-reduces started."""
        return self._begun

    @property
    def is_drained(self) -> bool:
        """True if all permitted all-reduces have started and finished."""
        with self._changed:
            return self._limit is not None and self._begun == self._finished == self._limit

    def begin(self, poll: Poll | None = None) -> None:
        """Wait until one may start, and count it; raise the job's failure, or what `poll` raises."""
        while not self._try_begin(None if poll is None else POLL_S):
            if poll is not None:
                poll()

    def pause(self, poll: Poll) -> None:
        """Call `poll` in the middle of an all-reduce, without making `wait_until_idle` wait for it.

        Raises the job's failure meanwhile, or what `poll` raises.
        """
        with self._changed:
            self._is_running = False
            self._changed.notify_all()
        poll()
        with self._changed:
            self._check()
            self._is_running = True

    def finish(self) -> None:
        """Mark the one started last as done."""
        with self._changed:
            self._finished += 1
            self._is_running = False
            self._fail_if_overdue()
            self._notify()

    def abort(self, error: AllReduceError) -> None:
        """Mark the one started last as failed, and start nothing more; the first error counts."""
        with self._changed:
            self._is_running = False
            self.fail(error)

    def fail(self, error: AllReduceError) -> None:
        """Start nothing more; the first error counts."""
        with self._changed:
            self._failure = self._failure or error
            self._set_alarm(None)
            self._notify()

    def wait_until_idle(self) -> None:
        """Wait while one is running that will soon be done or given up."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_running)

    def hold(self, deadline_s: float) -> int:
        """Stop starting all-reduces, and return how many were started; raise the job's failure.

        Unless `release` or another `hold` follows within `deadline_s`, it fails.
        """
        with self._changed:
            self._check()
            self._limit = self._begun
            self._set_alarm(deadline_s)
            return self._begun

    def when(self, condition: Callable[[], bool], on_done: OnDone) -> None:
        """Call `on_done` when a condition holds, checked whenever something is done, or with the job's failure."""
        with self._changed:
            self._watchers.append((condition, on_done))
            self._notify()

    def run_until(self, count: int, on_done: OnDone) -> None:
        """Run up to `count` although held; call `on_done` once they are done, or with their failure.

        Raises AllReduceError if they are not held.
        """
        with self._changed:
            self._check()
            if self._limit is None:
                raise AllReduceError(f"{self._who}: all-reduces are not held, so they cannot be held at {count}")
            self._limit = max(self._limit, count)
            self._watchers.append((lambda: self._finished >= count, on_done))
            self._notify()

    def release(self) -> None:
        """Release the hold."""
        with self._changed:
            self._limit = None
            self._set_alarm(None)
            self._changed.notify_all()

    def _try_begin(self, wait_s: float | None) -> bool:
        with self._changed:
            self._changed.wait_for(self._may_begin, wait_s)
            self._check()
            if not self._may_begin():
                return False
            self._begun += 1
            self._is_running = True
            return True

    def _may_begin(self) -> bool:
        return self._failure is not None or self._limit is None or self._begun < self._limit

    def _set_alarm(self, delay_s: float | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if delay_s is not None:
            self._held_for_s, self._held_until_s = delay_s, time.monotonic() + delay_s
            self._alarm = threading.Timer(delay_s, self._fail_if_overdue)
            self._alarm.daemon = True
            self._alarm.start()

    def _fail_if_overdue(self) -> None:
        """Fail if the hold was not ended in time; a running all-reduce checks the time itself, with more detail."""
        with self._changed:
            if self._limit is None or time.monotonic() < self._held_until_s or self._begun > self._finished:
                return
            done = f"{self._finished} of {self._limit}" if self._limit else "0"
            self.fail(
                AllReduceError(
                    f"{self._who}: the service held all-reduces, of which {done} are done, and did not release them "
                    f"for {self._held_for_s:g} s"
                )
            )

    def _notify(self) -> None:
        """Wake waiting threads, and call watchers whose condition holds; the caller holds the lock."""
        self._changed.notify_all()
        watchers, self._watchers = self._watchers, []
        for condition, on_done in watchers:
            is_met = condition()
            if is_met or self._failure is not None:
                on_done(None if is_met else self._failure)
            else:
                self._watchers.append((condition, on_done))

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure
