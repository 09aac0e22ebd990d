"""Inband Flow Analyzer 2.0: its header behind the IP header, its metadata behind TCP's or UDP's.

(draft-kumar-ippm-ifa-08, sections 3.3 and 3.4.) Header: Version4=2 GlobalNamespace4 NextHeader8 Flags8 MaxLength8.
Metadata header: RequestVector8 ActionVector8 HopLimit8 CurrentLength8 (words of the stack). Each node's metadata, the
newest first, of namespaces whose hops have 8 words: LocalNamespace4 DeviceId20 TTL8 | Speed4 Congestion2 Queue6
Seconds20 | EgressPort16 IngressPort16 | Nanoseconds32 | ResidenceNs32 | 3 words of the device's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import need
from dataplane.wire.int_metadata import HopMetadata

HEADER: Final = "IFA"
PROTOCOLS: Final = frozenset({131, 253})
"""IP protocols in use: 131 of the draft's authors, 253 (experiments, RFC 3692) of devices."""
VERSION: Final = 2
SIZE: Final = 4
METADATA_SIZE: Final = 4
HOP_BYTES: Final = 32
_FRAGMENT: Final = 0x10
"""Flag: the metadata are a fragment of several packets'."""
_TAIL_STAMP: Final = 0x08
"""Flag: nodes add their metadata at the packet's end."""


@dataclass(frozen=True, slots=True)
class Ifa:
    """The header; `protocol` is that of what follows."""

    namespace: int
    protocol: int
    is_fragment: bool
    has_tail_stamps: bool


def is_at(data: bytes, at: int) -> bool:
    """Return whether the version of a header of an experimental protocol is IFA's."""
    return at < len(data) and data[at] >> 4 == VERSION


def decode(data: bytes, at: int) -> Ifa:
    """Return the header at an offset; raise WireError if it is cut or of another version."""
    need(HEADER, data, at, SIZE)
    if data[at] >> 4 != VERSION:
        raise WireError(HEADER, f"version {data[at] >> 4} is not {VERSION}", offset=at)
    flags = data[at + 2]
    return Ifa(data[at] & 0xF, data[at + 1], bool(flags & _FRAGMENT), bool(flags & _TAIL_STAMP))


def stack_bytes(data: bytes, at: int) -> int:
    """Return the length of the metadata header at an offset and of its stack; raise WireError if they are cut."""
    need(HEADER, data, at, METADATA_SIZE)
    need(HEADER, data, at + METADATA_SIZE, 4 * data[at + 3])
    return METADATA_SIZE + 4 * data[at + 3]


def decode_stack(data: bytes, at: int) -> tuple[HopMetadata, ...]:
    """Return the hops at an offset, the newest first; raise WireError if they are cut or of another length."""
    size = stack_bytes(data, at) - METADATA_SIZE
    at += METADATA_SIZE
    if size % HOP_BYTES:
        raise WireError(HEADER, f"a stack of {size} bytes is not of hops of {HOP_BYTES}", offset=at - 1)
    return tuple(_hop(data, hop) for hop in range(at, at + size, HOP_BYTES))


def _hop(data: bytes, at: int) -> HopMetadata:
    device, traffic, ports, _, residence_ns = (
        int.from_bytes(data[word : word + 4], "big") for word in range(at, at + 20, 4)
    )
    return HopMetadata(
        node_id=device >> 8 & 0xFFFFF,
        ingress_interface=ports & 0xFFFF,
        egress_interface=ports >> 16,
        hop_latency=residence_ns,
        queue_id=traffic >> 20 & 0x3F,
    )
