"""Deaths and restarts of one daemon in the last hour."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from controller.apps.up.values import Incident

KEPT_S: Final = 3600.0
"""Age at which an incident is forgotten."""
_MOST: Final = 1024
"""Bound for a daemon that dies in a loop: an hour of deaths at the longest wait between restarts fits."""


class Incidents:
    """Remembers deaths and restarts; the oldest first."""

    def __init__(
        self,
        now_s: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Measure ages with `now_s`, and show times of `wall`, which may be set back."""
        self._now_s, self._wall = now_s, wall
        self._kept: deque[tuple[float, Incident]] = deque(maxlen=_MOST)

    def note(self, how: str, *, by_request: bool = False) -> None:
        """Remember an end of the daemon."""
        self._kept.append((self._now_s(), Incident(self._wall(), how, by_request)))

    def note_ready(self) -> None:
        """Remember that it is ready again after its last end."""
        if self._kept and self._kept[-1][1].ready_after_s is None:
            since_s, incident = self._kept[-1]
            self._kept[-1] = since_s, replace(incident, ready_after_s=self._now_s() - since_s)

    def recent(self) -> tuple[Incident, ...]:
        """Return those of the last hour."""
        oldest_s = self._now_s() - KEPT_S
        while self._kept and self._kept[0][0] < oldest_s:
            self._kept.popleft()
        return tuple(incident for _, incident in self._kept)
