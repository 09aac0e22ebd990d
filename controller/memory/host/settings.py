"""Settings of a machine's tiers and of the server of their blocks."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from controller.memory.frame_server import FrameLimits
from controller.memory.messages import MOST_TIERS, Name
from dataplane.config import Settings
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.own_folder import default_address

_Bytes = Annotated[int, Meta(ge=1, le=1 << 50)]
_Ns = Annotated[int, Meta(ge=1_000_000, le=3_600_000_000_000)]
SECTOR_BYTES = 4096
"""Unit of direct file access; blocks are multiples of it."""


class TierKind(StrEnum):
    """Kind of memory of a tier."""

    DRAM = "dram"
    """Memory of the process, on any NUMA node."""
    NUMA = "numa"
    """Memory of one NUMA node, also one without processors: CXL, persistent memory."""
    FILE = "file"
    """A file, as on an NVMe drive; its blocks outlive the process."""


class TierSettings(Settings, frozen=True):
    """A tier; the first of a host with cores is its fast memory."""

    name: Name
    kind: TierKind
    capacity_bytes: _Bytes
    numa_node: Annotated[int, Meta(ge=0, le=1023)] | None = None
    """Number in /sys/devices/system/node, for `numa`."""
    path: str = ""
    """The file, for `file`; it is created with its full size."""
    direct: bool = True
    """Bypass the page cache (O_DIRECT), where the file system can."""
    sync: bool = False
    """Force each block to the device: then blocks outlive a power failure, too."""
    home: bool | None = None
    """Blocks have their homes here; by default in the last tier, and in all tiers of a host without cores."""

    def __post_init__(self) -> None:
        if (self.kind is TierKind.NUMA) != (self.numa_node is not None):
            raise ValueError("numa_node is for tiers of kind numa, which need it")
        if (self.kind is TierKind.FILE) != bool(self.path):
            raise ValueError("path is for tiers of kind file, which need it")


class HostSettings(Settings, frozen=True):
    """A machine of a pool. HOST:PORT needs `tls`, on loopback, too: memory is nobody else's."""

    name: Name
    tiers: Annotated[tuple[TierSettings, ...], Meta(min_length=1, max_length=MOST_TIERS)]
    address: str = default_address("memory")
    tls: TlsSettings | None = None
    block_bytes: Annotated[int, Meta(ge=SECTOR_BYTES, le=1 << 21, multiple_of=SECTOR_BYTES)] = 65_536
    cores: Annotated[int, Meta(ge=0, le=1024)] = 1
    """Requests that run here at a time; 0: it only holds blocks."""
    sense_every_ns: _Ns = 60_000_000_000
    """Interval at which the latency of tiers is measured again."""
    limits: FrameLimits = FrameLimits()

    def __post_init__(self) -> None:
        names = [tier.name for tier in self.tiers]
        if len(set(names)) < len(names):
            raise ValueError("two tiers have the same name")
        for tier in self.tiers:
            if tier.capacity_bytes < 4 * self.block_bytes:
                raise ValueError(f"tier {tier.name} has room for fewer than four blocks of {self.block_bytes} bytes")
        if self.cores and self.is_home(0):
            raise ValueError(
                f"tier {self.tiers[0].name} cannot be a home: the first tier of a host with cores is fast memory"
            )

    def is_home(self, tier: int) -> bool:
        """Return whether a tier is a home of blocks."""
        stated = self.tiers[tier].home
        if stated is not None:
            return stated
        return not self.cores or (tier == len(self.tiers) - 1 and tier > 0)
