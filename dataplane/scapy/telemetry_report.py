"""Telemetry Report v2.0: group header and individual reports, with their metadata and truncated packets.

https://github.com/p4lang/p4-applications/tree/master/telemetry/specs

The UDP port is a deployment's choice: 32766 here, `bind_layers(UDP, TelemetryReport, dport=...)` adds another.
"""

# scapy.contrib.description = Telemetry Report v2.0 (reports of In-band Network Telemetry)
# scapy.contrib.status = loads

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from scapy.base_classes import BasePacket
from scapy.fields import (
    BitEnumField,
    BitField,
    ByteEnumField,
    ByteField,
    ConditionalField,
    FlagsField,
    IntField,
    MultipleTypeField,
    PacketLenField,
    PacketListField,
    ShortField,
    XShortField,
    XStrLenField,
)
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, bind_layers

from dataplane.scapy import int_telemetry  # noqa: F401 - truncated packets carry INT
from dataplane.scapy.int_telemetry import FLAG_NAMES, LAST, Part, instruction_fields, metadata_words

REPORT_PORT = 32766
TO_THE_END = 0xFF

REPORT_TYPES = {0: "inner only", 1: "INT", 2: "IOAM"}
INNER_TYPES = {0: "none", 1: "TLV", 2: "domain", 3: "Ethernet", 4: "IPv4", 5: "IPv6"}
TLV_TYPES = {0: "domain", 1: "Ethernet", 2: "IPv4", 3: "IPv6"}
DROP_REASONS = {
    0: "unknown",
    1: "parser_error",
    2: "unknown_ethertype",
    3: "bad_ipv4_checksum",
    4: "int_at_edge",
    5: "int_malformed",
    6: "ttl_expired",
    7: "no_route",
    8: "int_discard",
    9: "queue_full",
    10: "mtu_exceeded",
    11: "report_at_edge",
    12: "source_spoofed",
}
"""Millrace's reasons, written by `make tables`; the specification leaves the numbers to the implementation."""


def _packet_field(kinds: dict[int, type[Packet]], kind_of: Callable[[Any], int], size_of: Callable[[Any], int]) -> Any:
    """Return a field `data` that is a packet if its type says so, else bytes."""

    def is_of(kind: int) -> Callable[[Any], bool]:
        return lambda pkt: kind_of(pkt) == kind

    none: Any = None
    packets = [(PacketLenField("data", none, layer, size_of), is_of(kind)) for kind, layer in kinds.items()]
    return packets, XStrLenField("data", b"", length_from=size_of)


class _PartsField(PacketListField):
    """Consecutive parts up to the end; `size_of` returns the declared length of the first of some bytes."""

    __slots__ = ["kind", "size_of"]

    def __init__(self, name: str, kind: type[Part], size_of: Callable[[bytes], int]) -> None:
        self.kind, self.size_of = kind, size_of
        super().__init__(name, [], kind)

    def getfield(self, pkt: Any, s: bytes) -> tuple[bytes, list[BasePacket]]:
        """Return an empty remainder, and the parts; a truncated last one keeps its actual length."""
        parts: list[BasePacket] = []
        while len(s) >= 4:
            size = self.size_of(s)
            parts.append(self.kind(s[:size], _parent=pkt))
            s = s[size:]
        return s, parts


