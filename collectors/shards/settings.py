"""Settings of collectors that share a fabric, and of those that follow them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from dataplane.config import Settings
from dataplane.leases.place import EtcdPlace


class CollectorLeases(Settings, frozen=True):
    """Storage of the leases of collectors, the same in collectors, controller and readers."""

    sqlite: str | None = None
    """SQLite file that all of them share, on one machine; leases of pairs may be in it, too."""

    etcd: EtcdPlace | None = None
    """An etcd, for collectors on several machines."""

    def __post_init__(self) -> None:
        if (self.sqlite is None) == (self.etcd is None):
            raise ValueError("either sqlite or etcd")


class ShardSettings(Settings, frozen=True):
    """A collector's lease among those of several, which share the switches."""

    leases: CollectorLeases
    """Storage of the leases."""

    host: str
    """Host of the topology at which switches reach this collector."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")] | None = None
    """Name of this collector, which it keeps across restarts; default: `host`."""

    udp_port: Annotated[int, Meta(ge=1, le=65535)] | None = None
    """UDP port that switches send reports to, if a relay takes them to the receiver's; default: the receiver's."""

    feed: str | None = None
    """gRPC address at which others reach the feed; default: the feed's own, which must not be a wildcard's."""

    lease_ns: Annotated[int, Meta(ge=100_000_000, le=60_000_000_000)] = 1_000_000_000
    """Time without a renewal after which the switches of this collector go to the others; it renews five times in
    this time."""
