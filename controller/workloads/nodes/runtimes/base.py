"""What a node's manager asks of a container runtime, and what it gets.

All calls have a deadline: a runtime that hangs raises RuntimeTimeoutError in one line. Every other failure is a
ContainerError (controller/workloads/nodes/runtimes/errors.py). Containers live on when the runtime object or its
process ends; whoever makes a new one finds them by `list`.
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
"""Labels by which a container is adopted, or removed as nobody's."""

STDOUT, STDERR = 1, 2

OUT_OF_MEMORY_CODE = 137
"""Exit code of what was killed by SIGKILL: 128 + 9."""


@dataclass(frozen=True, slots=True)
class Image:
    """An image that is there. `digest` is that of its manifest ("sha256:..."); `nbytes` what it takes on the disk."""

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
    """A container that is to be made: of an image that `pull` has brought, or of an OCI bundle's folder.

    None for a limit is none. `devices` are paths such as /dev/nvidia0, or CDI names such as vendor.com/gpu=0.
    """

    name: str
    """Unique on the machine."""
    labels: Mapping[str, str] = field(default_factory=dict)
    image: str | None = None
    """A digest or a name as `pull` takes it; by digest it is this image and no other."""
    bundle: Path | None = None
    command: tuple[str, ...] = ()
    """Instead of the image's or bundle's own, its entry point with it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Beside the image's; same names win."""
    working_folder: str | None = None
    hostname: str | None = None
    cpu_milli: int | None = None
    """Quota of CPU time, thousandths of a CPU."""
    memory_bytes: int | None = None
    """No swap on top of it."""
    processes: int | None = 4096
    """Processes and threads that there may be at once."""
    disk_bytes: int | None = None
    """Of the largest file of an image's container; what it writes in all is `written`'s to say."""
    devices: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    network_namespace: Path | None = None
    """Joined, such as /run/netns/NAME; None is one of its own with nothing but loopback."""
    cgroup_parent: str | None = None
    """Path of the control group that the container's is made below, such as /millrace/NODE/POD."""


class ContainerPhase(StrEnum):
    """Where a container is in its life."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerState:
    """A container as the runtime knows it.

    `started_ns` and `finished_ns` are nanoseconds since 1970. `exit_code` is 128 + N for one that signal N killed, None
    while it has not ended or where nobody knows.
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
    """The kernel killed a process of it because its memory was at the limit."""
    image_digest: str = ""


@dataclass(frozen=True, slots=True)
class Output:
    """Bytes that a process wrote, to STDOUT or STDERR; to STDOUT alone where it has a terminal."""

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
    """A process that was started in a running container; `close` is to be called, and kills it if it still runs."""

    def output(self) -> AsyncGenerator[Output]:
        """Yield what it writes until it has closed its output; nothing is read ahead of who reads here."""
        ...

    async def write(self, data: bytes) -> None:
        """Write to its standard input; waits while it does not read."""
        ...

    async def close_input(self) -> None:
        """End its standard input."""
        ...

    async def resize(self, size: Terminal) -> None:
        """Tell its terminal another size."""
        ...

    async def exit_code(self) -> int:
        """Wait until it has ended and return its exit code."""
        ...

    async def close(self) -> None:
        """End the session; a process that still runs is killed."""
        ...


class Runtime(Protocol):
    """A container runtime of this machine. `start` comes first, `close` last; containers stay as they are at both."""

    async def start(self) -> None:
        """Make sure that it is there and answers; a service that it needs is started."""
        ...

    async def close(self) -> None:
        """End what `start` has started; no container is touched."""
        ...

    async def version(self) -> str:
        """Return its name and version, such as "podman 4.3.1"."""
        ...

    async def pull(self, image: str) -> Image:
        """Return the image, brought if it is not there; raise ImageError in one line if that cannot be.

        `image` is a name (NAME[:TAG], NAME@sha256:...: what is there, else from its registry), a digest of what is
        there, or a file: oci:FOLDER[:TAG], oci-archive:FILE[:TAG], docker-archive:FILE; @sha256:... after a file's path
        is checked.
        """
        ...

    async def images(self) -> tuple[Image, ...]:
        """Return the images that are there."""
        ...

    async def remove_image(self, digest: str) -> None:
        """Remove an image; raise ContainerError if a container is of it. One that is gone is fine."""
        ...

    async def written(self, id: str) -> int:  # noqa: A002
        """Return the bytes that a container has written to its own layer, beside what is mounted in it."""
        ...

    async def create(self, order: ContainerOrder) -> str:
        """Make a container and return its id; nothing is left of one that cannot be made."""
        ...

    async def start_container(self, id: str) -> None:  # noqa: A002
        """Start a container that was made; raise ContainerError if its command cannot be run."""
        ...

    async def stop(self, id: str, grace_s: float) -> None:  # noqa: A002
        """Send SIGTERM, after `grace_s` SIGKILL; returns when it has ended. One that has ended already is fine."""
        ...

    async def kill(self, id: str) -> None:  # noqa: A002
        """Send SIGKILL. One that has ended already, or is gone, is fine."""
        ...

    async def remove(self, id: str) -> None:  # noqa: A002
        """Remove a container and all that is its own, killed if it runs. One that is gone is fine."""
        ...

    async def list(self, node: str) -> tuple[ContainerState, ...]:
        """Return all containers with this node's label, ended ones too."""
        ...

    async def usage(self, id: str) -> Usage:  # noqa: A002
        """Return what its control group has used and uses; raise NoSuchContainerError if it does not run."""
        ...

    def logs(
        self,
        id: str,  # noqa: A002
        *,
        follow: bool = False,
        tail: int | None = None,
        since_ns: int | None = None,
    ) -> AsyncGenerator[Output]:
        """Yield what it has written, the last `tail` lines of it, since a time; with `follow`, on until it ends."""
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
        """Yield each container that ends from now on; what ended before the first step is `list`'s to say."""
        ...
