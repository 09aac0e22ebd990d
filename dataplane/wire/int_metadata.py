"""One hop's metadata, in an INT-MD stack (INT v2.1, section 5.8) or a telemetry report (v2.0, section 3.3.1).

A 16-bit bitmap, bit 0 the most significant, says which values are present, in this order:
0 node id32 | 1 level-1 ingress16 egress16 | 2 hop latency32 | 3 queue id8 occupancy24 | 4 ingress timestamp64 |
5 egress timestamp64 | 6 level-2 ingress32 egress32 | 7 egress TX utilisation32 | 8 buffer id8 occupancy24 |
9-14 reserved32 each | domain-specific words | 15 checksum complement32 (stack) or, in a report, at the place of bit 15
of the baseline, before the domain's words: queue id8 drop reason8 padding16.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import absent, fit, need, present

HEADER: Final = "INT metadata"

NODE_ID: Final = 0x8000
LEVEL1_INTERFACES: Final = 0x4000
HOP_LATENCY: Final = 0x2000
QUEUE: Final = 0x1000
INGRESS_TIMESTAMP: Final = 0x0800
EGRESS_TIMESTAMP: Final = 0x0400
LEVEL2_INTERFACES: Final = 0x0200
TX_UTILISATION: Final = 0x0100
BUFFER: Final = 0x0080
RESERVED: Final = 0x007E
LAST: Final = 0x0001
"""Bit 15: the checksum complement of a stack, queue and drop reason of a report."""

LAYOUT: Final[tuple[tuple[int, tuple[tuple[str, int], ...]], ...]] = (
    (NODE_ID, (("node_id", 32),)),
    (LEVEL1_INTERFACES, (("ingress_interface", 16), ("egress_interface", 16))),
    (HOP_LATENCY, (("hop_latency", 32),)),
    (QUEUE, (("queue_id", 8), ("queue_occupancy", 24))),
    (INGRESS_TIMESTAMP, (("ingress_timestamp", 64),)),
    (EGRESS_TIMESTAMP, (("egress_timestamp", 64),)),
    (LEVEL2_INTERFACES, (("level2_ingress_interface", 32), ("level2_egress_interface", 32))),
    (TX_UTILISATION, (("tx_utilisation", 32),)),
    (BUFFER, (("buffer_id", 8), ("buffer_occupancy", 24))),
)
"""Bits of the bitmap, and the fields with their lengths in bits that each asks for."""


@dataclass(frozen=True, slots=True)
class HopMetadata:
    """One hop's values; None for those not requested and those the hop lacks (all ones on the wire).

    Units are the node's; ours are ns (latency, timestamps), frames (occupancies) and bytes per window (TX utilisation).
    """

    node_id: int | None = None
    ingress_interface: int | None = None
    egress_interface: int | None = None
    hop_latency: int | None = None
    queue_id: int | None = None
    queue_occupancy: int | None = None
    ingress_timestamp: int | None = None
    egress_timestamp: int | None = None
    level2_ingress_interface: int | None = None
    level2_egress_interface: int | None = None
    tx_utilisation: int | None = None
    buffer_id: int | None = None
    buffer_occupancy: int | None = None
    reserved: tuple[int | None, ...] = ()
    domain: bytes = b""
    checksum_complement: int | None = None
    drop_queue_id: int | None = None
    drop_reason: int | None = None

    def encode(self, bitmap: int, *, report: bool = False) -> bytes:
        """Encode the bitmap's words and the domain's, None as all ones; raise WireError if a value does not fit."""
        _, fields, reserved = _plan(bitmap)
        if len(self.domain) % 4 or len(self.reserved) != reserved:
            raise WireError(HEADER, f"domain words or the {reserved} reserved words do not agree with the bitmap")
        words = b"".join(self._field(name, ones.bit_length()) for name, _, ones in fields)
        words += b"".join(_number("reserved", word, 32) for word in self.reserved)
        if not bitmap & LAST:
            return words + self.domain
        if report:
            return words + self._field("drop_queue_id", 8) + self._field("drop_reason", 8) + b"\0\0" + self.domain
        return words + self.domain + self._field("checksum_complement", 32)

    def _field(self, name: str, bits: int) -> bytes:
        value: int | None = getattr(self, name)
        return _number(name, value, bits)


def baseline_words(bitmap: int) -> int:
    """Return the number of 4-byte words that the bitmap asks for, bit 15 included."""
    double = bitmap & (INGRESS_TIMESTAMP | EGRESS_TIMESTAMP | LEVEL2_INTERFACES)
    return bitmap.bit_count() + double.bit_count()


def decode(data: bytes, offset: int, bitmap: int, size: int, *, report: bool = False) -> HopMetadata:
    """Return the hop whose metadata takes `size` bytes at `offset`; words beyond the bitmap's are the domain's.

    Raises WireError if the bytes are cut short or fewer than the bitmap asks for.
    """
    need(HEADER, data, offset, size)
    baseline = 4 * baseline_words(bitmap)
    extra = size - baseline
    if extra < 0 or size % 4:
        raise WireError(HEADER, f"{size} bytes a hop are not what bitmap {bitmap:#06x} asks for", offset=offset)
    last = bitmap & LAST
    complement = b"" if report or not last else data[offset + size - 4 : offset + size]
    domain_at = offset + baseline - len(complement)
    values: dict[str, int | None] = {}
    if complement:
        values["checksum_complement"] = absent(int.from_bytes(complement, "big"), 32)
    elif last:
        values["drop_queue_id"], values["drop_reason"] = absent(data[domain_at - 4], 8), absent(data[domain_at - 3], 8)
    words, fields, reserved = _plan(bitmap)
    number = int.from_bytes(data[offset : offset + 4 * words], "big")
    for name, shift, ones in fields:
        value = number >> shift & ones
        values[name] = None if value == ones else value
    spare = tuple(absent(number >> 32 * (reserved - 1 - i) & 0xFFFF_FFFF, 32) for i in range(reserved))
    return HopMetadata(reserved=spare, domain=bytes(data[domain_at : domain_at + extra]), **values)


@lru_cache(maxsize=256)
def _plan(bitmap: int) -> tuple[int, tuple[tuple[str, int, int], ...], int]:
    """Return the words of bits 0 to 14, their fields as (name, shift, all ones) of one number, the reserved words."""
    reserved = (bitmap & RESERVED).bit_count()
    words = baseline_words(bitmap & ~LAST)
    shift = 32 * words
    fields: list[tuple[str, int, int]] = []
    for bit, group in LAYOUT:
        for name, bits in group if bitmap & bit else ():
            shift -= bits
            fields.append((name, shift, (1 << bits) - 1))
    return words, tuple(fields), reserved


def _number(name: str, value: int | None, bits: int) -> bytes:
    number = present(value, bits)
    fit(HEADER, **{name: (number, bits)})
    return number.to_bytes(bits // 8, "big")
