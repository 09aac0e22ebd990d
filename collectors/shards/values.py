"""Collectors as their leases tell of them."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

PREFIX = "collectors/"
"""Keys of collectors in the storage of leases, each followed by a name."""


class CollectorRecord(msgspec.Struct, frozen=True):
    """Content of a collector's key; without a `feed` the collector has given its lease back.

    `renewals` makes each renewal another value.
    """

    generation: int
    lease_ns: int
    renewals: int
    host: str = ""
    udp_port: int = 0
    feed: str = ""


@dataclass(frozen=True, slots=True)
class LiveCollector:
    """A collector that holds its lease: where switches send reports, and where its feed is.

    `generation` grows with each process that takes the name.
    """

    name: str
    generation: int
    host: str
    udp_port: int
    feed: str
