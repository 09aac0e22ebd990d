"""Reno: slow start, then one segment more each round trip; half after a loss (RFC 5681, bytes counted by RFC 3465)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from dataplane.fabric.virtual.tcp.congestion.values import LEAST_WINDOW_SEGMENTS, UNLIMITED, Acked, slow_start_bytes


@dataclass(frozen=True, slots=True)
class Reno:
    """The window, the threshold, and the bytes acknowledged since the window last grew."""

    mss_bytes: int
    window_bytes: int
    threshold_bytes: int = UNLIMITED
    counted_bytes: int = 0

    @classmethod
    def start(cls, mss_bytes: int, initial_segments: int, *, hystart: bool) -> Reno:  # noqa: ARG003 - Reno has none
        """See `CongestionControl`."""
        return cls(mss_bytes, initial_segments * mss_bytes)

    def acked(self, heard: Acked) -> Reno:
        """See `CongestionControl`."""
        if not heard.is_limited:
            return self
        if self.window_bytes < self.threshold_bytes:
            return replace(self, window_bytes=self.window_bytes + slow_start_bytes(heard, self.mss_bytes))
        counted = self.counted_bytes + heard.nbytes
        if counted < self.window_bytes:
            return replace(self, counted_bytes=counted)
        grown = self.window_bytes + self.mss_bytes
        return replace(self, window_bytes=grown, counted_bytes=counted - self.window_bytes)

    def reduced(self, flight_bytes: int) -> Reno:
        """See `CongestionControl`; equation 4 of RFC 5681."""
        threshold = max(flight_bytes // 2, LEAST_WINDOW_SEGMENTS * self.mss_bytes)
        return replace(self, window_bytes=threshold, threshold_bytes=threshold, counted_bytes=0)

    def timed_out(self, flight_bytes: int, *, again: bool) -> Reno:
        """See `CongestionControl`; a repeated timeout says nothing new about the path (RFC 5681, section 3.1)."""
        reduced = self if again else self.reduced(flight_bytes)
        return replace(reduced, window_bytes=self.mss_bytes, counted_bytes=0)

    def restarted(self, initial_bytes: int) -> Reno:
        """See `CongestionControl`; section 4.1 of RFC 5681."""
        return replace(self, window_bytes=min(self.window_bytes, initial_bytes), counted_bytes=0)
