"""INT v2.1 headers and Telemetry Report v2.0, read and built straight from the specifications' layouts."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from scapy.compat import raw
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw

INT_DSCP = 0x17
WIDE_BITS = (4, 5, 6)
OUTER_BYTES = 14 + 20 + 8
OUR_DOMAIN, HOP_BY_HOP_FLAG = 0x4D52, 0x8000
SOURCE_NUMBER, FORWARDING = 0x8000, 0x4000
"""Domain instructions of ours: the source's number, behind the stack; each hop's forwarding word."""
TYPE_MD, TYPE_MX = 1, 3


def bits_of(instructions: int) -> list[int]:
    """Return the numbers of the bits that are set; bit 0 is the most significant of 16."""
    return [bit for bit in range(16) if instructions & 0x8000 >> bit]


def hop_words(instructions: int) -> int:
    """Return the HopML of an instruction bitmap."""
    return sum(2 if bit in WIDE_BITS else 1 for bit in bits_of(instructions))


def domain_words(domain_instructions: int) -> int:
    """Return the words that each hop adds for our domain."""
    return int(domain_instructions & FORWARDING != 0)


def split_words(instructions: int, data: bytes) -> dict[int, int]:
    """Return one hop's metadata by instruction bit."""
    values: dict[int, int] = {}
    for bit in bits_of(instructions):
        size = 8 if bit in WIDE_BITS else 4
        values[bit], data = int.from_bytes(data[:size], "big"), data[size:]
    assert not data, f"{len(data)} bytes of metadata too many"
    return values


@dataclass(frozen=True, slots=True)
class IntHeaders:
    """Shim and MD or MX header, and the stack as it lies in the packet.

    `value` is the shim's last 16 bits; left out, the DSCP as NPT 0 has it. `length` counts words; left out, all.
    """

    instructions: int = 0xFF00
    remaining_hops: int = 8
    stack: bytes = b""
    dscp: int = 0x0A
    hop_ml: int | None = None
    discard: int = 0
    hops_exceeded: int = 0
    mtu_exceeded: int = 0
    domain_id: int = 0
    domain_instructions: int = 0
    domain_flags: int = 0
    type: int = 1
    npt: int = 0
    version: int = 2
    length: int | None = None
    value: int | None = None

    def encode(self) -> bytes:
        """Return the bytes behind the L4 header."""
        length = 3 + len(self.stack) // 4 if self.length is None else self.length
        value = self.dscp << 2 if self.value is None else self.value
        shim = struct.pack("!BBH", self.type << 4 | self.npt << 2, length, value)
        domain = (self.domain_id, self.domain_instructions, self.domain_flags)
        return shim + struct.pack("!IHHHH", self._first_word(), self.instructions, *domain) + self.stack

    def _first_word(self) -> int:
        if self.type == TYPE_MX:
            return self.version << 28 | self.discard << 27
        hop_ml = hop_words(self.instructions) + domain_words(self.domain_instructions)
        flags = self.discard << 11 | self.hops_exceeded << 10 | self.mtu_exceeded << 9
        return (
            self.version << 28
            | flags << 16
            | (hop_ml if self.hop_ml is None else self.hop_ml) << 8
            | self.remaining_hops
        )

    def hops(self) -> list[dict[int, int]]:
        """Return each hop's metadata by instruction bit, the newest first."""
        size = 4 * hop_words(self.instructions)
        assert size
        assert len(self.stack) % size == 0
        starts = range(0, len(self.stack), size)
        return [split_words(self.instructions, self.stack[at : at + size]) for at in starts]


def decode_int(data: bytes) -> tuple[IntHeaders, bytes]:
    """Return the INT headers at the start of an L4 payload, and what follows them; reserved bits must be zero."""
    kind, length, value = struct.unpack_from("!BBH", data)
    first, instructions, domain_id, domain_instructions, domain_flags = struct.unpack_from("!IHHHH", data, 4)
    assert kind & 3 == 0, "reserved bits of the shim"
    assert first >> 13 & 0xFFF == 0, "reserved bits of the MD header"
    end = 4 + 4 * length
    assert len(data) >= end, "the stack is cut off"
    headers = IntHeaders(
        instructions=instructions,
        remaining_hops=first & 0xFF,
        stack=data[16:end],
        dscp=value >> 2 & 0x3F,
        hop_ml=first >> 8 & 0x1F,
        discard=first >> 27 & 1,
        hops_exceeded=first >> 26 & 1,
        mtu_exceeded=first >> 25 & 1,
        domain_id=domain_id,
        domain_instructions=domain_instructions,
        domain_flags=domain_flags,
        type=kind >> 4,
        npt=kind >> 2 & 3,
        version=first >> 28,
        length=length,
        value=value,
    )
    return headers, data[end:]


