"""Settings of a daemon that runs in a pair; the same block in every daemon."""

from __future__ import annotations

import os
import socket
from typing import Annotated

from msgspec import Meta, field

from dataplane.config import Settings
from dataplane.leases.place import EtcdPlace


def _own_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


class StandbySettings(Settings, frozen=True):
    """The lease by which one of several daemons is active; the others stand by.

    All of them name the same storage, `name` and `lease`.
    """

    sqlite: str | None = None
    """SQLite file that the daemons share, on one machine; several pairs may share it."""

    etcd: EtcdPlace | None = None
    """An etcd, for daemons on several machines."""

    name: Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9._-]+$")] | None = None
    """Name of the lease; default: the kind of daemon (paths, controller, api, scheduler)."""

    holder: Annotated[str, Meta(min_length=1, max_length=128)] = field(default_factory=_own_name)
    """Name of this daemon in status and logs; default: host and process id."""

    lease_ns: Annotated[int, Meta(ge=100_000_000, le=60_000_000_000)] = 1_000_000_000
    """Time without a renewal after which another daemon becomes active. The active one renews it five times in this
    time, and by its own clock stops writing a fifth of it early."""

    def __post_init__(self) -> None:
        if (self.sqlite is None) == (self.etcd is None):
            raise ValueError("either sqlite or etcd")
