"""The collector's clock, which can be set back while it takes waiting reports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import get_ident

from dataplane.clock import Clock


class ReceiveClock:
    """Gives the time of another clock or, to the thread that takes earlier reports, their time of arrival.

    Times never go back, and are never before this clock was made.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set_ns: int | None = None
        self._thread = 0
        self._latest_ns = clock.now_ns()

    def now_ns(self) -> int:
        """Return the time, or the arrival time of the reports being taken."""
        set_ns = self._set_ns
        return self._clock.now_ns() if set_ns is None or self._thread != get_ident() else set_ns

    @contextmanager
    def set_back(self, age_ns: int) -> Iterator[None]:
        """Stand still, for the calling thread, at the time that was `age_ns` ago."""
        now_ns = self._clock.now_ns()
        self._latest_ns = min(max(now_ns - age_ns, self._latest_ns), now_ns)
        with self.set_to(self._latest_ns):
            yield

    @contextmanager
    def set_to(self, time_ns: int) -> Iterator[None]:
        """Stand still, for the calling thread, at a time."""
        self._thread, self._set_ns = get_ident(), time_ns
        try:
            yield
        finally:
            self._set_ns = None
