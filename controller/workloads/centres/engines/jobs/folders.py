"""Jobs that another system runs: the agent's record of each, and the folder that it shares with the worker.

    RECORDS/NAME/order.json         the job's owner, order, folder and token
    RECORDS/NAME/id                 the job's name at its engine, once that may have accepted it
    RECORDS/NAME/uid                the engine's key for it among jobs of its name, if it has one
    RECORDS/NAME/ended.json         its end, as seen by the agent

    FOLDER/.millrace/keeper.py      the worker's program, and start.json, its input
    FOLDER/.millrace/ended.json     its end, as reported by the worker
    FOLDER/.millrace/grace          seconds, if cancelling overrides those of the order

Records are in a folder that only the agent can enter. Anything in a job's folder or in a cluster's queue may have been
written by another job: it proves nothing about a job's owner, and about its end only what the engine confirms.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from controller.workloads.centres.engines.base import JobMark, JobOrder, JobPhase, JobState, Usage
from controller.workloads.centres.engines.jobs.keeping import GRACE_FILE, KEEPER, START_FILE, Ended, Start, read_record
from controller.workloads.centres.engines.jobs.places import (
    append_file,
    make_folder,
    omission,
    read_file,
    remove,
    replace_file,
)
from controller.workloads.centres.errors import CentreError, EngineError, OrderError
from dataplane.malformed import MALFORMED

OWN: Final = ".millrace"
ENDED_FILE: Final = "ended.json"
_ORDER_FILE, _ID_FILE, _UID_FILE = "order.json", "id", "uid"
_MOST_BYTES: Final = 1 << 16
_NAME: Final = 32


class _Written(msgspec.Struct, frozen=True):
    """Content of order.json that is needed later."""

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
    """A prepared job, its record and its folder; `id` is its name at its engine, None until that is known.

    `token` stays secret until the engine gets it with the job: nobody else can have submitted a job with it before.
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
    """It runs a user's image unchanged, and brings back only its output."""

    @property
    def ending(self) -> Ended | None:
        """Recorded end; None until the agent has seen it."""
        return read_record(self.record / ENDED_FILE, Ended)

    @property
    def told(self) -> Ended | None:
        """End according to its folder, where others may have written; None without a valid record there."""
        try:
            return msgspec.json.decode(read_file(self.path, f"{OWN}/{ENDED_FILE}", _MOST_BYTES), type=Ended)
        except (CentreError, OSError, *MALFORMED):
            return None

    @property
    def usage(self) -> Usage | None:
        """Resources used, once it has ended."""
        ended = self.ending
        return None if ended is None or ended.cpu_s is None else Usage(ended.cpu_s, ended.memory_peak_bytes)

    def state(self, phase: JobPhase, reason: str = "", exit_code: int | None = None) -> JobState:
        """Return the state in a phase."""
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
        """State from its own record of the end; None without one."""
        ended = self.ending
        return None if ended is None else self.state(ended.phase, ended.why, ended.exit_code)

    def settled(self, ended: Ended) -> JobState:
        """Record durably how it ended; return that state."""
        _write(self.record, ENDED_FILE, msgspec.json.encode(ended))
        return self.state(ended.phase, ended.why, ended.exit_code)

    def bound(self, job: str, uid: str | None = None) -> JobFolder:
        """Record the name that the engine has given it; return the updated job."""
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
        return head + omission(len(output) - most) + tail

    def begin_outputs(self, names: Collection[str]) -> Beginnings:
        """Return the writer of outputs that come from elsewhere while the job runs; the files exist from now on."""
        with suppress(OSError):
            for name in names:
                replace_file(self.path, name, b"")
        most = self.output_limit_bytes
        return Beginnings(self.path, dict.fromkeys(names, most - most // 2))

    def write_results(self, files: Mapping[str, bytes]) -> Ended | None:
        """Write results fetched from elsewhere; return the job's own record of its end, if that is among them.

        Names were checked. Files that cannot be written, because a folder is in the way, are left out.
        """
        for name, content in files.items():
            with suppress(OSError):
                replace_file(self.path, str(PurePosixPath(name)), content)
        return self.told

    def say_grace(self, grace_s: float) -> None:
        """Have the worker kill the job this long after asking it to end; a folder that is gone is fine."""
        with suppress(OSError):
            replace_file(self.path, f"{OWN}/{GRACE_FILE}", str(grace_s).encode())

    def forget(self) -> None:
        """Drop all records except the job's own results."""
        remove(self.record)
        remove(self.path / OWN)


class Beginnings:
    """Beginnings of outputs in a job's folder, each up to a number of bytes: what `bounded` returns begins with it."""

    def __init__(self, folder: Path, left: dict[str, int]) -> None:
        self._folder, self._left = folder, left

    def take(self, name: str, data: bytes) -> None:
        """Append to an output as far as there is room; a full disk costs output, not the job."""
        data = data[: self._left[name]]
        self._left[name] -= len(data)
        if data:
            with suppress(OSError):
                append_file(self._folder, name, data)


class JobFolders:
    """An agent's jobs: their records in a private folder; `engine` is the name in errors."""

    def __init__(self, engine: str, records: Path) -> None:
        self._engine, self._records = engine, records

    def prepare(
        self, order: JobOrder, *, passes: str, own_image: bool = False, owner: tuple[int, int] | None = None
    ) -> JobFolder:
        """Write the worker's input and the job's record; the folder must not be one of a job that may run.

        `passes` is the prefix of the variables that the worker keeps of the engine's own environment, `owner` the
        worker's user and group; None: the agent's. Raises OrderError for input that no process can be given,
        EngineError if the folder cannot be written.
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
        """Return the job with a mark; None if none was prepared."""
        folder = _read(self._record_of(mark))
        return folder if folder is not None and folder.mark == mark else None

    def all(self) -> Iterator[JobFolder]:
        """Yield the prepared jobs that are not forgotten."""
        with suppress(FileNotFoundError):
            for record in sorted(self._records.iterdir()):
                folder = _read(record)
                if folder is not None:
                    yield folder

    def _record_of(self, mark: JobMark) -> Path:
        """Return the folder of a job's record: task names are too long for folder names."""
        text = msgspec.json.encode(mark.labels)
        return self._records / hashlib.sha256(text).hexdigest()[:_NAME]

    def _check(self, order: JobOrder) -> None:
        if not order.argv or not order.argv[0]:
            raise OrderError(self._engine, f"task {order.mark.task}: no command")
        if order.image is not None:
            raise OrderError(
                self._engine, f"task {order.mark.task}: this engine cannot run containers ({order.image!r})"
            )
        for text in (*order.argv, *order.environment, *order.environment.values()):
            if "\0" in text:
                raise OrderError(self._engine, f"task {order.mark.task}: {text!r} contains a zero byte")
        for name in order.environment:
            if not name or "=" in name:
                raise OrderError(self._engine, f"task {order.mark.task}: {name!r} is not a variable name")
        for name in order.files:
            parts = name.split("/")
            if not {"", ".", ".."}.isdisjoint(parts) or parts[0] == OWN or "\0" in name:
                raise OrderError(self._engine, f"task {order.mark.task}: {name!r} is not a file name in its folder")


def unknown_job(job: str, centre: str) -> JobState:
    """Return the state of an unknown job."""
    return JobState(id=job, mark=JobMark(centre, "", "", 0), phase=JobPhase.LOST, reason="unknown job")


def keeper_command(python: str, folder: Path) -> tuple[str, ...]:
    """Return the command that runs the job of a prepared folder."""
    return (python, "-I", "-S", str(folder / OWN / KEEPER.name), str(folder / OWN))


def _read(record: Path) -> JobFolder | None:
    """Return the job of a record; None for an invalid record."""
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
        folder="..",  # moves with its record: in a container its path differs
        limit_s=order.limit_s,
        grace_s=order.grace_s,
        output_limit_bytes=order.output_limit_bytes,
        ended_file=ENDED_FILE,
        takes_lock=False,  # shared folders may not support locks, and the engine starts it once
        passes=passes,
    )


def _write(record: Path, name: str, content: bytes) -> None:
    """Write a file of a record atomically and durably."""
    new = record / f".{name}.new"
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(record / name)
