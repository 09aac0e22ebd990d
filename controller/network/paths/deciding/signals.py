"""Signs from the collector that trigger a round of decisions at once, ahead of its turn.

A round is triggered by a packet that met a queue, by a report of a congested queue or of a packet that a full queue
refused, and by flows that outgrow a link. Such rounds are rate-limited, more strictly while they find nothing to move.
In a large fabric there is a short queue somewhere at any time; one much longer than those that came to nothing is news.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from collectors.values import FlowKey, NetworkSignals

LEAST_GAP_NS: Final = 20_000_000
"""Between two rounds out of turn, where the last one moved something."""

_NEWS: Final = 2.0
"""A queue this many times as long as those of rounds that moved nothing triggers one regardless of these."""
_REMEMBERED_NS: Final = 1_000_000_000
_RAREST_INTERVALS: Final = 10
"""While short queues persist and nothing moves, they trigger a round this rarely: the usual rounds see them, too."""


Outgrows = Callable[[Mapping[FlowKey, float]], bool]


class Signals:
    """Collects signs, and tells when a round is due; times are the caller's, in ns."""

    def __init__(self, *, queue_frames: float, interval_ns: int) -> None:
        self._queue_frames, self._interval_ns = queue_frames, interval_ns
        self._gap_ns = LEAST_GAP_NS
        self._last_ns: int | None = None
        self._vain_frames, self._vain_ns = 0, 0
        self._newest_vain_frames = 0
        self._frames = 0
        self.woken = 0

    def observe(self, signals: NetworkSignals, now_ns: int, outgrows: Outgrows) -> bool:
        """Return whether a round is due now, and count it as made.

        `outgrows` returns whether flows that have grown by these packets per second outgrow a link.
        """
        if not self._is_due(signals, now_ns, outgrows):
            return False
        self._last_ns, self._frames = now_ns, signals.queue_frames or 0
        # While signals persist, rounds out of turn become rarer.
        self._gap_ns = min(2 * self._gap_ns, max(_RAREST_INTERVALS * self._interval_ns, LEAST_GAP_NS))
        self.woken += 1
        return True

    def _is_due(self, signals: NetworkSignals, now_ns: int, outgrows: Outgrows) -> bool:
        if self._is_too_soon(now_ns, LEAST_GAP_NS):
            return False
        if now_ns - self._vain_ns > _REMEMBERED_NS:
            # The queue of a round a moment ago is no news yet, or each second would have two rounds in vain.
            is_known = self._is_too_soon(now_ns, _REMEMBERED_NS)
            self._vain_frames, self._vain_ns = self._newest_vain_frames if is_known else 0, now_ns
        if (signals.queue_frames or 0) >= _NEWS * max(self._vain_frames, self._queue_frames, 1.0):
            return True
        if self._found_a_queue(signals) and not self._is_too_soon(now_ns, self._gap_ns):
            return True
        return not self._is_too_soon(now_ns, min(self._gap_ns, self._interval_ns)) and outgrows(signals.grown)

    def decided(self, *, moved: bool) -> None:
        """Record a round, in turn or not: after one that moved something, rounds may follow closely."""
        if moved:
            self._gap_ns, self._vain_frames, self._newest_vain_frames = LEAST_GAP_NS, 0, 0
        elif self._frames:
            self._vain_frames = max(self._vain_frames, self._frames)
            self._newest_vain_frames = self._frames
        self._frames = 0

    def _is_too_soon(self, now_ns: int, gap_ns: int) -> bool:
        return self._last_ns is not None and 0 <= now_ns - self._last_ns < gap_ns

    def _found_a_queue(self, signals: NetworkSignals) -> bool:
        frames = signals.queue_frames
        return signals.queue_reported or signals.queue_full or (frames is not None and frames >= self._queue_frames)
