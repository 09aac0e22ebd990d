"""Limits of jobs that run without a keeper of ours, counted from when they were first seen running."""

from __future__ import annotations

import time
from collections.abc import Callable


class Watch:
    """Start times of jobs, by this process's clock: after a restart of the agent their time begins again."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._since_s: dict[str, float] = {}

    def over_s(self, job: str, limit_s: float | None) -> float | None:
        """Return the limit of a running job that has exceeded it."""
        ran_s = self._clock_s() - self._since_s.setdefault(job, self._clock_s())
        return limit_s if limit_s is not None and ran_s >= limit_s else None

    def forget(self, job: str) -> None:
        """Drop the record of a job."""
        self._since_s.pop(job, None)
