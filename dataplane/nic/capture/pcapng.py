"""Reads pcapng files (draft-ietf-opsawg-pcapng): sections of blocks, each with its type and its length at both ends.

Reads section headers (their byte-order magic applies to all that follows), interface descriptions (link type, unit of
time, length of the frame check sequence), and enhanced, simple and obsolete packets; skips other blocks, and counts
those that may hold packets.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from dataplane.clock import NS_PER_S
from dataplane.errors import PortError

SECTION_MAGIC = 0x0A0D0D0A
_BYTE_ORDER_MAGIC = 0x1A2B3C4D
_INTERFACE, _OBSOLETE_PACKET, _SIMPLE_PACKET, _ENHANCED_PACKET = 1, 2, 3, 6
_NO_PACKETS = {SECTION_MAGIC, _INTERFACE, 4, 5, 9, 10}
"""Section headers, interfaces, names, statistics, journal entries and secrets: blocks that hold no packets."""
_OPTION_TIME_RESOLUTION, _OPTION_FCS, _OPTION_TIME_OFFSET = 9, 13, 14
_OPTION_PACKET_FLAGS = 2
_ETHERNET_LINK = 1
_LONGEST_BLOCK_BYTES = 1 << 24


@dataclass(frozen=True, slots=True)
class _Interface:
    """An interface description: link type, longest capture, units per second, seconds to add, bytes of FCS."""

    link: int
    longest: int
    units_per_second: int
    offset_s: int
    fcs_bytes: int

    def time_ns(self, high: int, low: int) -> int:
        """Return nanoseconds since 1970."""
        return self.offset_s * NS_PER_S + (high << 32 | low) * NS_PER_S // self.units_per_second


@dataclass(frozen=True, slots=True)
class _Block:
    """A block's type, the bytes between its two lengths, and where it begins in the file."""

    kind: int
    body: bytes
    start: int


def without_fcs(frame: bytes, length: int, fcs_bytes: int) -> tuple[bytes, int]:
    """Return a frame and its length on the wire without the frame check sequence, of which a cut frame has less."""
    if not fcs_bytes:
        return frame, length
    length = max(length, len(frame), fcs_bytes) - fcs_bytes  # some writers give a length of 0
    return frame[:length], length


def read_pcapng(file: BinaryIO, name: str, unread: Counter[int]) -> Iterator[tuple[bytes, int, int]]:
    """Yield (frame, nanoseconds since 1970, bytes on the wire); `file` is positioned after the first block's type.

    Counts in `unread` the types of skipped blocks that may hold packets. Raises PortError, naming the file and the byte
    where it is damaged.
    """
    order = "<"
    interfaces: list[_Interface] = []
    kind: int | None = SECTION_MAGIC
    while kind is not None:
        start = file.tell() - 4
        try:
            if kind == SECTION_MAGIC:
                order = _read_order(file)
                interfaces = []
            block = _read_block(file, order, kind, start)
            if kind == SECTION_MAGIC:
                _check_version(block.body, order)
            elif kind == _INTERFACE:
                interfaces.append(_read_interface(block.body, order))
            elif kind == _ENHANCED_PACKET:
                yield _read_enhanced(block.body, order, interfaces)
            elif kind == _OBSOLETE_PACKET:
                yield _read_obsolete(block.body, order, interfaces)
            elif kind == _SIMPLE_PACKET:
                yield _read_simple(block.body, order, interfaces)
            elif kind not in _NO_PACKETS:
                unread[kind] += 1
            kind = _read_kind(file, order)
        except (struct.error, ValueError) as error:
            problem = str(error) if isinstance(error, ValueError) else "a block is too short"
            raise PortError(f"{name}: at byte {start}: {problem}") from None


def _read_kind(file: BinaryIO, order: str) -> int | None:
    data = file.read(4)
    if not data:
        return None
    kind: int = struct.unpack(order + "I", data)[0]
    return kind


def _read_order(file: BinaryIO) -> str:
    """Return the byte order of a section by peeking past its length."""
    position = file.tell()
    data = file.read(8)[4:]
    file.seek(position)
    for order in "<>":
        if data == struct.pack(order + "I", _BYTE_ORDER_MAGIC):
            return order
    raise ValueError("a section has no byte order")


