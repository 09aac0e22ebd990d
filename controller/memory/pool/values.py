"""Requests to a pool and their results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Place(NamedTuple):
    """A tier of a host, both by number."""

    host: int
    tier: int


class Writes(StrEnum):
    """Moment at which a written block reaches its home."""

    THROUGH = "through"
    """Before the request is answered: no acknowledged write is lost with a host's memory."""
    BACK = "back"
    """At its eviction: a host that dies takes what was written in its memory since."""


@dataclass(frozen=True, slots=True)
class Request:
    """Blocks to read, blocks to write whole, and operations as counts.

    `data` has the content of written blocks; what it does not have is generated.
    """

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    float_operations: int = 0
    int_operations: int = 0
    data: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def blocks(self) -> tuple[int, ...]:
        """All blocks, each once."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a request.

    Times count from the request: `wait_ns` to a free core, `latency_ns` to its data being served, `response_ns` to its
    end. `evicted_bytes` made room for its data, in `eviction_ns`; `moved_bytes` were fetched. `error` is '' if it ran.
    """

    host: str
    wait_ns: int = 0
    latency_ns: int = 0
    response_ns: int = 0
    evicted_bytes: int = 0
    eviction_ns: int = 0
    moved_bytes: int = 0
    remote_bytes: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True)
class Lost:
    """A block whose newest version was lost with a host, and the version that is left; None if there is none."""

    key: int
    version: int
    left: int | None
