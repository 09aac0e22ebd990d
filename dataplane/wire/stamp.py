"""Test packets of STAMP (RFC 8762, sections 4.2 and 4.3), with or without authentication.

Sender: Sequence32 Timestamp64 ErrorEstimate16 and zeros to 44 bytes. Reflector: Sequence32 Timestamp64 ErrorEstimate16
Zero16 | ReceiveTimestamp64 | SenderSequence32 SenderTimestamp64 SenderErrorEstimate16 Zero16 SenderTTL8 Zero24.
Authenticated packets have 112 bytes, with zeros between the fields, and at their end the first half of HMAC-SHA-256
over the 96 bytes before. Timestamps are NTP's, or with Z in their error estimate seconds and nanoseconds (PTP's).
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from typing import Final

from dataplane.clock import NS_PER_S
from dataplane.errors import WireError
from dataplane.wire.fields import need

HEADER: Final = "STAMP"
UDP_PORT: Final = 862
SIZE: Final = 44
AUTHENTICATED_SIZE: Final = 112
_SIGNED: Final = 96
_NTP_EPOCH_S: Final = 2_208_988_800
_PTP: Final = 0x4000
"""Z of an error estimate: the timestamp is PTP's."""
ERROR_ESTIMATE: Final = _PTP | 1
"""Ours: not synchronised to UTC as far as we know, PTP's format, multiplier 1 (0 is not allowed)."""
_SENDER: Final = struct.Struct("!IQH30x")
_SENDER_SIGNED: Final = struct.Struct("!I12xQH70x")
_REFLECTOR: Final = struct.Struct("!IQH2xQIQH2xB3x")
_REFLECTOR_SIGNED: Final = struct.Struct("!I12xQH6xQ8xI12xQH6xB15x")


@dataclass(frozen=True, slots=True)
class Request:
    """A sender's packet, its time and error estimate as they stand in it, to be repeated by the answer."""

    sequence: int
    timestamp: int
    error_estimate: int = ERROR_ESTIMATE

    @classmethod
    def at(cls, sequence: int, sent_ns: int) -> Request:
        """Return a packet of ours that is sent at a time, in ns since 1970."""
        return cls(sequence, _ptp(sent_ns))

    @property
    def sent_ns(self) -> int:
        """The time of sending, in ns since 1970."""
        return _time_ns(self.timestamp, self.error_estimate)

    def encode(self, key: bytes | None = None) -> bytes:
        """Return the packet; with a key it is authenticated."""
        layout = _SENDER if key is None else _SENDER_SIGNED
        return _signed(layout.pack(self.sequence, self.timestamp, self.error_estimate), key)


@dataclass(frozen=True, slots=True)
class Answer:
    """A reflector's packet: its times of reception and sending, and what it was asked."""

    sequence: int
    received_ns: int
    sent_ns: int
    request: Request
    ttl: int

    def encode(self, key: bytes | None = None) -> bytes:
        """Return the packet; with a key it is authenticated."""
        layout = _REFLECTOR if key is None else _REFLECTOR_SIGNED
        asked = self.request
        about = asked.sequence, asked.timestamp, asked.error_estimate, self.ttl
        own = self.sequence, _ptp(self.sent_ns), ERROR_ESTIMATE, _ptp(self.received_ns)
        return _signed(layout.pack(*own, *about), key)


def decode_request(data: bytes, key: bytes | None = None) -> Request:
    """Return a sender's packet; raise WireError if it is cut, or not signed with the key."""
    _check(data, key)
    return Request(*(_SENDER if key is None else _SENDER_SIGNED).unpack_from(data))


def decode_answer(data: bytes, key: bytes | None = None) -> Answer:
    """Return a reflector's packet; raise WireError if it is cut, or not signed with the key."""
    _check(data, key)
    layout = _REFLECTOR if key is None else _REFLECTOR_SIGNED
    sequence, stamp, estimate, received, asked, asked_stamp, asked_estimate, ttl = layout.unpack_from(data)
    request = Request(asked, asked_stamp, asked_estimate)
    return Answer(sequence, _time_ns(received, estimate), _time_ns(stamp, estimate), request, ttl)


def _check(data: bytes, key: bytes | None) -> None:
    need(HEADER, data, 0, SIZE if key is None else AUTHENTICATED_SIZE)
    if key is not None and not hmac.compare_digest(_mark(data, key), data[_SIGNED:AUTHENTICATED_SIZE]):
        raise WireError(HEADER, "it is not signed with our key", offset=_SIGNED)


def _signed(packet: bytes, key: bytes | None) -> bytes:
    return packet if key is None else packet + _mark(packet, key)


def _mark(packet: bytes, key: bytes) -> bytes:
    return hmac.digest(key, packet[:_SIGNED], "sha256")[:16]


def _ptp(time_ns: int) -> int:
    return (time_ns // NS_PER_S) << 32 | time_ns % NS_PER_S


def _time_ns(stamp: int, estimate: int) -> int:
    seconds, fraction = stamp >> 32, stamp & 0xFFFF_FFFF
    if estimate & _PTP:
        return seconds * NS_PER_S + fraction
    return (seconds - _NTP_EPOCH_S) * NS_PER_S + (fraction * NS_PER_S >> 32)
