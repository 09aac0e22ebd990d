"""Interface between a node's manager and a container runtime.

All calls have a deadline: a runtime that hangs raises RuntimeTimeoutError in one line. Every other failure is a
ContainerError (controller/workloads/nodes/runtimes/errors.py). Containers outlive the runtime object and its process; a
new one finds them by `list`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from dataplane.cgroups import Usage

NODE_LABEL, POD_LABEL, UID_LABEL = "millrace.node", "millrace.pod", "millrace.uid"
EPOCH_LABEL, CONTAINER_LABEL = "millrace.epoch", "millrace.container"
"""Labels by which a container is adopted, or removed as an orphan."""

STDOUT, STDERR = 1, 2

OUT_OF_MEMORY_CODE = 137
"""Exit code of a process killed by SIGKILL: 128 + 9."""


@dataclass(frozen=True, slots=True)
class Image:
    """An existing image. `digest` is that of its manifest ("sha256:..."); `nbytes` its size on disk."""

    digest: str
    names: tuple[str, ...] = ()
    nbytes: int = 0


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the machine that the container sees at `target`."""

    source: Path
    target: Path
    is_writable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerOrder:
    """Order for a container: of an image that `pull` has fetched, or of an OCI bundle's folder.

    A limit of None means unlimited. `devices` are paths such as /dev/nvidia0, or CDI names such as vendor.com/gpu=0.
    """

    name: str
    """Unique on the machine."""
    labels: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    """A digest or a name as in `pull`; a digest selects exactly this image."""
    bundle: Path | None = None
    command: tuple[str, ...] = ()
    """Replaces that of the image or bundle, including its entry point."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Added to the image's; overrides equal names."""
    working_folder: str | None = None
    hostname: str | None = None
    cpu_milli: int | None = None
    """Quota of CPU time, thousandths of a CPU."""
    memory_bytes: int | None = None
    """Without additional swap."""
    processes: int | None = 4096
    """Most processes and threads at once."""
    disk_bytes: int | None = None
    """Size of the largest file of an image's container; `written` gives the total that it writes."""
    devices: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    network_namespace: Path | None = None
    """Namespace to join, such as /run/netns/NAME; None is a new one with only loopback."""
    cgroup_parent: str | None = None
    """Path of the parent of the container's control group, such as /millrace/NODE/POD."""


class ContainerPhase(StrEnum):
    """Phase of a container's life."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """A container as the runtime knows it.

    `started_ns` and `finished_ns` are nanoseconds since 1970. `exit_code` is 128 + N if signal N killed it, None while
    it has not ended or if unknown.
    """

    id: str
    name: str
    labels: Mapping[str, str]
    phase: ContainerPhase
    pid: int | None = None
    exit_code: int | None = None
    started_ns: int | None = None
    finished_ns: int | None = None
    is_out_of_memory: bool = False
    """The kernel killed one of its processes because its memory was at the limit."""
    image_digest: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that a process wrote, to STDOUT or STDERR; with a terminal only to STDOUT."""

    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Ended:
    """A container has ended; `list` says how."""

    id: str


@dataclass(frozen=True, slots=True)
class Terminal:
    """Size of a terminal in characters."""

    rows: int = 24
    columns: int = 80


class ExecSession(Protocol):
    """A process started in a running container; call `close`, which kills it if it still runs."""

    def output(self) -> AsyncGenerator[Output]:
        """Yield its output until the output is closed; read nothing ahead of the consumer."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its standard input; wait until it reads."""
        ...

    async def close_input(self) -> None:
        """End its standard input."""
        ...

    async def resize(self, size: Terminal) -> None:
        """Set its terminal's size."""
        ...

    async def exit_code(self) -> int:
        """Wait until it has ended and return its exit code."""
        ...

    async def close(self) -> None:
        """End the session; a process that still runs is killed."""
        ...


class Runtime(Protocol):
    """A container runtime of this machine. `start` comes first, `close` last; neither touches containers."""

    async def start(self) -> None:
        """Make sure that it answers; start the service that it needs, if any."""
        ...

    async def close(self) -> None:
        """End the service that `start` has started; no container is touched."""
        ...

    async def version(self) -> str:
        """Return its name and version, such as "podman 4.3.1"."""
        ...

    async def pull(self, image: str) -> Image:
        """Return the image, fetched if missing; raise ImageError in one line if that fails.

        `image` is a name (NAME[:TAG], NAME@sha256:...: an existing image, else from its registry), a digest of an
        existing image, or a file: oci:FOLDER[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE; @sha256:... after a
        file's path is checked.
        """
        ...

    async def images(self) -> tuple[Image, ...]:
        """Return the existing images."""
        ...

    async def remove_image(self, digest: str) -> None:
        """Remove an image; raise ContainerError if a container uses it. A missing one is fine."""
        ...

    async def written(self, id: str) -> int:  # noqa: A002
        """Return the bytes that a container has written to its own layer, without its mounts."""
        ...

    async def create(self, order: ContainerOrder) -> str:
        """Create a container and return its id; leave nothing of one that fails."""
        ...

    async def start_container(self, id: str) -> None:  # noqa: A002
        """Start a created container; raise ContainerError if its command cannot be run."""
        ...

    async def stop(self, id: str, grace_s: float) -> None:  # noqa: A002
        """Send SIGTERM, after `grace_s` SIGKILL; return when it has ended. An ended container is fine."""
        ...

    async def kill(self, id: str) -> None:  # noqa: A002
        """Send SIGKILL. An ended or missing container is fine."""
        ...

    async def remove(self, id: str) -> None:  # noqa: A002
        """Remove a container and all that belongs to it; kill it if it runs. A missing one is fine."""
        ...

    async def list(self, node: str) -> tuple[ContainerState, ...]:
        """Return all containers with this node's label, including ended ones."""
        ...

    async def usage(self, id: str) -> Usage:  # noqa: A002
        """Return its control group's usage; raise NoSuchContainerError if it does not run."""
        ...

    def logs(
        self,
        id: str,  # noqa: A002
        *,
        follow: bool = False,
        tail: int | None = None,
        since_ns: int | None = None,
    ) -> AsyncGenerator[Output]:
        """Yield its output: the last `tail` lines, since a time; with `follow`, continue until it ends."""
        ...

    async def exec(
        self,
        id: str,  # noqa: A002
        command: tuple[str, ...],
        *,
        terminal: Terminal | None = None,
    ) -> ExecSession:
        """Start a process in a running container, with a terminal of that size or without one."""
        ...

    def events(self) -> AsyncGenerator[Ended]:
        """Yield each container that ends from now on; `list` has those that ended before the first step."""
        ...
