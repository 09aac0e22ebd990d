"""Errors of pools of memory.

ControllerError
└── MemoryPoolError        a pool cannot carry out a request; names host, tier or block
    ├── TierError          a tier cannot be opened, or the kernel refuses it
    ├── FullError          a tier has no room left, and nothing in it can be evicted
    ├── NoBlockError       a host does not have a block, or not in this version
    ├── DamagedError       a block's content does not match its checksum
    ├── RefusedError       a host refuses a caller or a request
    └── HostDownError      a host does not answer; names it
"""

from __future__ import annotations

from typing import Final

from controller.common.errors import ControllerError

MOST: Final = (1 << 63) - 1
"""Largest key and version of a block."""


class MemoryPoolError(ControllerError):
    """A pool of memory cannot carry out a request; the text names the host, tier or block."""


class TierError(MemoryPoolError):
    """A tier cannot be opened, or the kernel refuses it."""


class FullError(MemoryPoolError):
    """A tier has no room left, and nothing in it can be evicted."""


class NoBlockError(MemoryPoolError):
    """A host does not have a block, or not in this version."""


class DamagedError(MemoryPoolError):
    """A block's content does not match its checksum."""


class RefusedError(MemoryPoolError):
    """A host refuses a caller or a request."""


class HostDownError(MemoryPoolError):
    """A host does not answer; `host` is its name or address."""

    def __init__(self, host: str, problem: str) -> None:
        self.host = host
        super().__init__(f"{host}: {problem}")
