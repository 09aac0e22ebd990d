"""The local engine's record of each job, in a folder: the order, its start, and its end.

All of it outlives the agent. The keeper's lock, which no other process can hold, tells whether a job runs.
"""

from __future__ import annotations

import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from controller.workloads.centres.engines.base import EXIT_FILE, JobMark, JobOrder, JobPhase, JobState
from controller.workloads.centres.engines.jobs.keeping import GRACE_FILE, START_FILE, Ended, Start, read_record
from dataplane.config import Strict

_LOST: Final = "its keeper was killed: its outcome is unknown"


class Order(Strict, frozen=True):
    """An order, less its files: these are in the job's folder."""

    centre: str
    task: str
    uid: str
    epoch: int
    is_probe: bool
    argv: tuple[str, ...]
    folder: str
    unit: str
    units: int
    environment: dict[str, str]
    limit_s: float | None
    grace_s: float
    output_limit_bytes: int
    number: int
    """Orders are served in the order of their numbers."""
    user: tuple[int, int] | None = None
    """User and group of the job; None: the agent's."""

    @classmethod
    def of(cls, order: JobOrder, number: int, user: tuple[int, int] | None) -> Order:
        """Return the record of an order; `user` is the user and group that it runs as."""
        mark = order.mark
        return cls(
            centre=mark.centre,
            task=mark.task,
            uid=mark.uid,
            epoch=mark.epoch,
            is_probe=mark.is_probe,
            argv=order.argv,
            folder=str(order.folder),
            unit=order.unit,
            units=order.units,
            environment=dict(order.environment),
            limit_s=order.limit_s,
            grace_s=order.grace_s,
            output_limit_bytes=order.output_limit_bytes,
            number=number,
            user=user,
        )

    @property
    def mark(self) -> JobMark:
        """Owner of the job."""
        return JobMark(self.centre, self.task, self.uid, self.epoch, self.is_probe)


@dataclass(frozen=True, slots=True)
class Record:
    """A job's folder."""

    path: Path

    @property
    def id(self) -> str:
        """The job's id: the folder's name."""
        return self.path.name

    @property
    def order(self) -> Order | None:
        """The order; None if it is missing, or half written."""
        return read_record(self.path / "order.json", Order)

    @property
    def start(self) -> Start | None:
        """The keeper's input; None if the job was not started."""
        return read_record(self.path / START_FILE, Start)

    @property
    def ended(self) -> Ended | None:
        """The job's end; None if no keeper has reported it."""
        return read_record(self.path / EXIT_FILE, Ended)

    @property
    def grace_file(self) -> Path:
        """File for the grace period that cancelling sets."""
        return self.path / GRACE_FILE

    def write(self, name: str, value: Strict) -> None:
        """Write one of its files atomically and durably; raise OSError."""
        part = self.path / f".{name}.part"
        with part.open("wb") as file:
            file.write(msgspec.json.encode(value))
            file.flush()
            os.fsync(file.fileno())
        part.replace(self.path / name)

    def keeper(self) -> int | None:
        """Return the process that keeps the job, 0 for one that is starting; None if there is none (any more)."""
        try:
            descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.pread(descriptor, 16, 0).strip()
            return int(text) if text.isdigit() else 0
        finally:
            os.close(descriptor)
        return None

    @property
    def was_kept(self) -> bool:
        """True once a keeper has started."""
        try:
            return (self.path / "lock").stat().st_size > 0
        except OSError:
            return False

    def state(self) -> JobState | None:
        """Return the job's current state; None if its order is missing."""
        order = self.order
        if order is None:
            return None
        # In this order: a keeper takes the lock, says that it has begun, reports the job's end, releases the lock.
        was_kept = self.was_kept
        is_kept, ended = self.keeper() is not None, self.ended
        phase, reason = JobPhase.QUEUED, ""
        if ended is not None:
            phase, reason = ended.phase, ended.reason
        elif is_kept or (self.start is not None and not was_kept):
            phase = JobPhase.RUNNING  # or its keeper is starting
        elif was_kept:
            phase, reason = JobPhase.LOST, _LOST
        return JobState(
            id=self.id,
            mark=order.mark,
            phase=phase,
            unit=order.unit,
            units=order.units,
            exit_code=None if ended is None else ended.exit_code,
            reason=reason,
            folder=Path(order.folder),
            started_ns=None if ended is None else ended.started_ns,
            finished_ns=None if ended is None else ended.finished_ns,
        )
