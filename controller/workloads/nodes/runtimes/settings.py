"""Settings of a node's container runtime, and the creation of that runtime."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from controller.workloads.nodes.runtimes.base import Runtime
from controller.workloads.nodes.runtimes.images.limits import ImageLimits
from controller.workloads.nodes.runtimes.podman import PodmanRuntime
from controller.workloads.nodes.runtimes.runc import RuncRuntime
from controller.workloads.nodes.runtimes.seccomp import PROFILE
from controller.workloads.nodes.runtimes.security import HostFolders
from dataplane.config import Settings

Deadline = Annotated[float, Meta(gt=0, le=3600)]


class RuntimeKind(StrEnum):
    """The container runtimes."""

    PODMAN = "podman"
    RUNC = "runc"


class Seccomp(StrEnum):
    """System calls of runc's containers; podman has its own filter."""

    PROFILE = "profile"
    """Those of the profile that podman and others install; no container runs without it."""
    NONE = "none"
    """All."""


class RuntimeSettings(Settings, frozen=True):
    """Container runtime of a node, and its configuration."""

    kind: RuntimeKind = RuntimeKind.PODMAN
    socket: Path | None = None
    """Socket of a running podman service; without it one is started."""
    environment: dict[str, str] = msgspec.field(default_factory=dict)
    """Variables of the started processes, such as CONTAINERS_CONF and CONTAINERS_STORAGE_CONF."""
    mount_folders: tuple[Path, ...] = ()
    """Folders of the machine that containers may see; none by default."""
    bundle_folders: tuple[Path, ...] = ()
    """Folders of the machine that OCI bundles may lie in; none by default."""
    image_folders: tuple[Path, ...] = ()
    """Folders of the machine that image files may lie in, besides `image-files` in the state folder."""
    image_bytes: Annotated[int, Meta(ge=1)] = 20 << 30
    """Most bytes of one image, unpacked."""
    image_files: Annotated[int, Meta(ge=1)] = 2_000_000
    """Most files and folders of one image."""
    seccomp: Seccomp = Seccomp.PROFILE
    """Filter of system calls, for runc."""
    deadline_s: Deadline = 30.0
    """Deadline of each call to the runtime."""
    pull_deadline_s: Deadline = 600.0


def make_runtime(settings: RuntimeSettings, folder: Path) -> Runtime:
    """Return the runtime, with its data in `folder`; nothing is started yet."""
    folders = HostFolders(settings.mount_folders, settings.bundle_folders, settings.image_folders)
    limits = ImageLimits(settings.image_bytes, settings.image_files)
    if settings.kind is RuntimeKind.RUNC:
        return RuncRuntime(
            folder,
            environment=settings.environment,
            folders=folders,
            limits=limits,
            seccomp=PROFILE if settings.seccomp is Seccomp.PROFILE else None,
            deadline_s=settings.deadline_s,
            pull_deadline_s=settings.pull_deadline_s,
        )
    return PodmanRuntime(
        folder,
        socket=settings.socket,
        environment=settings.environment,
        folders=folders,
        limits=limits,
        deadline_s=settings.deadline_s,
        pull_deadline_s=settings.pull_deadline_s,
    )
