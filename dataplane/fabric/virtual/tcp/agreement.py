"""What both ends of a connection have said in their SYNs, and what follows: options, segment size, scales, ECN."""

from __future__ import annotations

from typing import Final

from dataplane.fabric.virtual.tcp.segments import ACK, CWR, ECE, Segment
from dataplane.fabric.virtual.tcp.settings import TcpSettings
from dataplane.wire.tcp import MIN_SIZE
from dataplane.wire.tcp_options import MAX_SHIFT, TcpOptions

LEAST_MSS: Final = 536
"""What every host takes that says nothing (RFC 9293, section 3.7.1)."""
STAMP_BYTES: Final = 12
MOST_WINDOW: Final = 0xFFFF
"""What a header's 16 bits say."""


class Agreement:
    """What this end offers, then what both have; shifts are those of windows, of this end's and of the other's."""

    def __init__(self, settings: TcpSettings, ip_version: int) -> None:
        self.own_mss = settings.mtu_bytes - MIN_SIZE - (20 if ip_version == 4 else 40)
        self.mss = self.own_mss
        self.timestamps, self.sack, self.ecn = settings.timestamps, settings.sack, settings.ecn
        self.scaling = settings.window_scaling
        self.own_shift = _shift_of(settings.receive_buffer_bytes) if self.scaling else 0
        self.peer_shift = 0

    def hear(self, syn: Segment) -> None:
        """Note what the other end's SYN says."""
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
    """Return the least window scale with which a buffer can be told."""
    return next((shift for shift in range(MAX_SHIFT) if buffer_bytes >> shift <= MOST_WINDOW), MAX_SHIFT)
