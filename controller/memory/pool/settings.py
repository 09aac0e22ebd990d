"""Settings of a pool: its hosts, how writes reach their homes, and who decides where requests run."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.learning.policy.settings import LiveSettings
from controller.memory.messages import Name
from controller.memory.pool.values import Writes
from dataplane.config import Settings
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.own_folder import default_address

_Ns = Annotated[int, Meta(ge=1_000_000, le=3_600_000_000_000)]
Rule = Literal["lru", "least-loaded", "data-local", "fast-only", "random"]


class PoolHost(Settings, frozen=True):
    """A host, and the address at which the pool and the other hosts reach it."""

    name: Name
    address: Annotated[str, Meta(min_length=1, max_length=256)]


class PoolMetrics(Settings, frozen=True):
    """Address of a pool's Prometheus metrics."""

    address: str = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535)] = 9466
    """TCP port; 0: any free one."""


class MemoryPoolSettings(Settings, frozen=True):
    """A pool of memory."""

    hosts: Annotated[tuple[PoolHost, ...], Meta(min_length=1, max_length=256)]
    name: Name = "pool"
    """Name under which it claims its hosts: a host serves one pool at a time."""
    address: str = default_address("memory-pool")
    """UNIX socket for requests."""
    tls: TlsSettings | None = None
    metrics: PoolMetrics | None = None
    """Prometheus metrics; null: none."""
    writes: Writes = Writes.THROUGH
    rule: Rule = "data-local"
    """Decides where requests run, as far as `learned` does not."""
    learned: LiveSettings | None = None
    """A network that decides, or in shadow only learns."""
    waiting: Annotated[int, Meta(ge=1, le=1 << 20)] = 4096
    """Requests that wait at most; more are refused."""
    answer_ns: _Ns = 5_000_000_000
    """A host that does not answer for this long counts as down."""
    retry_ns: _Ns = 1_000_000_000
    """Interval at which hosts that are down are called again."""
    room_ns: _Ns = 10_000_000_000
    """A request waits this long for room in fast memory, then it is refused."""

    def __post_init__(self) -> None:
        for what in ("name", "address"):
            values = [getattr(host, what) for host in self.hosts]
            if len(set(values)) < len(values):
                raise ValueError(f"two hosts have the same {what}")
        if not self.address.startswith("unix:"):
            raise ValueError("address: requests come by unix:PATH only")
