"""Bodies of frames as JSON: descriptions, figures, lists and requests; limits keep a hostile one small."""

from __future__ import annotations

from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from controller.memory.errors import MOST, RefusedError
from dataplane.malformed import MALFORMED

MOST_TIERS: Final = 16
MOST_KEYS: Final = 4096
"""Blocks of one request."""
LISTED: Final = 16_384
"""Blocks of one answer to LIST."""
MOST_OPERATIONS: Final = 1 << 40

Key = Annotated[int, Meta(ge=0, le=MOST)]
Name = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$(?!\n)")]
_Address = Annotated[str, Meta(min_length=1, max_length=256)]
_Count = Annotated[int, Meta(ge=0, le=MOST_OPERATIONS)]

Body = TypeVar("Body", bound=msgspec.Struct)


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of bodies."""


class TierFigures(Message, frozen=True):
    """A tier as its sensors see it; times and rates are 0 until measured.

    `read_ns` and `write_ns` are of the smallest access, 4 KiB; `read_bps` and `write_bps` are bit/s of whole blocks,
    the recent mean.
    """

    name: str
    kind: str
    capacity_bytes: int
    used_bytes: int
    is_cache: bool
    keeps: bool
    """True if blocks outlive the process."""
    read_ns: int = 0
    write_ns: int = 0
    read_bps: int = 0
    write_bps: int = 0
    samples: int = 0
    """Blocks read or written since the start."""
    note: str = ""


class Description(Message, frozen=True):
    """A host: its name, tiers, and compute units with their measured rates."""

    host: str
    block_bytes: int
    tiers: tuple[TierFigures, ...]
    cores: int = 0
    float_ops_per_s: int = 0
    int_ops_per_s: int = 0


class Claim(Message, frozen=True):
    """Body of HELLO from a pool; only one pool at a time moves blocks of a host."""

    pool: Name


class Copy(Message, frozen=True):
    """Body of COPY: the source's address, empty for this host, and its tier."""

    source: Annotated[str, Meta(max_length=256)]
    tier: Annotated[int, Meta(ge=0, lt=MOST_TIERS)]


class Copied(Message, frozen=True):
    """Answer to COPY: how long it took, and how long the network did."""

    nbytes: int
    total_ns: int


class Run(Message, frozen=True):
    """Body of RUN: blocks to read, blocks to write with their new versions, and operations as counts."""

    reads: Annotated[tuple[Key, ...], Meta(max_length=MOST_KEYS)] = ()
    writes: Annotated[tuple[tuple[Key, Key], ...], Meta(max_length=MOST_KEYS)] = ()
    float_operations: _Count = 0
    int_operations: _Count = 0


class Ran(Message, frozen=True):
    """Answer to RUN: time until all data was read and written, and time of the operations."""

    data_ns: int
    compute_ns: int


class Listed(Message, frozen=True):
    """Answer to LIST: keys and versions in order of keys; `more` is True if there are further ones."""

    blocks: tuple[tuple[Key, Key], ...]
    more: bool


class Target(Message, frozen=True):
    """Body of MEASURE: the address of another host, and one of its blocks."""

    address: _Address


class Way(Message, frozen=True):
    """Answer to MEASURE: the least round trip, and the rate of a body of a block's size."""

    round_trip_ns: int
    rate_bps: int


def decoded(body: bytes | memoryview, kind: type[Body]) -> Body:
    """Return a body; raise RefusedError for an invalid one."""
    try:
        return msgspec.json.decode(body, type=kind)
    except MALFORMED as error:
        raise RefusedError(f"not a body of {kind.__name__}: {error}") from None


encoded: Final = msgspec.json.encode
