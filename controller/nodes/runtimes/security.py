"""What containers may do, whichever runtime makes them: capabilities, limits of a process, and what is refused."""

from __future__ import annotations

import resource
from typing import Final

from controller.nodes.runtimes.base import ContainerOrder
from controller.nodes.runtimes.errors import OrderError

CAPABILITIES: Final = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE"),
    *("CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"),
)
"""What root in a container keeps: podman's own default."""
LONGEST_QUOTA_MILLI: Final = 1_000_000
LEAST_QUOTA_MILLI: Final = 10
"""The kernel takes no quota below 1 ms of a period, which is 100 ms."""
LEAST_MEMORY_BYTES: Final = 6 << 20
"""With less no container starts: runc's own process needs it."""
_MOST_FILES: Final = 65_536
_MOST_PROCESSES: Final = 32_768
"""Podman lowers its own limit to pid_max, which is this by default."""
_UNLIMITED: Final = 1 << 62


def nearest_rlimits() -> tuple[tuple[str, int], ...]:
    """Return name ("nofile") and number of the limits that runtimes would set beyond what this process may grant.

    Root without CAP_SYS_RESOURCE may lower limits, and never raise its own hard ones. Processes of a container are
    limited by its control group, as this limit counts all that a user has on the machine.
    """
    granted = tuple(resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    files, processes = (_UNLIMITED if limit == resource.RLIM_INFINITY else limit for limit in granted)
    return (("nofile", min(_MOST_FILES, files)), ("nproc", min(_MOST_PROCESSES, processes)))


def check_order(order: ContainerOrder) -> None:
    """Raise OrderError for limits that no control group can hold."""
    if order.cpu_milli is not None and not LEAST_QUOTA_MILLI <= order.cpu_milli <= LONGEST_QUOTA_MILLI:
        raise OrderError(
            f"container {order.name}: cpu_milli is {order.cpu_milli}, it can be {LEAST_QUOTA_MILLI} to "
            f"{LONGEST_QUOTA_MILLI}"
        )
    if order.memory_bytes is not None and order.memory_bytes < LEAST_MEMORY_BYTES:
        raise OrderError(
            f"container {order.name}: memory_bytes is {order.memory_bytes}, no container starts with less than "
            f"{LEAST_MEMORY_BYTES}"
        )
