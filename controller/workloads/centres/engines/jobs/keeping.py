"""What a keeper is told, and what it tells: the records beside keeper.py, which reads and writes them as JSON.

FOLDER/start.json    a Start
FOLDER/lock          its process number, where it takes the lock
FOLDER/grace         seconds, where whoever cancels names others than the order
FOLDER/<ended_file>  an Ended
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from controller.workloads.centres.engines.base import JobPhase
from dataplane.config import Strict
from dataplane.malformed import MALFORMED

T = TypeVar("T")

KEEPER: Final = Path(__file__).with_name("keeper.py")
SANDBOXING: Final = Path(__file__).with_name("sandboxing.py")
START_FILE: Final = "start.json"
GRACE_FILE: Final = "grace"
_MOST_BYTES: Final = 1 << 24


class Sandbox(Strict, frozen=True, kw_only=True):
    """What a job sees of its machine, in mount, process and IPC namespaces of its own; sandboxing.py makes it.

    All paths are absolute, without links. The machine is read-only to the job but for `writable`, /tmp and /var/tmp.
    """

    maps_user: bool
    """In a user namespace, as without root; the job then has the keeper's user."""
    user: tuple[int, int] | None
    """User and group that the job runs as; None: the keeper's."""
    hidden: tuple[str, ...]
    """Folders that are empty to the job, and files without content; those that do not exist are left out."""
    shown: tuple[str, ...]
    """What is to be seen nevertheless, read-only, below one that is hidden."""
    writable: tuple[str, ...]
    """Where the job may write as far as its user may: its own folder among them."""
    scratch_bytes: int
    """The most that /tmp, /var/tmp and /dev/shm hold, each."""


class Start(Strict, frozen=True, kw_only=True):
    """What a keeper is told."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    """Where the job runs, and its output is kept; relative to the record's own folder."""
    limit_s: float | None
    grace_s: float
    output_limit_bytes: int
    ended_file: str
    """Where it tells how the job ended, a name in the record's folder."""
    takes_lock: bool
    """Whether at most one keeper runs it, and that one is known by its lock: on a file system of this machine."""
    passes: str = ""
    """The job sees what of the keeper's own environment begins so; nothing of it where this is empty."""
    cores: tuple[int, ...] = ()
    """None: those that the keeper has."""
    devices: tuple[int, ...] = ()
    """The numbers of those that the job has, for whoever gives them out."""
    group: str | None = None
    group_files: tuple[str, ...] = ()
    oom_files: tuple[str, ...] = ()
    """As of controller.workloads.centres.engines.local.limits.JobLimits."""
    network_namespace: str | None = None
    user: tuple[int, int] | None = None
    """Whom it runs as where it has no sandbox; None: the keeper's user."""
    sandbox: Sandbox | None = None
    resource_limits: dict[str, int] = msgspec.field(default_factory=dict)


class Ended(Strict, frozen=True):
    """How a job ended, as its keeper tells it; without times where it was never started, None for what nobody knows."""

    exit_code: int | None = None
    reason: Annotated[str, Meta(max_length=4096)] = ""
    started_ns: int | None = None
    finished_ns: int | None = None
    cpu_s: float | None = None
    memory_peak_bytes: int | None = None
    dropped_bytes: int = 0

    @property
    def phase(self) -> JobPhase:
        """What it comes to: one that was asked to end has failed, whatever it returned."""
        return JobPhase.SUCCEEDED if self.exit_code == 0 and not self.reason else JobPhase.FAILED

    @property
    def why(self) -> str:
        """One line on why it failed; nothing of a job that has succeeded."""
        return self.reason or (f"exit code {self.exit_code}" if self.exit_code else "")


def read_record(path: Path, schema: type[T]) -> T | None:
    """Return a file's content; None where it is not there or is none: jobs may leave what they like, a pipe too."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return msgspec.json.decode(file.read(_MOST_BYTES), type=schema) if is_file else None
    except (OSError, *MALFORMED):
        return None
