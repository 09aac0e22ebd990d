"""Security of containers, for all runtimes: capabilities, process limits, and refused orders."""

from __future__ import annotations

import resource
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.workloads.nodes.runtimes.base import ContainerOrder, Mount
from controller.workloads.nodes.runtimes.errors import OrderError
from controller.workloads.nodes.runtimes.reading.beneath import ANY, FOLDER, RefusedError, open_below

CAPABILITIES: Final = (
    *("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE"),
    *("CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"),
)
"""Capabilities of root in a container: podman's own default."""
LEAST_QUOTA_MILLI: Final = 10
"""Least quota: the kernel takes none below 1 ms of a period."""
LARGEST_QUOTA_MILLI: Final = 1_000_000
LEAST_MEMORY_BYTES: Final = 6 << 20
"""Least memory to start a container: runc's own process needs it."""
IMAGE_FOLDER: Final = "image-files"
"""Subfolder of a runtime's own folder for image files that may be used whatever the settings allow."""
_MOST_FILES: Final = 65_536
_MOST_PROCESSES: Final = 32_768
"""Podman lowers its own limit to pid_max, which is this by default."""
_UNLIMITED: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class HostFolders:
    """Folders of the machine that containers may see (`mounts`), and that bundles and image files may lie in."""

    mounts: tuple[Path, ...] = ()
    bundles: tuple[Path, ...] = ()
    images: tuple[Path, ...] = ()

    def open_bundle(self, path: Path) -> int:
        """Return a descriptor of a bundle's folder; raise OrderError if bundles may not lie there."""
        try:
            return open_below(_names(self.bundles), str(path), "bundle_folders", kind=FOLDER)
        except RefusedError as error:
            raise OrderError(f"bundle {path}: {error}") from None

    def open_mount(self, mount: Mount) -> int:
        """Return a descriptor of a mount's source; raise OrderError if containers may not see it."""
        if not mount.target.is_absolute() or ".." in mount.target.parts or mount.target == Path("/"):
            raise OrderError(f"mount of {mount.source}: target {mount.target} is not a path in a container")
        try:
            return open_below(_names(self.mounts), str(mount.source), "mount_folders", kind=ANY)
        except RefusedError as error:
            raise OrderError(f"mount of {mount.source}: {error}") from None


def rlimits_of(order: ContainerOrder) -> tuple[tuple[str, int], ...]:
    """Return names ("nofile") and values of the limits of a container's processes, within this process's own.

    Root without CAP_SYS_RESOURCE may lower limits, but never raise its own hard ones. The control group limits the
    number of a container's processes, as the rlimit counts all that a user has on the machine.
    """
    kinds = (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE)
    granted = (resource.getrlimit(kind)[1] for kind in kinds)
    files, processes, size = (_UNLIMITED if limit == resource.RLIM_INFINITY else limit for limit in granted)
    limits = (("nofile", min(_MOST_FILES, files)), ("nproc", min(_MOST_PROCESSES, processes)))
    # Files in mounted folders may grow to any size that their owner likes.
    is_held = order.disk_bytes is not None and order.bundle is None and not order.mounts
    return (*limits, ("fsize", min(order.disk_bytes or 0, size))) if is_held else limits


def check_order(order: ContainerOrder) -> None:
    """Raise OrderError for an order without image or bundle, and for limits that no control group can hold."""
    if (order.image is None) == (order.bundle is None):
        raise OrderError(f"container {order.name}: needs either an image or a bundle")
    if order.cpu_milli is not None and not LEAST_QUOTA_MILLI <= order.cpu_milli <= LARGEST_QUOTA_MILLI:
        raise OrderError(
            f"container {order.name}: cpu_milli is {order.cpu_milli}, allowed are {LEAST_QUOTA_MILLI} to "
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
        raise OrderError(f"container {order.name}: cgroup_parent {order.cgroup_parent} is not a control group path")


def _names(folders: Iterable[Path]) -> tuple[str, ...]:
    return tuple(str(folder) for folder in folders)
