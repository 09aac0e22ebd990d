"""CUBIC (RFC 9438): after a loss to 0.7, then a cubic function of time back to the old window and beyond.

Windows are in segments, as in the RFC, whose names appear in comments; times are in seconds since the start of this
congestion avoidance, its epoch. Three things follow Linux, not the RFC:

- the estimate of Reno's window always grows by 0.53 segments a round trip; section 4.3 switches to a whole one once it
  reaches the window before the loss;
- windows are whole segments: after a loss the window is rounded down, and it follows its curve once that is a segment
  ahead;
- before the first loss a window grows by at least a twentieth a round trip.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import cbrt, floor
from typing import Final

from dataplane.clock import NS_PER_S
from dataplane.fabric.virtual.tcp.congestion.hystart import Heard, Hystart
from dataplane.fabric.virtual.tcp.congestion.values import LEAST_WINDOW_SEGMENTS, UNLIMITED, Acked, slow_start_bytes

C: Final = 0.4
BETA: Final = 0.7
RENO_ALPHA: Final = 3 * (1 - BETA) / (1 + BETA)
MOST_GROWTH: Final = 1.5
"""Maximum growth per round trip (section 4.2)."""
LEAST_GROWTH: Final = 0.05
"""Minimum growth per round trip before the first loss."""


@dataclass(frozen=True, slots=True)
class Epoch:
    """A congestion avoidance: its start, and the curve that the window follows."""

    start_ns: int
    window: float  # cwnd_epoch
    plateau: float  # W_max
    climb_s: float  # K
    reno: float  # W_est
    heard_ns: int

    def curve(self, elapsed_s: float) -> float:
        """Return the window after a time (equation 1)."""
        return C * (elapsed_s - self.climb_s) ** 3 + self.plateau


@dataclass(frozen=True, slots=True)
class Cubic:
    """Window and threshold, window before the last loss, epoch (None outside), and HyStart (None without)."""

    mss_bytes: int
    window: float  # cwnd
    threshold: float = UNLIMITED  # ssthresh
    plateau: float = 0.0  # W_max
    epoch: Epoch | None = None
    counted: float = 0.0
    """Credit towards the next segment of window."""
    hystart: Hystart | None = None

    @classmethod
    def start(cls, mss_bytes: int, initial_segments: int, *, hystart: bool) -> Cubic:
        """See `CongestionControl`."""
        return cls(mss_bytes, float(initial_segments), hystart=Hystart() if hystart else None)

    @property
    def window_bytes(self) -> int:
        """See `CongestionControl`."""
        return int(self.window * self.mss_bytes)

    @property
    def threshold_bytes(self) -> int:
        """See `CongestionControl`."""
        return min(int(self.threshold * self.mss_bytes), UNLIMITED)

    def acked(self, heard: Acked) -> Cubic:
        """See `CongestionControl`."""
        if self.hystart is not None and heard.sample_ns is not None and self.window < self.threshold:
            self = self._started(heard, heard.sample_ns, self.hystart)  # noqa: PLW0642 - a value, and its next one
        if not heard.is_limited:
            return self._paused(heard.now_ns)
        if self.window < self.threshold:
            return replace(self, window=self.window + slow_start_bytes(heard, self.mss_bytes) / self.mss_bytes)
        epoch = self.epoch or self._begun(heard.now_ns)
        segments = heard.nbytes / self.mss_bytes
        reno = epoch.reno + RENO_ALPHA * segments / self.window
        ahead_s = (heard.now_ns - epoch.start_ns + heard.rtt_ns) / NS_PER_S
        target = min(max(floor(epoch.curve(ahead_s)), floor(reno)), MOST_GROWTH * self.window)
        least = 0.0 if self.plateau else LEAST_GROWTH
        counted = self.counted + max(target / self.window - 1, least) * segments
        window = self.window + floor(counted)
        epoch = replace(epoch, reno=reno, heard_ns=heard.now_ns)
        return replace(self, window=window, counted=counted % 1, epoch=epoch)

    def reduced(self, flight_bytes: int) -> Cubic:
        """See `CongestionControl`; sections 4.6 and 4.7 (fast convergence)."""
        plateau = self.window * (1 + BETA) / 2 if self.window < self.plateau else self.window
        threshold = max(float(floor(flight_bytes * BETA / self.mss_bytes)), float(LEAST_WINDOW_SEGMENTS))
        return replace(self, window=threshold, threshold=threshold, plateau=plateau, epoch=None, counted=0.0)

    def timed_out(self, flight_bytes: int, *, again: bool) -> Cubic:
        """See `CongestionControl`; section 4.8: the next epoch begins at its plateau."""
        reduced = self if again else self.reduced(flight_bytes)
        hystart = None if self.hystart is None else Hystart()
        return replace(reduced, window=1.0, plateau=0.0, epoch=None, hystart=hystart)

    def restarted(self, initial_bytes: int) -> Cubic:
        """See `CongestionControl`; section 4.1 of RFC 5681 holds for CUBIC, too."""
        return replace(self, window=min(self.window, initial_bytes / self.mss_bytes), epoch=None)

    def _started(self, heard: Acked, sample_ns: int, hystart: Hystart) -> Cubic:
        """Return the state after HyStart has processed an acknowledgment in slow start, which it may end."""
        after = hystart.heard(
            Heard(heard.now_ns, sample_ns, heard.position, heard.sent), self.window_bytes, self.mss_bytes
        )
        return replace(self, hystart=after, threshold=self.window if after.is_found else self.threshold)

    def _begun(self, now_ns: int) -> Epoch:
        """Return an epoch that starts now (section 4.2, equation 2)."""
        plateau = max(self.plateau, self.window)
        return Epoch(now_ns, self.window, plateau, cbrt((plateau - self.window) / C), self.window, now_ns)

    def _paused(self, now_ns: int) -> Cubic:
        """Return the same state with idle time excluded from the epoch (section 5.8)."""
        epoch = self.epoch
        if epoch is None:
            return self
        later = replace(epoch, start_ns=epoch.start_ns + now_ns - epoch.heard_ns, heard_ns=now_ns)
        return replace(self, epoch=later)
