"""Header of named content: 40 bytes over UDP, then up to 1,024 bytes of content, which switches do not inspect.

Version4=1 Kind4 Quarters4 Size4 Reason8 Reserved8 | Segment32 | Name128 | ContentVersion32 | FreshnessMs32 | Tag32 |
Number32, then `quarters` times 256 bytes. The format is our own.

The name is a hash of the content's hierarchical name (dataplane/store/names.py). Requests and writes go to the store's
port; answers come from it. The UDP checksum is zero: switches change these packets, and process no others. An INTEREST
is as long as the longest answer that it wants: no answer is ever longer than its request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "store"
SIZE: Final = 40
VERSION: Final = 1
UDP_PORT: Final = 19778
NAMES_ADDRESS: Final = "10.255.255.253"
"""Requests to this address go to the producer that has announced the name; it is no host's."""
QUARTER_BYTES: Final = 256
QUARTERS: Final = 4


class Kind(IntEnum):
    """Type of a packet; the answers are DATA, PUT_ACK and NACK."""

    INTEREST = 1
    """Requests a name."""
    DATA = 2
    PUT = 3
    """Writes; answered with PUT_ACK, whose version is the written content's, with or without the content itself."""
    PUT_ACK = 4
    NACK = 5
    ANNOUNCE = 6
    """A producer serves names with a prefix; its switch tells the controller, and answers with PUT_ACK."""


class Reason(IntEnum):
    """Reason for the absence of DATA or PUT_ACK."""

    NONE = 0
    TOO_SHORT = 1
    """The INTEREST has fewer than the `size` quarters that the answer needs."""
    ABSENT = 2
    STALE = 3
    """The PUT's version is not newer than the stored one, which this packet carries."""
    FORBIDDEN = 4
    """The sender of the PUT may not write this name."""
    FULL = 5
    """There is no room for the write."""
    UNPROVEN = 6
    """The PUT must be repeated with this packet's `tag`, which proves that its sender receives at its address."""


@dataclass(frozen=True, slots=True)
class Message:
    """A header of named content, and the content or, in an INTEREST, room for it.

    `version` is modulo 2^32, 0: none. `freshness_ms` is how long a copy may be served, 0: make none. Answers repeat
    `tag`, which belongs to the switches (in a PUT its sender's proof, which no answer repeats), and the requester's
    `number`, unchanged. In an INTEREST to NAMES_ADDRESS `version` and `freshness_ms` are the hashes of the name's first
    one and two components, which an ANNOUNCE has as its name.
    """

    kind: Kind
    name: int
    segment: int = 0
    version: int = 0
    freshness_ms: int = 0
    content: bytes = b""
    size: int = 0
    """In an answer: the number of quarters of the content, whether included or not."""
    reason: Reason = Reason.NONE
    tag: int = 0
    number: int = 0

    @property
    def quarters(self) -> int:
        """Length of the content, or of the room for it."""
        return len(self.content) // QUARTER_BYTES

    def encode(self) -> bytes:
        """Encode the message; raise WireError for a value that does not fit its field, or broken quarters."""
        if len(self.content) % QUARTER_BYTES or self.quarters > QUARTERS:
            raise WireError(HEADER, f"{len(self.content)} bytes are not 0 to {QUARTERS} times {QUARTER_BYTES}")
        fit(HEADER, name=(self.name, 128), segment=(self.segment, 32), version=(self.version, 32), size=(self.size, 4))
        fit(HEADER, freshness_ms=(self.freshness_ms, 32), tag=(self.tag, 32), number=(self.number, 32))
        first = VERSION << 28 | self.kind << 24 | self.quarters << 20 | self.size << 16 | self.reason << 8
        last = self.version << 96 | self.freshness_ms << 64 | self.tag << 32 | self.number
        return (first << 288 | self.segment << 256 | self.name << 128 | last).to_bytes(SIZE, "big") + self.content


def decode(data: bytes, offset: int = 0) -> Message:
    """Return the header at `offset` and its content; raise WireError if cut short, of another version, or unknown."""
    need(HEADER, data, offset, SIZE)
    words = int.from_bytes(data[offset : offset + SIZE], "big")
    first = words >> 288
    if first >> 28 != VERSION:
        raise WireError(HEADER, f"version is {first >> 28}, not {VERSION}", offset=offset)
    quarters = first >> 20 & 15
    if quarters > QUARTERS:
        raise WireError(HEADER, f"{quarters} quarters are more than {QUARTERS}", offset=offset)
    start, end = offset + SIZE, offset + SIZE + quarters * QUARTER_BYTES
    need(HEADER, data, start, end - start)
    try:
        kind, reason = Kind(first >> 24 & 15), Reason(first >> 8 & 255)
    except ValueError as error:
        raise WireError(HEADER, str(error), offset=offset) from None
    return Message(
        kind=kind,
        name=words >> 128 & (1 << 128) - 1,
        segment=words >> 256 & 0xFFFFFFFF,
        version=words >> 96 & 0xFFFFFFFF,
        freshness_ms=words >> 64 & 0xFFFFFFFF,
        content=bytes(data[start:end]),
        size=first >> 16 & 15,
        reason=reason,
        tag=words >> 32 & 0xFFFFFFFF,
        number=words & 0xFFFFFFFF,
    )
