"""VXLAN header, 8 bytes, with the generic protocol extension (RFC 7348; draft-ietf-nvo3-vxlan-gpe-09, section 3).

R2 Version2=0 I1 P1 B1 O1 Reserved16 NextProtocol8 | VNI24 Reserved8.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "vxlan-gpe"
SIZE: Final = 8
UDP_PORT: Final = 4790
"""VXLAN-GPE's UDP destination port; that of VXLAN without the extension is 4789."""

NEXT_IPV4: Final = 0x01
NEXT_IPV6: Final = 0x02
NEXT_ETHERNET: Final = 0x03
NEXT_INT: Final = 0x82
"""In-band network telemetry, as INT v2.1 proposes (section 5.7.3)."""


@dataclass(frozen=True, slots=True)
class VxlanGpe:
    """A VXLAN-GPE header; `next_protocol` None (P clear) is plain VXLAN, before an Ethernet frame."""

    vni: int
    next_protocol: int | None = NEXT_ETHERNET
    has_vni: bool = True
    is_bum: bool = False
    is_oam: bool = False

    @property
    def size(self) -> int:
        """Length in bytes."""
        return SIZE

    def encode(self) -> bytes:
        """Return the header's 8 bytes, reserved bits 0; raise WireError for a value that does not fit."""
        fit(HEADER, vni=(self.vni, 24), next_protocol=(self.next_protocol or 0, 8))
        has_next = self.next_protocol is not None
        flags = self.has_vni << 3 | has_next << 2 | self.is_bum << 1 | self.is_oam
        first = flags << 24 | (self.next_protocol or 0)
        return (first << 32 | self.vni << 8).to_bytes(SIZE, "big")


def decode(data: bytes, offset: int = 0) -> VxlanGpe:
    """Return the header at `offset`; raise WireError if it is cut short or of another version."""
    need(HEADER, data, offset, SIZE)
    words = int.from_bytes(data[offset : offset + SIZE], "big")
    flags = words >> 56
    if flags >> 4 & 3:
        raise WireError(HEADER, f"version is {flags >> 4 & 3}, not 0", offset=offset)
    return VxlanGpe(
        vni=words >> 8 & 0xFF_FFFF,
        # Without the P bit the field means nothing.
        next_protocol=words >> 32 & 0xFF if flags & 4 else None,
        has_vni=bool(flags & 8),
        is_bum=bool(flags & 2),
        is_oam=bool(flags & 1),
    )
