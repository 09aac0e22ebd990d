"""Barriers that hold a worker while its job changes: before an all-reduce, or where the caller ends a round."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.membership_state import Resume
from dataplane.errors import AllReduceError

Report = Callable[[int], None]
"""Receives the item that the next all-reduce begins with."""


class Barrier(Protocol):
    """Holds and releases a worker; counts are since the job began."""

    def enter(self, limit_s: float) -> int:
        """Stop starting work, and return how much was started; unless released within the limit, the worker fails."""
        ...

    def run_until(self, count: int, report: Report) -> None:
        """Run until `count` have been started in all, and report when they are done."""
        ...

    def resume(self, command: Resume) -> None:
        """Resume; raise AllReduceError if the job has moved away meanwhile."""
        ...

    def fail(self, error: AllReduceError) -> None:
        """Fail the waiters."""
        ...


class AllReduceBarrier:
    """Stops before the next all-reduce."""

    def __init__(self, reducer: JobEngine) -> None:
        self._reducer = reducer

    def enter(self, limit_s: float) -> int:
        """Hold the reducer."""
        return self._reducer.hold(limit_s)

    def run_until(self, count: int, report: Report) -> None:
        """Run until a count."""
        report_when_done(self._reducer.run_until(count), report)

    def resume(self, command: Resume) -> None:
        """Release the reducer."""
        _release(self._reducer, command)

    def fail(self, error: AllReduceError) -> None:
        """Do nothing: the reducer fails by itself."""


class RoundBarrier:
    """Stops where the caller's rounds end; `passed` and `newcomers` are the job's state when this worker joined."""

    def __init__(self, reducer: JobEngine, passed: int, newcomers: tuple[str, ...]) -> None:
        self._reducer = reducer
        self._changed = threading.Condition()
        self._passed, self._newcomers = passed, newcomers
        self._limit: int | None = None
        self._until_s = 0.0
        self._limit_s = 0.0
        self._wanted: tuple[int, Report] | None = None
        self._failure: AllReduceError | None = None

    def enter(self, limit_s: float) -> int:
        """Let the current round end."""
        with self._changed:
            self._limit, self._wanted = self._passed, None
            self._limit_s, self._until_s = limit_s, time.monotonic() + limit_s
            return self._passed

    def run_until(self, count: int, report: Report) -> None:
        """Run until `count` rounds have ended."""
        with self._changed:
            self._limit, self._wanted = count, (count, report)
            self._changed.notify_all()

    def resume(self, command: Resume) -> None:
        """Let the next round begin."""
        with self._changed:
            _release(self._reducer, command)
            self._limit, self._wanted = None, None
            self._newcomers = command.newcomers or self._newcomers
            self._changed.notify_all()

    def fail(self, error: AllReduceError) -> None:
        """Make `next_round` fail."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def next_round(self) -> tuple[str, ...]:
        """Start the next round as soon as permitted; return the workers that joined here."""
        with self._changed:
            while self._failure is None and self._limit is not None and self._passed >= self._limit:
                self._arrive()
                left_s = self._until_s - time.monotonic()
                if left_s <= 0:
                    self._failure = AllReduceError(
                        f"the service held the job after {self._passed} rounds and did not release it for "
                        f"{self._limit_s:g} s"
                    )
                else:
                    self._changed.wait(left_s)
            if self._failure is not None:
                raise self._failure
            self._passed += 1
            newcomers, self._newcomers = self._newcomers, ()
            return newcomers

    def _arrive(self) -> None:
        """Report, once, that the last requested round is done."""
        if self._wanted is None or self._wanted[0] > self._passed:
            return
        _, report = self._wanted
        self._wanted = None
        report_when_done(self._reducer.run_until(self._reducer.hold(self._limit_s)), report)


class ServerBarrier:
    """Stops nothing: the main server starts no all-reduces; it follows the job to other switches."""

    def __init__(self, engine: JobEngine) -> None:
        self._engine = engine

    def enter(self, limit_s: float) -> int:  # noqa: ARG002 - the service does not hold main servers
        """Return that nothing was started."""
        return 0

    def run_until(self, count: int, report: Report) -> None:
        """Do nothing."""

    def resume(self, command: Resume) -> None:
        """Continue where the job is."""
        if command.aggregator is None or command.number is None or command.nonce is None:
            self._engine.set_epoch(command.epoch, command.contributors)
        else:
            self._engine.relocate(
                command.epoch, command.contributors, command.aggregator, command.number, command.nonce
            )

    def fail(self, error: AllReduceError) -> None:
        """Do nothing: the engine fails by itself."""


def _release(reducer: JobEngine, command: Resume) -> None:
    reducer.release(
        command.epoch,
        command.contributors,
        aggregator=command.aggregator,
        job=command.number,
        nonce=command.nonce,
    )


def report_when_done(future: Future[int], report: Report) -> None:
    """Report a future's result when it has one; the reducer reports its own failures otherwise."""

    def done(finished: Future[int]) -> None:
        if finished.exception() is None:
            report(finished.result())

    future.add_done_callback(done)
