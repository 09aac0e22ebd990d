"""The collector's clock, which can be set back while it takes what has waited for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dataplane.clock import Clock


class ReceiveClock:
    """Gives the time of another clock or, while reports are taken that came earlier, when those came.

    What is taken later never came earlier, and nothing came before this clock was made.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set_ns: int | None = None
        self._latest_ns = clock.now_ns()

    def now_ns(self) -> int:
        """Return the time, or when what is being taken came."""
        return self._clock.now_ns() if self._set_ns is None else self._set_ns

    @contextmanager
    def set_back(self, age_ns: int) -> Iterator[None]:
        """Stand still at the time that was `age_ns` ago."""
        now_ns = self._clock.now_ns()
        self._set_ns = self._latest_ns = min(max(now_ns - age_ns, self._latest_ns), now_ns)
        try:
            yield
        finally:
            self._set_ns = None
