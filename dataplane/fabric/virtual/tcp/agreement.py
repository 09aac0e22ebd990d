"""Negotiation in both ends' SYNs and its outcome: options, segment size, window scales, ECN."""

from __future__ import annotations

from typing import Final

from dataplane.fabric.virtual.tcp.segments import ACK, CWR, ECE, Segment
from dataplane.fabric.virtual.tcp.settings import TcpSettings
from dataplane.wire.tcp import MIN_SIZE
from dataplane.wire.tcp_options import MAX_SHIFT, TcpOptions

LEAST_MSS: Final = 536
"""Segment size that every host accepts in the absence of the option (RFC 9293, section 3.7.1)."""
STAMP_BYTES: Final = 12
MOST_WINDOW: Final = 0xFFFF
"""Largest window that the header's 16 bits can express."""


class Agreement:
    """Options that this end offers, then those both ends support; shifts are the two ends' window scales."""

    def __init__(self, settings: TcpSettings, ip_version: int) -> None:
        self.own_mss = settings.mtu_bytes - MIN_SIZE - (20 if ip_version == 4 else 40)
        self.mss = self.own_mss
        self.timestamps, self.sack, self.ecn = settings.timestamps, settings.sack, settings.ecn
        self.scaling = settings.window_scaling
        self.own_shift = _shift_of(settings.receive_buffer_bytes) if self.scaling else 0
        self.peer_shift = 0

    def hear(self, syn: Segment) -> None:
        """Process the other end's SYN."""
        options = syn.options
        self.timestamps = self.timestamps and options.timestamps is not None
        self.sack = self.sack and options.sack_permitted
        self.scaling = self.scaling and options.window_scale is not None
        self.peer_shift = (options.window_scale or 0) if self.scaling else 0
        self.own_shift = self.own_shift if self.scaling else 0
        self.ecn = self.ecn and syn.flags & (ECE | CWR) == (ECE if syn.flags & ACK else ECE | CWR)
        self.mss = min(self.own_mss, options.mss or LEAST_MSS) - (STAMP_BYTES if self.timestamps else 0)

    def options(self, stamps: tuple[int, int]) -> TcpOptions:
        """Return the options of this end's SYN."""
        return TcpOptions(
            mss=self.own_mss,
            window_scale=self.own_shift if self.scaling else None,
            sack_permitted=self.sack,
            timestamps=stamps if self.timestamps else None,
        )


def _shift_of(buffer_bytes: int) -> int:
    """Return the smallest window scale that can express a buffer's size."""
    return next((shift for shift in range(MAX_SHIFT) if buffer_bytes >> shift <= MOST_WINDOW), MAX_SHIFT)