def _check_version(body: bytes, order: str) -> None:
    major, minor = struct.unpack_from(order + "HH", body, 4)
    if major != 1:
        raise ValueError(f"pcapng version {major}.{minor} is not supported, only 1")


def _read_block(file: BinaryIO, order: str, kind: int, start: int) -> _Block:
    (nbytes,) = struct.unpack(order + "I", file.read(4))
    if not 12 <= nbytes <= _LONGEST_BLOCK_BYTES or nbytes % 4:
        raise ValueError(f"impossible block of {nbytes} bytes: the file is damaged")
    body = file.read(nbytes - 12)
    tail = file.read(4)
    if len(body) + len(tail) < nbytes - 8:
        raise ValueError("the file ends inside a block")
    if struct.unpack(order + "I", tail) != (nbytes,):
        raise ValueError("a block's two lengths differ: the file is damaged")
    return _Block(kind, body, start)


def _read_interface(body: bytes, order: str) -> _Interface:
    link, longest = struct.unpack_from(order + "HxxI", body)
    resolution, offset_s, fcs = 6, 0, 0
    for code, value in _options(body, 8, order):
        if code == _OPTION_TIME_RESOLUTION and len(value) == 1:
            resolution = value[0]
        elif code == _OPTION_TIME_OFFSET and len(value) == 8:
            (offset_s,) = struct.unpack(order + "q", value)
        elif code == _OPTION_FCS and len(value) == 1:
            fcs = value[0]
    base = 2 if resolution & 0x80 else 10
    # Bits, says the draft, whose example is 4; some writers take it for bytes.
    return _Interface(link, longest, base ** (resolution & 0x7F), offset_s, fcs // 8 if fcs >= 8 else fcs)


def _options(body: bytes, offset: int, order: str) -> Iterator[tuple[int, bytes]]:
    while offset + 4 <= len(body):
        code, nbytes = struct.unpack_from(order + "HH", body, offset)
        if code == 0:
            break
        yield code, body[offset + 4 : offset + 4 + nbytes]
        offset += 4 + nbytes + -nbytes % 4


def _read_enhanced(body: bytes, order: str, interfaces: list[_Interface]) -> tuple[bytes, int, int]:
    number, high, low, kept, length = struct.unpack_from(order + "IIIII", body)
    interface = _find(interfaces, number)
    frame, length = without_fcs(_cut(body, 20, kept), length, _fcs_bytes(body, 20 + kept, interface, order))
    return frame, interface.time_ns(high, low), length


def _read_obsolete(body: bytes, order: str, interfaces: list[_Interface]) -> tuple[bytes, int, int]:
    """Read a Packet Block, which has a number of drops beside a shorter number of the interface."""
    number, _, high, low, kept, length = struct.unpack_from(order + "HHIIII", body)
    interface = _find(interfaces, number)
    frame, length = without_fcs(_cut(body, 20, kept), length, _fcs_bytes(body, 20 + kept, interface, order))
    return frame, interface.time_ns(high, low), length


def _fcs_bytes(body: bytes, end: int, interface: _Interface, order: str) -> int:
    """Return the length of a packet's FCS: that in its own flags, an option after its bytes, or the interface's."""
    fcs_bytes = interface.fcs_bytes
    for code, value in _options(body, end + -end % 4, order):
        if code == _OPTION_PACKET_FLAGS and len(value) == 4:
            (flags,) = struct.unpack(order + "I", value)
            fcs_bytes = flags >> 5 & 0xF or fcs_bytes
    return fcs_bytes


def _read_simple(body: bytes, order: str, interfaces: list[_Interface]) -> tuple[bytes, int, int]:
    (length,) = struct.unpack_from(order + "I", body)
    interface = _find(interfaces, 0)
    frame, length = without_fcs(_cut(body, 4, min(length, interface.longest or length)), length, interface.fcs_bytes)
    return frame, 0, length


def _find(interfaces: list[_Interface], number: int) -> _Interface:
    if number >= len(interfaces):
        raise ValueError(f"a frame of interface {number}, which has no description")
    if interfaces[number].link != _ETHERNET_LINK:
        raise ValueError(f"link type {interfaces[number].link} is not supported, only 1 (Ethernet)")
    return interfaces[number]


def _cut(body: bytes, start: int, nbytes: int) -> bytes:
    if start + nbytes > len(body):
        raise ValueError("a frame is longer than its block: the file is damaged")
    return body[start : start + nbytes]
