"""Signs from the collector that trigger a round of decisions at once, ahead of its turn.

A round is triggered by a packet that met a queue, by a report of a congested queue or of a packet that a full queue
refused, and by flows that outgrow a link. Such rounds are rate-limited, more strictly while they find nothing to move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from collectors.values import FlowKey, NetworkSignals

LEAST_GAP_NS: Final = 20_000_000
"""Between two rounds out of turn, where the last one moved something."""


Outgrows = Callable[[Mapping[FlowKey, float]], bool]


class Signals:
    """Collects signs, and tells when a round is due; times are the caller's, in ns."""

    def __init__(self, *, queue_frames: float, interval_ns: int) -> None:
        self._queue_frames, self._interval_ns = queue_frames, interval_ns
        self._gap_ns = LEAST_GAP_NS
        self._last_ns: int | None = None
        self.woken = 0

    def observe(self, signals: NetworkSignals, now_ns: int, outgrows: Outgrows) -> bool:
        """Return whether a round is due now, and count it as made.

        `outgrows` returns whether flows that have grown by these packets per second outgrow a link.
        """
        if self._is_too_soon(now_ns) or not (self._found_a_queue(signals) or outgrows(signals.grown)):
            return False
        self._last_ns = now_ns
        # While signals persist, rounds out of turn become rarer, down to the usual interval.
        self._gap_ns = min(2 * self._gap_ns, max(self._interval_ns, LEAST_GAP_NS))
        self.woken += 1
        return True

    def decided(self, *, moved: bool) -> None:
        """Record a round, in turn or not: after one that moved something, rounds may follow closely."""
        if moved:
            self._gap_ns = LEAST_GAP_NS

    def _is_too_soon(self, now_ns: int) -> bool:
        return self._last_ns is not None and 0 <= now_ns - self._last_ns < self._gap_ns

    def _found_a_queue(self, signals: NetworkSignals) -> bool:
        frames = signals.queue_frames
        return signals.queue_reported or signals.queue_full or (frames is not None and frames >= self._queue_frames)
