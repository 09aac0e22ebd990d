"""IOAM trace options in IPv6 (RFC 9197, section 4.4, in options of RFC 9486).

IPv6 option: Type8 0x11 or 0x31, Length8; Reserved8 IoamType8 (0 pre-allocated, 1 incremental trace); then
Namespace16 NodeLength5 Overflow1 Loopback1 Active1 Reserved1 RemainingLength7 | TraceType24 Reserved8; free words
(pre-allocated only), then each node's data, the newest first. Lengths are in words of 4 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from dataplane.clock import NS_PER_S
from dataplane.errors import WireError
from dataplane.wire.fields import absent, need
from dataplane.wire.int_metadata import HopMetadata

HEADER: Final = "IOAM trace"
OPTION_TYPES: Final = frozenset({0x11, 0x31})
_PRE_ALLOCATED, _INCREMENTAL = 0, 1
_BEFORE: Final = 2
"""Bytes of an option's value before the trace: reserved, and IOAM's type."""
SIZE: Final = 8

_NODE, _PORTS, _SECONDS, _FRACTION, _TRANSIT_DELAY, _WIDE_NODE, _WIDE_PORTS, _WIDE_DATA = 0, 1, 2, 3, 4, 8, 9, 10
_SNAPSHOT: Final = 22
_WIDE: Final = frozenset({_WIDE_NODE, _WIDE_PORTS, _WIDE_DATA})
"""Bits of the trace type whose data have two words; those of all others have one."""
_DELAY_OVERFLOWED: Final = 1 << 31


class TimestampFormat(StrEnum):
    """Format of a namespace's timestamps (RFC 9197, section 5)."""

    POSIX = "posix"
    """Seconds and microseconds, as Linux has it."""

    PTP = "ptp"
    """Seconds and nanoseconds."""

    NTP = "ntp"
    """Seconds since 1900, and 2^-32 of one."""


_NS_OF_FRACTION: Final[Mapping[TimestampFormat, Callable[[int], int]]] = {
    TimestampFormat.POSIX: lambda fraction: fraction * 1000,
    TimestampFormat.PTP: lambda fraction: fraction,
    TimestampFormat.NTP: lambda fraction: fraction * NS_PER_S >> 32,
}
_NTP_EPOCH_S: Final = 2_208_988_800


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace option; `hops` the newest first. `overflow`: nodes found no room left."""

    namespace: int
    hops: tuple[HopMetadata, ...]
    overflow: bool


def find(
    data: bytes, at: int, end: int, namespace: int, stamps: TimestampFormat = TimestampFormat.POSIX
) -> Trace | None:
    """Return a namespace's first trace among the options of a header from `at` to `end`, None if there is none.

    Raises WireError if options are cut, or a trace is malformed.
    """
    while at < end:
        kind = data[at]
        if kind == 0:  # Pad1 has no length
            at += 1
            continue
        need("IPv6 option", data[:end], at, 2)
        value_at, at = at + 2, at + 2 + data[at + 1]
        if at > end:
            raise WireError("IPv6 option", f"{at - value_at} bytes reach beyond the header", offset=value_at - 1)
        if kind in OPTION_TYPES and at - value_at >= _BEFORE and data[value_at + 1] in {_PRE_ALLOCATED, _INCREMENTAL}:
            need(HEADER, data[:at], value_at + _BEFORE, SIZE)
            if int.from_bytes(data[value_at + _BEFORE : value_at + _BEFORE + 2], "big") == namespace:
                return _decode(data, value_at + _BEFORE, at, stamps, has_room=data[value_at + 1] == _PRE_ALLOCATED)
    return None


def _decode(data: bytes, at: int, end: int, stamps: TimestampFormat, *, has_room: bool) -> Trace:
    namespace, head, kinds = (int.from_bytes(data[at + i : at + j], "big") for i, j in ((0, 2), (2, 4), (4, 7)))
    bits = [bit for bit in range(24) if kinds >> (23 - bit) & 1]
    words = sum(2 if bit in _WIDE else 1 for bit in bits if bit < _SNAPSHOT)
    if head >> 11 != words:
        raise WireError(HEADER, f"node length {head >> 11} is not the {words} words of the trace type", offset=at + 2)
    at += SIZE + (4 * (head & 0x7F) if has_room else 0)
    if at > end:
        raise WireError(HEADER, "the free words reach beyond the option", offset=end)
    hops = tuple(_hop(data, node, bits, stamps) for node in _nodes(data, at, end, bits, words))
    return Trace(namespace, hops, bool(head & 0x0400))


def _nodes(data: bytes, at: int, end: int, bits: list[int], words: int) -> Iterator[int]:
    """Yield the offset of each node's data."""
    while at < end:
        need(HEADER, data[:end], at, 4 * words)
        if not words:
            raise WireError(HEADER, "there are data of nodes, but the trace type asks for none", offset=at)
        yield at
        at += 4 * words
        if _SNAPSHOT in bits:
            need(HEADER, data[:end], at, 4)
            at += 4 + 4 * data[at]
            if at > end:
                raise WireError(HEADER, "a state snapshot reaches beyond the option", offset=end)


def _hop(data: bytes, at: int, bits: list[int], stamps: TimestampFormat) -> HopMetadata:
    values: dict[int, int] = {}
    for bit in bits:
        if bit < _SNAPSHOT:
            size = 8 if bit in _WIDE else 4
            values[bit], at = int.from_bytes(data[at : at + size], "big"), at + size
    delay_ns = values.get(_TRANSIT_DELAY, _DELAY_OVERFLOWED)
    ports, bits_each = (values[_PORTS], 16) if _PORTS in values else (values.get(_WIDE_PORTS, -1), 32)
    node, node_bits = (values[_NODE], 24) if _NODE in values else (values.get(_WIDE_NODE, -1), 56)
    return HopMetadata(
        node_id=_known(node, node_bits),
        level2_ingress_interface=_known(ports >> bits_each, bits_each),
        level2_egress_interface=_known(ports, bits_each),
        hop_latency=None if delay_ns & _DELAY_OVERFLOWED else delay_ns,
        ingress_timestamp=_time_ns(values.get(_SECONDS, -1), values.get(_FRACTION, -1), stamps),
    )


def _known(value: int, bits: int) -> int | None:
    """Return the lowest bits of a value, None for all ones: the node does not know it."""
    return absent(value & (1 << bits) - 1, bits)


def _time_ns(seconds: int, fraction: int, stamps: TimestampFormat) -> int | None:
    if _known(seconds, 32) is None or _known(fraction, 32) is None:
        return None
    epoch_s = _NTP_EPOCH_S if stamps is TimestampFormat.NTP else 0
    return max(0, (seconds - epoch_s) * NS_PER_S + _NS_OF_FRACTION[stamps](fraction))
