"""Jobs that another system runs: what the agent keeps of each, and the folder that it shares with the worker.

    RECORDS/NAME/order.json         whose job it is, what was ordered, where, and by which token it is known
    RECORDS/NAME/id                 the job's name at its engine, once that may have taken it
    RECORDS/NAME/uid                what the engine tells it from others of its name by, where it has that
    RECORDS/NAME/ended.json         how it ended, as the agent has seen it

    FOLDER/.millrace/keeper.py      which the worker runs, and start.json, what it is told
    FOLDER/.millrace/ended.json     how it ended, as the worker says
    FOLDER/.millrace/grace          seconds, where cancelling names others than the order

Records are in a folder that only the agent can enter. Whatever is in a job's folder, or in a cluster's queue, any job
may have written: it says nothing of whose a job is, and of its end nothing that the engine does not confirm.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from controller.workloads.centres.engines.base import JobMark, JobOrder, JobPhase, JobState, Usage
from controller.workloads.centres.engines.jobs.keeping import GRACE_FILE, KEEPER, START_FILE, Ended, Start, read_record
from controller.workloads.centres.engines.jobs.places import make_folder, read_file, remove, replace_file
from controller.workloads.centres.errors import CentreError, EngineError, OrderError
from dataplane.malformed import MALFORMED

OWN: Final = ".millrace"
ENDED_FILE: Final = "ended.json"
_ORDER_FILE, _ID_FILE, _UID_FILE = "order.json", "id", "uid"
_MOST_BYTES: Final = 1 << 16
_NAME: Final = 32


class _Written(msgspec.Struct, frozen=True):
    """What order.json has that is asked for later."""

    labels: dict[str, str]
    unit: str
    units: int
    folder: str
    token: str
    limit_s: float | None = None
    grace_s: float = 0.0
    output_limit_bytes: int = 1 << 20
    own_image: bool = False


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A job that was prepared, its record and its folder; `id` is its name at its engine, None before that is said.

    `token` is a secret until the job is at its engine, which is told it: nobody else can have sent one with it before.
    """

    path: Path
    record: Path
    mark: JobMark
    unit: str
    units: int
    token: str
    id: str | None
    uid: str | None = None
    limit_s: float | None = None
    grace_s: float = 0.0
    output_limit_bytes: int = 1 << 20
    own_image: bool = False
    """It runs a user's image as that is, and brings nothing back but its output."""

    @property
    def ending(self) -> Ended | None:
        """How it ended; None while the agent has not seen that."""
        return read_record(self.record / ENDED_FILE, Ended)

    @property
    def told(self) -> Ended | None:
        """How it ended as its folder says, in which others may have written; None where that says nothing."""
        try:
            return msgspec.json.decode(read_file(self.path, f"{OWN}/{ENDED_FILE}", _MOST_BYTES), type=Ended)
        except (CentreError, OSError, *MALFORMED):
            return None

    @property
    def usage(self) -> Usage | None:
        """What it has used, once it has ended."""
        ended = self.ending
        return None if ended is None or ended.cpu_s is None else Usage(ended.cpu_s, ended.memory_peak_bytes)

    def state(self, phase: JobPhase, reason: str = "", exit_code: int | None = None) -> JobState:
        """Return it in a phase."""
        ended = self.ending
        return JobState(
            id=self.id or "",
            mark=self.mark,
            phase=phase,
            unit=self.unit,
            units=self.units,
            exit_code=exit_code,
            reason=reason,
            folder=self.path,
            started_ns=None if ended is None else ended.started_ns,
            finished_ns=None if ended is None else ended.finished_ns,
        )

    @property
    def ended_state(self) -> JobState | None:
        """It as its own record says that it ended; None without one."""
        ended = self.ending
        return None if ended is None else self.state(ended.phase, ended.why, ended.exit_code)

    def settled(self, ended: Ended) -> JobState:
        """Write down for good how it ended; return it so."""
        _write(self.record, ENDED_FILE, msgspec.json.encode(ended))
        return self.state(ended.phase, ended.why, ended.exit_code)

    def bound(self, job: str, uid: str | None = None) -> JobFolder:
        """Write down under which name the engine has taken it; return it with that."""
        _write(self.record, _ID_FILE, job.encode())
        if uid is not None:
            _write(self.record, _UID_FILE, uid.encode())
        return replace(self, id=job, uid=uid or self.uid)

    def bounded(self, output: bytes) -> bytes:
        """Return the beginning and the end of an output, half of the limit each."""
        most = self.output_limit_bytes
        if len(output) <= most:
            return output
        head, tail = output[: most - most // 2], output[len(output) - most // 2 :]
        return head + f"\n... {len(output) - most} bytes are left out ...\n".encode() + tail

    def write_results(self, files: Mapping[str, bytes]) -> Ended | None:
        """Write what a job has left elsewhere; return how it says that it ended, if that is among it.

        Names were checked. What cannot be written, as a folder is where a file should be, is left out.
        """
        for name, content in files.items():
            with suppress(OSError):
                replace_file(self.path, str(PurePosixPath(name)), content)
        return self.told

    def say_grace(self, grace_s: float) -> None:
        """Have the worker kill it so many seconds after it was asked to end; a folder that is gone is fine."""
        with suppress(OSError):
            replace_file(self.path, f"{OWN}/{GRACE_FILE}", str(grace_s).encode())

    def forget(self) -> None:
        """Drop what is kept beside what the job itself has left."""
        remove(self.record)
        remove(self.path / OWN)


class JobFolders:
    """An agent's jobs: their records in a folder of its own; `engine` is whom errors name."""

    def __init__(self, engine: str, records: Path) -> None:
        self._engine, self._records = engine, records

    def prepare(
        self, order: JobOrder, *, passes: str, own_image: bool = False, owner: tuple[int, int] | None = None
    ) -> JobFolder:
        """Write what the worker needs, and what is kept; the folder must not be one of a job that may run.

        `passes` is the beginning of what the worker keeps of the engine's own environment, `owner` the user and group
        that the worker has; None: the agent's. Raises OrderError for what no process can be given, EngineError where
        the folder cannot be written.
        """
        self._check(order)
        own = {f"{OWN}/{KEEPER.name}": KEEPER.read_bytes()}
        own[f"{OWN}/{START_FILE}"] = msgspec.json.encode(_start(order, passes))
        record = self._record_of(order.mark)
        written = _written(order, secrets.token_hex(16), own_image=own_image)
        try:
            remove(record)
            make_folder(order.folder, {**order.files, **own}, owner)
            record.mkdir(mode=0o700, parents=True)
            _write(record, _ORDER_FILE, msgspec.json.encode(written))
        except OSError as error:
            raise EngineError(self._engine, f"{error.filename}: {(error.strerror or '').lower()}") from error
        return _folder_of(record, written, order.mark)

    def find(self, mark: JobMark) -> JobFolder | None:
        """Return the job with a mark; None where none was prepared."""
        found = _read(self._record_of(mark))
        return found if found is not None and found.mark == mark else None

    def all(self) -> Iterator[JobFolder]:
        """Yield those that were prepared and not forgotten."""
        with suppress(FileNotFoundError):
            for record in sorted(self._records.iterdir()):
                found = _read(record)
                if found is not None:
                    yield found

    def _record_of(self, mark: JobMark) -> Path:
        """Return where a job's record is: names of tasks are too long for names of folders."""
        text = msgspec.json.encode(mark.labels)
        return self._records / hashlib.sha256(text).hexdigest()[:_NAME]

    def _check(self, order: JobOrder) -> None:
        if not order.argv or not order.argv[0]:
            raise OrderError(self._engine, f"task {order.mark.task}: there is nothing to run")
        if order.image is not None:
            raise OrderError(self._engine, f"task {order.mark.task}: it runs no containers, such as {order.image!r}")
        for text in (*order.argv, *order.environment, *order.environment.values()):
            if "\0" in text:
                raise OrderError(self._engine, f"task {order.mark.task}: {text!r} has a zero byte")
        for name in order.environment:
            if not name or "=" in name:
                raise OrderError(self._engine, f"task {order.mark.task}: {name!r} is no name of an environment")
        for name in order.files:
            parts = name.split("/")
            if not {"", ".", ".."}.isdisjoint(parts) or parts[0] == OWN or "\0" in name:
                raise OrderError(self._engine, f"task {order.mark.task}: {name!r} is no file of its folder")


def unknown_job(job: str, centre: str) -> JobState:
    """Return a job of which nothing is known."""
    return JobState(id=job, mark=JobMark(centre, "", "", 0), phase=JobPhase.LOST, reason="nothing is known of it")


def keeper_command(python: str, folder: Path) -> tuple[str, ...]:
    """Return what runs the job of a folder that was prepared."""
    return (python, "-I", "-S", str(folder / OWN / KEEPER.name), str(folder / OWN))


def _read(record: Path) -> JobFolder | None:
    """Return a job as its record says; None for what is no record."""
    written = read_record(record / _ORDER_FILE, _Written)
    mark = None if written is None else JobMark.of_labels(written.labels)
    return None if written is None or mark is None else _folder_of(record, written, mark)


def _folder_of(record: Path, written: _Written, mark: JobMark) -> JobFolder:
    return JobFolder(
        Path(written.folder),
        record,
        mark,
        written.unit,
        written.units,
        written.token,
        _text(record / _ID_FILE),
        _text(record / _UID_FILE),
        limit_s=written.limit_s,
        grace_s=written.grace_s,
        output_limit_bytes=written.output_limit_bytes,
        own_image=written.own_image,
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _written(order: JobOrder, token: str, *, own_image: bool) -> _Written:
    return _Written(
        order.mark.labels,
        order.unit,
        order.units,
        str(order.folder),
        token,
        order.limit_s,
        order.grace_s,
        order.output_limit_bytes,
        own_image,
    )


def _start(order: JobOrder, passes: str) -> Start:
    return Start(
        argv=order.argv,
        environment=dict(order.environment),
        folder="..",  # which moves with its record: in a container it is elsewhere
        limit_s=order.limit_s,
        grace_s=order.grace_s,
        output_limit_bytes=order.output_limit_bytes,
        ended_file=ENDED_FILE,
        takes_lock=False,  # folders that are shared may know no locks, and the engine starts it once
        passes=passes,
    )


def _write(record: Path, name: str, content: bytes) -> None:
    """Write a file of a record all at once and for good."""
    new = record / f".{name}.new"
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(record / name)
