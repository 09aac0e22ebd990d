"""Payloads that look like what the switches insert, or parse: every header of the standards, whole, cut off, too long.

A header is made for the room behind it, so that its length fields can be set at and around their limits.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import product

Header = Callable[[random.Random, int], bytes]
"""Makes a header; the second argument is the payload's bytes from the header's first one on."""

PAYLOAD_BYTES = (0, 1, 3, 4, 8, 12, 15, 16, 17, 20, 23, 24, 25, 28, 31, 32, 33, 40, 48, 64, 100, 255, 404, 1000)
LARGE_BYTES = (*PAYLOAD_BYTES, 1400, 8900)
"""With what nearly fills a frame of 1,500 bytes, or a jumbo one."""
OFFSETS = (0, 0, 0, 0, 8, 8, 8, 4, 12, 16, 20, 24, 28, 32)
OUR_DOMAIN = 0x4D52


def word_limits(room_bytes: int) -> tuple[int, ...]:
    """Return shim lengths at and around what an INT header needs, the payload has, and the field holds."""
    words = (room_bytes - 4) // 4
    around = (words - 1, words, words + 1)
    return (0, 1, 2, 3, 4, 5, *(number for number in around if 0 <= number <= 0xFF), 0x7F, 0xFE, 0xFF)


def shim(rng: random.Random, room_bytes: int, *, length: int | None = None) -> bytes:
    """Return a shim of INT v2.1, mostly one that switches would take for theirs."""
    kind = rng.choice((1, 1, 1, 3, 3, 0, 2, 15))
    npt = rng.choice((0, 0, 0, 1, 2, 3))
    reserved = rng.choice((0, 0, 0, 1, 2, 3))
    words = rng.choice(word_limits(room_bytes)) if length is None else length
    value = rng.choice((0, 0x5C, 6, 17, 0x8003, 4789, 5000, 0x0800, rng.getrandbits(16)))
    return struct.pack("!BBH", kind << 4 | npt << 2 | reserved, words, value)


def int_header(rng: random.Random) -> bytes:
    """Return an MD or MX header."""
    version = rng.choice((2, 2, 2, 2, 2, 0, 1, 3, 15))
    flags = rng.choice((0, 0, 0, 8, 4, 2, 14))
    instructions = rng.choice((0, 0x8000, 0xFF00, 0xDD00, 0x0001, 0xFFFF, rng.getrandbits(16)))
    hop_words = rng.choice((0, 1, 8, rng.getrandbits(5)))
    domain = rng.choice((0, 0, OUR_DOMAIN, OUR_DOMAIN, rng.getrandbits(16)))
    bits = rng.choice((0, 0, 0x8000, 0xC000, rng.getrandbits(16)))
    domain_flags = rng.choice((0, 0, 0x8000, 0x4000, 0xC000))
    first = version << 28 | flags << 24 | hop_words << 8 | rng.choice((0, 1, 8, 255))
    return struct.pack("!IHHHH", first, instructions, domain, bits, domain_flags)


def int_headers(rng: random.Random, room_bytes: int) -> bytes:
    """Return a shim and what follows it."""
    return shim(rng, room_bytes) + int_header(rng) + rng.randbytes(rng.choice((0, 4, 8, 24)))


def behind_marker(marker: int) -> Header:
    """Return INT behind a probe marker."""
    return lambda rng, room_bytes: marker.to_bytes(8, "big") + int_headers(rng, room_bytes - 8)


def good_int(rng: random.Random, room_bytes: int) -> bytes:
    """Return headers that a switch takes for INT wherever their mark is, and that end with or before the payload."""
    most = max(3, (room_bytes - 4) // 4)
    words = rng.choice((3, 4, most, most, rng.randint(3, most)))
    first = 2 << 28 | 8 << 8 | 8
    kind = rng.choice((1, 3)) << 4 | rng.choice((0, 0, 1, 2)) << 2
    header = struct.pack("!BBHIHHHH", kind, min(words, 0xFF), 6, first, 0xFF00, 0, 0, 0)
    return header + rng.randbytes(24)


def good_behind_marker(marker: int) -> Header:
    """Return what switches take for INT behind a probe marker."""

    def make(rng: random.Random, room_bytes: int) -> bytes:
        payload = good_int(rng, room_bytes - 8)
        return marker.to_bytes(8, "big") + bytes([payload[0] & 0xF0]) + payload[1:]

    return make


def udp(rng: random.Random, room_bytes: int) -> bytes:
    """Return a UDP header."""
    length = rng.choice((0, 7, 8, room_bytes - 1, room_bytes, room_bytes + 1, 0xFFFF)) & 0xFFFF
    return struct.pack("!HHHH", rng.getrandbits(16), rng.choice((4789, 4790, 6081, 5599, 19777)), length, 0)


def tcp(rng: random.Random, room_bytes: int) -> bytes:
    """Return a TCP header."""
    offset = rng.choice((0, 4, 5, 6, 15, min(15, room_bytes // 4)))
    return struct.pack("!HHIIBBHHH", 80, 5599, rng.getrandbits(32), 0, offset << 4, 0x18, 500, rng.getrandbits(16), 0)


def ipv4(rng: random.Random, room_bytes: int) -> bytes:
    """Return an IPv4 header."""
    length = rng.choice((0, 19, 20, room_bytes, room_bytes + 1, 0xFFFF)) & 0xFFFF
    return struct.pack("!BBHIBBHII", 0x45, 0x5C, length, 0, 64, rng.choice((6, 17, 47)), 0, 0x0A000001, 0x0A000002)


def ipv6(rng: random.Random, room_bytes: int) -> bytes:
    """Return an IPv6 header."""
    length = rng.choice((0, max(0, room_bytes - 40), 0xFFFF))
    return struct.pack("!IHBB", 0x65C00000, length, rng.choice((6, 17, 44)), 64) + rng.randbytes(32)


def gre(rng: random.Random, room_bytes: int) -> bytes:
    """Return a GRE header, with INT behind it."""
    flags = rng.choice((0, 0x80, 0x20, 0x10, 0xB0, 0x40))
    options = 4 * sum(flags >> bit & 1 for bit in (7, 5, 4))
    header = struct.pack("!BBH", flags, rng.choice((0, 0, 1)), rng.choice((0x0800, 0x6558, 0x88B5)))
    return header + rng.randbytes(options) + int_headers(rng, room_bytes - 4 - options)


def vxlan(rng: random.Random, room_bytes: int) -> bytes:
    """Return a VXLAN or VXLAN-GPE header, with INT behind it."""
    header = bytes((rng.choice((8, 12, 0, 4, 255)), 0, 0, rng.choice((0, 3, 0x82)))) + rng.randbytes(3) + b"\0"
    return header + int_headers(rng, room_bytes - 8)


def geneve(rng: random.Random, room_bytes: int) -> bytes:
    """Return a Geneve header whose option is INT's (class 0x0103)."""
    option = int_header(rng) + rng.randbytes(4)
    words = rng.choice((0, 3, 4, 5, 31, (room_bytes - 12) // 4 & 31))
    head = struct.pack("!BBHI", rng.choice((5, 0, 63)), 0, 0x6558, 0x12345600)
    return head + struct.pack("!HBB", 0x0103, rng.choice((1, 2, 3)), words) + option


def ethernet(rng: random.Random, room_bytes: int) -> bytes:
    """Return an Ethernet header, or one with a VLAN tag."""
    return rng.randbytes(12) + rng.choice((b"\x08\0", b"\x86\xdd", b"\x81\0\0\x2a\x08\0"))


def contribution(rng: random.Random, room_bytes: int) -> bytes:
    """Return the header of a sum's part (p4/aggregation)."""
    first = 1 << 4 | rng.choice((0, 1, 2, 3, 4, 5, 9))
    return struct.pack("!BBHIHHBBH", first, 0, 7, rng.getrandbits(32), 1, 1, 1 << 4 | rng.choice((0, 1, 5)), 0, 0)


def named(rng: random.Random, room_bytes: int) -> bytes:
    """Return the header of named content (p4/store)."""
    head = bytes((1 << 4 | rng.choice((0, 1, 2, 3, 4, 5, 9)), rng.choice((0, 0x10, 0x40, 0x50)), 0, 0))
    return head + rng.randbytes(36)


def report(rng: random.Random, room_bytes: int) -> bytes:
    """Return the beginning of a telemetry report."""
    return struct.pack("!IIBBBBHHHH", 2 << 28, 1, 1 << 4 | 3, 20, 6, 0, 0x2000, 0, 0, 0) + rng.randbytes(12)


def noise(rng: random.Random, room_bytes: int) -> bytes:
    """Return a few bytes of anything."""
    return rng.randbytes(rng.choice((1, 4, 16)))


def headers_for(markers: Sequence[int]) -> tuple[Header, ...]:
    """Return every header there is, INT several times: alone, and behind each of these probe markers."""
    marked = [make(marker) for marker in markers for make in (behind_marker, good_behind_marker)]
    others = (udp, tcp, ipv4, ipv6, gre, vxlan, geneve, ethernet, contribution, named, report, noise)
    return (int_headers, int_headers, good_int, *marked, *others)


def draw(rng: random.Random, headers: Sequence[Header], sizes: Sequence[int] = PAYLOAD_BYTES) -> bytes:
    """Return a payload of one to three headers that may overlap, cut off where the payload ends."""
    size = rng.choice(sizes) if rng.random() < 0.7 else rng.randrange(300)
    data = bytearray(rng.randbytes(size) if rng.random() < 0.5 else size)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.choice(OFFSETS) if rng.random() < 0.8 else rng.randrange(max(1, size))
        if at < size:
            header = rng.choice(headers)(rng, size - at)
            data[at : at + len(header)] = header
    return bytes(data[:size])


def every(seed: int, headers: Sequence[Header], sizes: Sequence[int] = (25, 64, 100)) -> Iterator[bytes]:
    """Yield each header at each offset of payloads of some sizes, and INT there with each length about its limits."""
    rng = random.Random(f"{seed}/every")
    for size, header in product(sizes, dict.fromkeys(headers)):
        for at in range(size):
            data = bytearray(size)
            made = header(rng, size - at)
            data[at : at + len(made)] = made
            yield bytes(data[:size])
    for size, front, kind in product(sizes, (0, 8, 16), (0x10, 0x30, 0x14, 0x18)):
        for words in word_limits(size - front):
            data = bytearray(size)
            made = struct.pack("!BBHI", kind, words, 6, 2 << 28)
            data[front : front + len(made)] = made
            yield bytes(data[:size])
