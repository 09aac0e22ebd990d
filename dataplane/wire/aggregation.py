"""Aggregation header: 32 bytes over UDP, then up to 1,024 bytes of values which a switch adds up.

Version4=2 Kind4 Flags8 Job16 | Item32 | Epoch16 Workers16 | Operation4 Quarters4 Reason8 Reserved16 | Nonce64 |
Check64, then `quarters` times 256 bytes: 64 lanes of int32 each, or 128 of unsigned 16 bits, in network order. The
format is our own.

An item is one vector that all workers of a job contribute to; items are numbered without gaps. Nothing in the header
identifies the sender: the switch knows its children by their ports, and by the nonce, a random number that only the
job's switches and workers know. A packet with another one belongs to no job. The check is a number that switches add up
modulo 2^64; only workers interpret it (dataplane/allreduce/checks.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag
from typing import Final

from dataplane.errors import WireError
from dataplane.wire.fields import fit, need

HEADER: Final = "aggregation"
SIZE: Final = 32
VERSION: Final = 2
UDP_PORT: Final = 19777
ITEM_BITS: Final = 32
_NOBODY: Final = "values of 0 workers: a mean divides by them"
QUARTER_BYTES: Final = 256
QUARTERS: Final = 4


class Kind(IntEnum):
    """Type of a packet; RESULT goes to all children, AGAIN and REFUSED to the requester."""

    CONTRIBUTION = 1
    RESULT = 2
    AGAIN = 3
    REFUSED = 4
    PULL = 5
    """Requests a result without contributing; as long as the desired answer."""
    DISTRIBUTE = 6
    """The main server's value for all children; with the RESULT it gets a copy, too."""


class Flags(IntFlag):
    """Properties of a value; a result has the flags of all contributions."""

    SATURATED = 1
    CONGESTED = 2
    FINAL = 4
    """The job's result, which also goes to the main server."""
    DISTRIBUTED = 8
    """A value of the main server's; contributions cannot have it."""
    CALL = 16
    """The workers wait here for the main server; its PULL with this flag gets the job's newest item."""


NO_FLAGS: Final = Flags(0)


class Operation(IntEnum):
    """Operation that combines contributions."""

    SUM = 1
    """Lanes of int32, which are clamped at their bounds and then set SATURATED."""
    MAX = 2
    """Lanes of unsigned 16 bits."""


class Reason(IntEnum):
    """Reason for refusing a contribution."""

    NONE = 0
    EPOCH = 1
    """Membership has changed; the packet's epoch is the current one."""
    MISMATCH = 2
    """Operation or length differ from the item's other contributions."""


@dataclass(frozen=True, slots=True)
class Aggregation:
    """An aggregation header and its values; `workers` counts those whose values are included."""

    kind: Kind
    job: int
    item: int
    epoch: int
    workers: int = 1
    operation: Operation = Operation.SUM
    values: bytes = b""
    flags: Flags = NO_FLAGS
    reason: Reason = Reason.NONE
    nonce: int = 0
    check: int = 0

    def encode(self) -> bytes:
        """Encode the packet; raise WireError for a value that does not fit its field, or broken quarters."""
        quarters, rest = divmod(len(self.values), QUARTER_BYTES)
        if rest or quarters > QUARTERS:
            raise WireError(HEADER, f"{len(self.values)} bytes of values are not 0 to {QUARTERS} times {QUARTER_BYTES}")
        if not self.workers:
            raise WireError(HEADER, _NOBODY)
        fit(HEADER, job=(self.job, 16), item=(self.item, 32), epoch=(self.epoch, 16), workers=(self.workers, 16))
        fit(HEADER, nonce=(self.nonce, 64), check=(self.check, 64))
        first = VERSION << 28 | self.kind << 24 | self.flags << 16 | self.job
        fourth = self.operation << 28 | quarters << 24 | self.reason << 16
        words = first << 96 | self.item << 64 | self.epoch << 48 | self.workers << 32 | fourth
        return (words << 128 | self.nonce << 64 | self.check).to_bytes(SIZE, "big") + self.values


def decode(data: bytes, offset: int = 0) -> Aggregation:
    """Return the header at `offset` and its values; raise WireError if cut short, of another version, or unknown."""
    need(HEADER, data, offset, SIZE)
    # Nonce and check, 8 bytes each, come last and are read on their own.
    words = int.from_bytes(data[offset : offset + SIZE - 16], "big")
    if words >> 124 != VERSION:
        raise WireError(HEADER, f"version is {words >> 124}, not {VERSION}", offset=offset)
    size = (words >> 24 & 15) * QUARTER_BYTES
    if size > QUARTERS * QUARTER_BYTES:
        raise WireError(HEADER, f"{words >> 24 & 15} quarters are more than {QUARTERS}", offset=offset)
    need(HEADER, data, offset + SIZE, size)
    if not words >> 32 & 0xFFFF:
        raise WireError(HEADER, _NOBODY, offset=offset)
    try:
        kind, operation, reason = Kind(words >> 120 & 15), Operation(words >> 28 & 15), Reason(words >> 16 & 255)
    except ValueError as error:
        raise WireError(HEADER, str(error), offset=offset) from None
    return Aggregation(
        kind=kind,
        job=words >> 96 & 0xFFFF,
        item=words >> 64 & 0xFFFFFFFF,
        epoch=words >> 48 & 0xFFFF,
        workers=words >> 32 & 0xFFFF,
        operation=operation,
        values=bytes(data[offset + SIZE : offset + SIZE + size]),
        flags=Flags(words >> 112 & 255),
        reason=reason,
        nonce=int.from_bytes(data[offset + 16 : offset + 24], "big"),
        check=int.from_bytes(data[offset + 24 : offset + SIZE], "big"),
    )


def age(item: int, than: int) -> int:
    """Return by how much `item` is newer than another, negative if older, modulo 2^32."""
    # Numbers wrap around: serial number arithmetic as in RFC 1982.
    half = 1 << ITEM_BITS - 1
    return (item - than + half) % (2 * half) - half
