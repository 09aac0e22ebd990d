"""INT metadata as Scapy fields: a hop's entry on an INT-MD stack, and its values in a telemetry report.

INT v2.1, section 5.8, and Telemetry Report v2.0, section 3.3.1.
"""

# scapy.contrib.description = In-band Network Telemetry (INT) metadata
# scapy.contrib.status = library

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scapy.fields import BitField, ConditionalField
from scapy.packet import Packet

INSTRUCTIONS = (
    "node_id",
    "level1",
    "hop_latency",
    "queue",
    "ingress_timestamp",
    "egress_timestamp",
    "level2",
    "tx_utilization",
    "buffer",
    "reserved9",
    "reserved10",
    "reserved11",
    "reserved12",
    "reserved13",
    "reserved14",
    "last",
)
"""The instruction bits' names, most significant (bit 0) first; "last": checksum complement, or drop reason."""

FLAG_NAMES = list(reversed(INSTRUCTIONS))
"""In FlagsField's order: the least significant bit first."""

LAST = 0x0001
_FIELDS: dict[str, tuple[tuple[str, int], ...]] = {
    "node_id": (("node_id", 32),),
    "level1": (("ingress_interface", 16), ("egress_interface", 16)),
    "hop_latency": (("hop_latency", 32),),
    "queue": (("queue_id", 8), ("queue_occupancy", 24)),
    "ingress_timestamp": (("ingress_timestamp", 64),),
    "egress_timestamp": (("egress_timestamp", 64),),
    "level2": (("level2_ingress_interface", 32), ("level2_egress_interface", 32)),
    "tx_utilization": (("tx_utilization", 32),),
    "buffer": (("buffer_id", 8), ("buffer_occupancy", 24)),
    **{name: ((name, 32),) for name in INSTRUCTIONS[9:15]},
}


class Part(Packet):
    """One of several consecutive parts that know their own length."""

    def extract_padding(self, s: bytes) -> tuple[bytes, bytes]:
        """Leave the remainder to the next part."""
        return b"", s


def metadata_words(bits: int) -> int:
    """Return the number of words for a bitmap, bit 15 included: two for timestamps and level 2 interfaces."""
    return bits.bit_count() + (bits & 0x0E00).bit_count()


def instruction_fields(bits_of: Callable[[Any, frozenset[str]], int]) -> list[ConditionalField]:
    """Return the fields of instruction bits 0 to 14, each present if its bit is set; all ones is "not available".

    `bits_of` returns a packet's bitmap, given the names of the fields in question.
    """
    found: list[ConditionalField] = []
    for place, (_, group) in enumerate(_FIELDS.items()):
        condition = _asked(bits_of, 0x8000 >> place, frozenset(name for name, _ in group))
        found += [ConditionalField(BitField(name, (1 << size) - 1, size), condition) for name, size in group]
    return found


def _asked(bits_of: Callable[[Any, frozenset[str]], int], bit: int, names: frozenset[str]) -> Callable[[Any], bool]:
    return lambda packet: bool(bits_of(packet, names) & bit)
