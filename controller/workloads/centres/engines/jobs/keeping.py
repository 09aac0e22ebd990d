"""Input and output records of a keeper; keeper.py itself reads and writes them as JSON.

FOLDER/start.json    a Start
FOLDER/lock          its process number, if it takes the lock
FOLDER/grace         seconds, if cancelling overrides those of the order
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
    """A job's view of its machine, in its own mount, process and IPC namespaces; sandboxing.py creates it.

    All paths are absolute, without links. The machine is read-only to the job except for `writable`, /tmp and /var/tmp.
    """

    maps_user: bool
    """Use a user namespace, as needed without root; the job then has the keeper's user."""
    user: tuple[int, int] | None
    """User and group that the job runs as; None: the keeper's."""
    hidden: tuple[str, ...]
    """Folders and files that appear empty to the job; those that do not exist are left out."""
    shown: tuple[str, ...]
    """Paths below hidden folders that stay visible, read-only."""
    writable: tuple[str, ...]
    """Paths that the job may write to as far as its user may, including its own folder."""
    scratch_bytes: int
    """Capacity of each of /tmp, /var/tmp and /dev/shm."""


class Start(Strict, frozen=True, kw_only=True):
    """Input of a keeper."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    folder: str
    """Folder in which the job runs, and its output is kept; relative to the record's own folder."""
    limit_s: float | None
    grace_s: float
    output_limit_bytes: int
    ended_file: str
    """File for the job's end, a name in the record's folder."""
    takes_lock: bool
    """At most one keeper runs it, identified by its lock, which needs a local file system."""
    passes: str = ""
    """Prefix of the keeper's own variables that the job sees; none if empty."""
    cores: tuple[int, ...] = ()
    """None: the keeper's cores."""
    devices: tuple[int, ...] = ()
    """Device numbers of the job, as they were at its start."""
    device_shares: dict[str, int] = msgspec.field(default_factory=dict)
    """Thousandths of devices by their vendors' names, for the allocator: numbers change when a device goes."""
    group: str | None = None
    group_files: tuple[str, ...] = ()
    oom_files: tuple[str, ...] = ()
    """As in controller.workloads.centres.engines.local.limits.JobLimits."""
    network_namespace: str | None = None
    user: tuple[int, int] | None = None
    """User of a job without a sandbox; None: the keeper's user."""
    sandbox: Sandbox | None = None
    resource_limits: dict[str, int] = msgspec.field(default_factory=dict)


class Ended(Strict, frozen=True):
    """A job's end as its keeper reports it; without times if it never started, None for unknown values."""

    exit_code: int | None = None
    reason: Annotated[str, Meta(max_length=4096)] = ""
    started_ns: int | None = None
    finished_ns: int | None = None
    cpu_s: float | None = None
    memory_peak_bytes: int | None = None
    dropped_bytes: int = 0

    @property
    def phase(self) -> JobPhase:
        """Resulting phase: a job asked to end has failed, whatever it returned."""
        return JobPhase.SUCCEEDED if self.exit_code == 0 and not self.reason else JobPhase.FAILED

    @property
    def why(self) -> str:
        """One line on why it failed; empty if it succeeded."""
        return self.reason or (f"exit code {self.exit_code}" if self.exit_code else "")


def read_record(path: Path, schema: type[T]) -> T | None:
    """Return a file's content; None if it is missing or invalid: a job may leave anything there, even a pipe."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
            return msgspec.json.decode(file.read(_MOST_BYTES), type=schema) if is_file else None
    except (OSError, *MALFORMED):
        return None