class ReportTLV(Part):
    """A TLV of a report's inner contents: a truncated packet, or a domain's data."""

    name = "Telemetry Report TLV"
    fields_desc = [
        BitEnumField("type", 0, 4, TLV_TYPES),
        BitField("reserved", 0, 4),
        ByteField("length", None),
        XShortField("template", 0),
        MultipleTypeField(*_packet_field({1: Ether, 2: IP, 3: IPv6}, lambda pkt: pkt.type, lambda pkt: 4 * pkt.length)),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Pad the value to whole words and fill in the length."""
        pkt += bytes(-len(pkt) % 4)
        if self.length is None:
            pkt = pkt[:1] + struct.pack("!B", (len(pkt) - 4) // 4 & 0xFF) + pkt[2:]
        return pkt + pay


def _tlv_bytes(s: bytes) -> int:
    return 4 + 4 * s[1]


def _report_bytes(s: bytes) -> int:
    return len(s) if s[1] == TO_THE_END else 4 + 4 * s[1]


def _has_main(pkt: Any) -> bool:
    return bool(pkt.report_type == 1)


def _bits_of_report(pkt: Any, _: frozenset[str]) -> int:
    return int(pkt.metadata_bits) if _has_main(pkt) else 0


def _has_drop(pkt: Any) -> bool:
    return _has_main(pkt) and bool(int(pkt.metadata_bits) & LAST)


def _domain_bytes(pkt: Any) -> int:
    if not _has_main(pkt) or pkt.metadata_length is None:
        return 0
    return 4 * max(int(pkt.metadata_length) - metadata_words(int(pkt.metadata_bits)), 0)


def _inner_bytes(pkt: Any) -> int:
    head = 4 + (8 + 4 * pkt.metadata_length if _has_main(pkt) else 0)
    return max(len(pkt.original or b"") - head, 0)


_INNER_PACKETS, _INNER_BYTES = _packet_field({3: Ether, 4: IP, 5: IPv6}, lambda pkt: pkt.inner_type, _inner_bytes)


class IndividualReport(Part):
    """One report of a group; its lengths are computed unless they are given.

    `data` depends on `inner_type`: a list of TLVs, a truncated packet, or bytes. Metadata are present if their bit of
    `metadata_bits` is set; "last" is the dropped packet's queue and reason.
    """

    name = "Telemetry Report, individual"
    fields_desc = [
        BitEnumField("report_type", 1, 4, REPORT_TYPES),
        BitEnumField("inner_type", 4, 4, INNER_TYPES),
        ByteField("length", None),
        ByteField("metadata_length", None),
        BitField("D", 0, 1),
        BitField("Q", 0, 1),
        BitField("F", 0, 1),
        BitField("I", 0, 1),
        BitField("reserved", 0, 4),
        ConditionalField(FlagsField("metadata_bits", 0, 16, FLAG_NAMES), _has_main),
        ConditionalField(XShortField("domain_id", 0), _has_main),
        ConditionalField(XShortField("domain_bits", 0), _has_main),
        ConditionalField(XShortField("domain_status", 0), _has_main),
        *instruction_fields(_bits_of_report),
        ConditionalField(ByteField("drop_queue_id", 0xFF), _has_drop),
        ConditionalField(ByteEnumField("drop_reason", 0, DROP_REASONS), _has_drop),
        ConditionalField(ShortField("drop_padding", 0), _has_drop),
        XStrLenField("domain", b"", length_from=_domain_bytes),
        MultipleTypeField(
            [(_PartsField("data", ReportTLV, _tlv_bytes), lambda pkt: pkt.inner_type == 1), *_INNER_PACKETS],
            _INNER_BYTES,
        ),
    ]

    def post_build(self, pkt: bytes, pay: bytes) -> bytes:
        """Pad to whole words and fill in both lengths."""
        words = 0
        if _has_main(self):
            words = metadata_words(int(self.metadata_bits)) + len(self.domain) // 4
        length, metadata_length = pkt[1:3]
        if self.length is None:
            pkt += bytes(-len(pkt) % 4)
            length = min((len(pkt) - 4) // 4, TO_THE_END)
        if self.metadata_length is None:
            metadata_length = words & 0xFF
        return pkt[:1] + struct.pack("!BB", length, metadata_length) + pkt[3:] + pay


class TelemetryReport(Packet):
    """A report's group header and its individual reports."""

    name = "Telemetry Report"
    fields_desc = [
        BitField("version", 2, 4),
        BitField("hw_id", 0, 6),
        BitField("sequence", 0, 22),
        IntField("node_id", 0),
        _PartsField("reports", IndividualReport, _report_bytes),
    ]

    def mysummary(self) -> str:
        """Return a one-line summary: node, sequence, number of reports."""
        summary: str = self.sprintf("Telemetry Report node %node_id% #%sequence%")
        return f"{summary}, {len(self.reports)} report(s)"


bind_layers(UDP, TelemetryReport, dport=REPORT_PORT)
