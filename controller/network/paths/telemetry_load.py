"""Load of telemetry itself on links: bytes that grow with each hop, and reports on their way to the collector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

import msgspec

from dataplane.config import Strict

Mode = Literal["md", "hop-by-hop", "mx", "xd"]

_SHIM_AND_HEADER_BYTES: Final = 4 + 12
"""INT's shim and its MD or MX header (INT v2.1, sections 5.6 and 5.7)."""
_MX_BYTES: Final = 4 + 12
_REPORT_BYTES: Final = 24 + 14 + 20 + 8 + 8 + 12
"""A report's own: Ethernet with preamble and gap, IPv4, UDP, group and individual header (Telemetry Report v2.0)."""
_PACKET_BYTES: Final = 64
"""Approximate bytes that a report holds of its packet, apart from INT's headers."""
_LONG: Final = frozenset({4, 5, 6})
"""Instructions that take two words a hop: both time stamps and the level 2 interfaces."""

DEFAULT_PACKET_BYTES: Final = 1000
"""Assumed length of a flow's frames if it was not measured."""


class TelemetryLoad(Strict, frozen=True):
    """Settings of telemetry's data in packets and of its reporters, with the keys of the controller's watch rules."""

    sample_every: Annotated[int, msgspec.Meta(ge=1, le=0xFFFFFFFF)] = 1
    """One packet in this many carries telemetry."""
    instructions: tuple[Annotated[int, msgspec.Meta(ge=0, le=15)], ...] = (0, 1, 2, 3, 4, 5, 7)
    """Instruction bits that each hop answers."""
    mode: Mode = "md"
    """Mode of telemetry: hops add to the packet (md) or report by themselves."""

    @property
    def hop_bytes(self) -> int:
        """Bytes added by one hop: a word for each instruction, two for the long ones."""
        return 4 * sum(2 if bit in _LONG else 1 for bit in self.instructions)

    def carried_bytes(self, hop: int) -> float:
        """Return the average number of bytes that telemetry adds to a packet on the link after this many hops."""
        if self.mode == "xd":
            return 0.0
        if self.mode != "md":
            return _MX_BYTES / self.sample_every
        return (_SHIM_AND_HEADER_BYTES + hop * self.hop_bytes) / self.sample_every

    def reports(self, switches: Sequence[int]) -> tuple[tuple[int, float], ...]:
        """Return the switches of a path that report a flow's packets, with the average bytes on the wire per packet."""
        if self.mode == "md":
            return ((switches[-1], self._report_bytes(len(switches))),)
        return tuple((switch, self._report_bytes(1)) for switch in switches)

    def _report_bytes(self, hops: int) -> float:
        return (_REPORT_BYTES + _PACKET_BYTES + hops * self.hop_bytes) / self.sample_every
