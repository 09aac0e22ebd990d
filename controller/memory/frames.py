"""Frames between hosts of a pool: a header of 32 bytes in network order, then the body.

    0      4      5      6        8        16         24       28          32
    | MRB1 | kind | tier | status | key    | version  | length | checksum  | body ...

`kind` is that of the request, also in its answer; `status` is 0 in requests. `checksum` is CRC-32 (zlib) of the body;
of a block it was computed when the block was written, so it covers the block's whole way. One request at a time is open
on a connection.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from controller.memory.errors import (
    MOST,
    DamagedError,
    FullError,
    MemoryPoolError,
    NoBlockError,
    RefusedError,
)
from dataplane.errors import WireError

MAGIC: Final = b"MRB1"
HEADER: Final = struct.Struct("!4sBBHQQII")
MOST_BODY_BYTES: Final = 4 << 20
"""Largest body: a block, a list of blocks, or a description."""


class Kind(IntEnum):
    """Request of a frame."""

    HELLO = 1
    """Describe the host; with a body, also claim it for the pool of this name."""
    STATUS = 2
    """Return figures of all tiers."""
    READ = 3
    """Return a block of a tier; `version` 0 takes any."""
    WRITE = 4
    """Store a block in a tier."""
    FREE = 5
    """Remove a block from a tier, if it has this version or an older one."""
    LIST = 6
    """List blocks of a tier from a key on."""
    COPY = 7
    """Copy a block of this version from another host, or from another tier of this one, into a tier."""
    RUN = 8
    """Run a request on blocks of a tier."""
    MEASURE = 9
    """Measure the way to another host."""


class Status(IntEnum):
    """Outcome of a request; the body of a failure is one line of text."""

    OK = 0
    FAILED = 1
    NO_BLOCK = 2
    FULL = 3
    DAMAGED = 4
    REFUSED = 5
    UNREACHABLE = 6
    """The other host that the request names does not answer."""


_ERRORS: Final[dict[Status, type[MemoryPoolError]]] = {
    Status.NO_BLOCK: NoBlockError,
    Status.FULL: FullError,
    Status.DAMAGED: DamagedError,
    Status.REFUSED: RefusedError,
}


def status_of(error: MemoryPoolError) -> Status:
    """Return the status by which an answer tells of an error."""
    return next((status for status, kind in _ERRORS.items() if isinstance(error, kind)), Status.FAILED)


def error_of(status: Status, text: str) -> MemoryPoolError:
    """Return the error of a failed answer."""
    return _ERRORS.get(status, MemoryPoolError)(text)


@dataclass(frozen=True, slots=True)
class Header:
    """Header of a frame."""

    kind: Kind
    tier: int
    status: Status
    key: int
    version: int
    length: int
    checksum: int

    @classmethod
    def decode(cls, data: bytes | bytearray | memoryview) -> Self:
        """Return the header in 32 bytes; raise WireError."""
        if len(data) != HEADER.size:
            raise WireError("block frame", f"{len(data)} bytes, not {HEADER.size}")
        magic, kind, tier, status, key, version, length, checksum = HEADER.unpack(data)
        if magic != MAGIC:
            raise WireError("block frame", "does not begin with MRB1")
        if key > MOST or version > MOST:
            raise WireError("block frame", f"key {key} or version {version} is more than {MOST}", offset=8)
        if length > MOST_BODY_BYTES:
            raise WireError("block frame", f"a body of {length} bytes, more than {MOST_BODY_BYTES}", offset=24)
        try:
            return cls(Kind(kind), tier, Status(status), key, version, length, checksum)
        except ValueError as error:
            raise WireError("block frame", str(error), offset=4) from None

    def encode(self) -> bytes:
        """Return the 32 bytes."""
        return HEADER.pack(MAGIC, self.kind, self.tier, self.status, self.key, self.version, self.length, self.checksum)


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame: a header's fields and the body; `checksum` None is computed."""

    kind: Kind
    tier: int = 0
    key: int = 0
    version: int = 0
    body: bytes | memoryview = b""
    status: Status = Status.OK
    checksum: int | None = None

    def header(self) -> Header:
        """Return the header."""
        checksum = zlib.crc32(self.body) if self.checksum is None else self.checksum
        return Header(self.kind, self.tier, self.status, self.key, self.version, len(self.body), checksum)


def decode(data: bytes) -> Frame:
    """Return the frame in bytes, with its whole body; raise WireError."""
    header = Header.decode(data[: HEADER.size])
    body = data[HEADER.size :]
    if len(body) != header.length:
        raise WireError("block frame", f"a body of {len(body)} bytes, not {header.length}", offset=HEADER.size)
    if zlib.crc32(body) != header.checksum:
        raise WireError("block frame", "the body does not match its checksum", offset=HEADER.size)
    return Frame(header.kind, header.tier, header.key, header.version, body, header.status, header.checksum)


def encode(frame: Frame) -> bytes:
    """Return a frame's bytes."""
    return frame.header().encode() + bytes(frame.body)