def l4_of(packet: Packet) -> Packet:
    """Return the UDP or TCP layer."""
    l4: Packet = packet[TCP] if packet.haslayer(TCP) else packet[UDP]
    return l4


def read_int(frame: bytes) -> IntHeaders:
    """Return the INT headers of a marked frame."""
    packet = Ether(frame)
    dscp = (packet[IP].tos if packet.haslayer(IP) else packet[IPv6].tc) >> 2
    assert dscp == INT_DSCP
    return decode_int(raw(l4_of(packet).payload))[0]


def with_int(frame: bytes, headers: IntHeaders) -> bytes:
    """Return a plain frame with INT headers put in; lengths and checksums from scratch, as a host would."""
    packet = Ether(frame)
    payload = headers.encode() + raw(l4_of(packet).payload)
    if packet.haslayer(IP):
        packet[IP].tos = INT_DSCP << 2 | packet[IP].tos & 3
        del packet[IP].len, packet[IP].chksum
    else:
        packet[IPv6].tc = INT_DSCP << 2 | packet[IPv6].tc & 3
        del packet[IPv6].plen
    l4 = l4_of(packet)
    l4.remove_payload()
    if packet.haslayer(UDP):
        del l4.len
    if packet.haslayer(TCP) or l4.chksum != 0:
        del l4.chksum
    return raw(packet / Raw(payload))


@dataclass(frozen=True, slots=True)
class Report:
    """One Telemetry Report packet with one individual report, all fields as they lie in it."""

    outer: bytes
    version: int
    hardware_id: int
    sequence: int
    node_id: int
    report_type: int
    inner_type: int
    report_words: int
    flags: int
    metadata_bits: int
    domain_id: int
    domain_metadata_bits: int
    domain_status: int
    metadata: dict[int, int]
    domain_metadata: bytes
    inner: bytes

    def inner_frame(self) -> bytes:
        """Return the truncated packet behind an Ethernet header, so that scapy reads it."""
        return bytes(12) + (b"\x08\x00" if self.inner_type == 4 else b"\x86\xdd") + self.inner

    def inner_int(self) -> IntHeaders:
        """Return the INT headers of the truncated packet, behind which nothing may follow."""
        packet = Ether(self.inner_frame())
        l4_bytes = packet[TCP].dataofs * 4 if packet.haslayer(TCP) else 8
        ip_bytes = packet[IP].ihl * 4 if packet.haslayer(IP) else 40
        headers, rest = decode_int(self.inner[ip_bytes + l4_bytes :])
        assert rest == b"", "payload in the report"
        return headers


DROPPED, CONGESTED, TRACKED, INTERMEDIATE = 8, 4, 2, 1


def decode_report(frame: bytes) -> Report:
    """Return a report; asserts what every report has in common: lengths, outer headers, reserved bits."""
    packet = Ether(frame)
    assert (packet[IP].len, packet[UDP].len, packet[UDP].chksum) == (len(frame) - 14, len(frame) - 34, 0)
    assert (packet[IP].flags, packet[IP].ttl, packet[IP].tos) == ("DF", 64, 0)
    assert raw(IP(raw(packet[IP]))) == raw(packet[IP])
    data = frame[OUTER_BYTES:]
    group, node_id, types, report_words, metadata_words, flags = struct.unpack_from("!IIBBBB", data)
    metadata_bits, domain_id, domain_metadata_bits, domain_status = struct.unpack_from("!HHHH", data, 12)
    baseline_end, metadata_end = 20 + 4 * hop_words(metadata_bits), 20 + 4 * metadata_words
    words = (len(data) - 12) // 4
    assert (len(data) - 12) % 4 == 0
    assert report_words == min(words, 0xFF)
    assert flags & 0xF == 0
    return Report(
        outer=frame[:OUTER_BYTES],
        version=group >> 28,
        hardware_id=group >> 22 & 0x3F,
        sequence=group & 0x3FFFFF,
        node_id=node_id,
        report_type=types >> 4,
        inner_type=types & 0xF,
        report_words=report_words,
        flags=flags >> 4,
        metadata_bits=metadata_bits,
        domain_id=domain_id,
        domain_metadata_bits=domain_metadata_bits,
        domain_status=domain_status,
        metadata=split_words(metadata_bits, data[20:baseline_end]),
        domain_metadata=data[baseline_end:metadata_end],
        inner=data[metadata_end:],
    )
