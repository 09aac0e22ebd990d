"""A flow's rate from the packets that were measured: bytes over a sliding window."""

from __future__ import annotations

from collections import deque
from typing import Final

FRAMING_BYTES: Final = 38
"""What Ethernet adds to an IP packet on the wire: header 14, checksum 4, preamble 8, gap 12."""

MAX_SAMPLES: Final = 4096
_LEAST_SHARE: Final = 4
"""A rate is told after this part (one over) of the window: a single packet is not a rate."""


class RateMeter:
    """Bytes of the last `window_ns`, at most `MAX_SAMPLES` packets; times must not decrease."""

    def __init__(self, window_ns: int) -> None:
        self._window_ns = window_ns
        self._samples: deque[tuple[int, int]] = deque()
        self._bytes = 0
        self._first_ns: int | None = None

    def add(self, now_ns: int, nbytes: int) -> None:
        """Count a packet that was seen now, with the bytes of those that it stands for."""
        if self._first_ns is None:
            self._first_ns = now_ns
        self._samples.append((now_ns, nbytes))
        self._bytes += nbytes
        self._prune(now_ns)

    def rate_bps(self, now_ns: int) -> int | None:
        """Return bit/s over the window, or over the flow's life while it is younger; None while it is too young."""
        self._prune(now_ns)
        if self._first_ns is None:
            return None
        span_ns = min(now_ns - self._first_ns, self._window_ns)
        if span_ns * _LEAST_SHARE < self._window_ns:
            return None
        return self._bytes * 8 * 1_000_000_000 // span_ns

    def is_dry(self, limit_ns: int) -> bool:
        """Return whether nothing was counted since `limit_ns`."""
        return not self._samples or self._samples[-1][0] < limit_ns

    def _prune(self, now_ns: int) -> None:
        samples = self._samples
        while samples and (samples[0][0] <= now_ns - self._window_ns or len(samples) > MAX_SAMPLES):
            self._bytes -= samples.popleft()[1]
