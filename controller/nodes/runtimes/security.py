"""What containers may do, whichever runtime makes them: capabilities, limits of a process, and what is refused."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.nodes.runtimes.base import ContainerOrder, Mount
from controller.nodes.runtimes.errors import OrderError

CAPABILITIES: Final = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE"),
    *("CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"),
)
"""What root in a container keeps: podman's own default."""
"""Over which a quota of CPU time holds."""
LEAST_QUOTA_MILLI: Final = 10
"""The kernel takes no quota below 1 ms of a period."""
LARGEST_QUOTA_MILLI: Final = 1_000_000
LEAST_MEMORY_BYTES: Final = 6 << 20
"""With less no container starts: runc's own process needs it."""
_MOST_FILES: Final = 65_536
_MOST_PROCESSES: Final = 32_768
"""Podman lowers its own limit to pid_max, which is this by default."""
_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class HostFolders:
    """Folders of the machine that containers may see (`mounts`), and those that bundles may lie in; none by default."""

    mounts: tuple[Path, ...] = ()
    bundles: tuple[Path, ...] = ()

    def bundle(self, path: Path) -> Path:
        """Return a bundle's folder with links followed; raise OrderError if bundles may not lie there."""
        return _inside(path, self.bundles, f"bundle {path}", "bundle_folders")

    def mount(self, mount: Mount) -> Mount:
        """Return a mount with links followed; raise OrderError if it is of a folder that containers may not see."""
        source = _inside(mount.source, self.mounts, f"mount of {mount.source}", "mount_folders")
        if not mount.target.is_absolute() or ".." in mount.target.parts or mount.target == Path("/"):
            raise OrderError(f"mount of {mount.source}: target {mount.target} is no path in a container")
        return Mount(source, mount.target, mount.is_writable)


def nearest_rlimits() -> tuple[tuple[str, int], ...]:
    """Return name ("nofile") and number of the limits that runtimes would set beyond what this process may grant.

    Root without CAP_SYS_RESOURCE may lower limits, and never raise its own hard ones. Processes of a container are
    limited by its control group, as this limit counts all that a user has on the machine.
    """
    granted = tuple(resource.getrlimit(kind)[1] for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
    files, processes = (_UNLIMITED if limit == resource.RLIM_INFINITY else limit for limit in granted)
    return (("nofile", min(_MOST_FILES, files)), ("nproc", min(_MOST_PROCESSES, processes)))


def check_order(order: ContainerOrder) -> None:
    """Raise OrderError for what is neither an image nor a bundle, and for limits that no control group can hold."""
    if (order.image is None) == (order.bundle is None):
        raise OrderError(f"container {order.name}: has either an image or a bundle")
    if order.cpu_milli is not None and not LEAST_QUOTA_MILLI <= order.cpu_milli <= LARGEST_QUOTA_MILLI:
        raise OrderError(
            f"container {order.name}: cpu_milli is {order.cpu_milli}, it can be {LEAST_QUOTA_MILLI} to "
            f"{LARGEST_QUOTA_MILLI}"
        )
    if order.memory_bytes is not None and order.memory_bytes < LEAST_MEMORY_BYTES:
        raise OrderError(
            f"container {order.name}: memory_bytes is {order.memory_bytes}, no container starts with less than "
            f"{LEAST_MEMORY_BYTES}"
        )
    if order.cgroup_parent is not None and (
        not order.cgroup_parent.startswith("/") or ".." in Path(order.cgroup_parent).parts
    ):
        raise OrderError(f"container {order.name}: cgroup_parent {order.cgroup_parent} is no path of a control group")


def _inside(path: Path, folders: tuple[Path, ...], what: str, setting: str) -> Path:
    try:
        found = path.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        raise OrderError(f"{what}: does not exist") from error
    if not any(found.is_relative_to(folder.resolve()) for folder in folders):
        raise OrderError(f"{what}: lies in none of the node's {setting}")
    return found
