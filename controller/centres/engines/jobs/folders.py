"""The folders of jobs that another system runs: what is to run, under which number, how it ended.

    FOLDER/.millrace/order.json     whose job it is, and what was ordered
    FOLDER/.millrace/keeper.py      which the worker runs, and start.json, what it is told
    FOLDER/.millrace/id             the job's name at its engine, once that has taken it
    FOLDER/.millrace/ended.json     how it ended, written by the worker
    FOLDER/.millrace/grace          seconds, where cancelling names others than the order

Agent and workers share them. They outlive the agent, and the engine's own memory of jobs that have ended.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec

from controller.centres.engines.base import ERRORS_FILE, OUTPUT_FILE, JobMark, JobOrder, JobPhase, JobState, Usage
from controller.centres.engines.jobs.keeping import GRACE_FILE, KEEPER, START_FILE, Ended, Start, read_record
from controller.centres.errors import EngineError, OrderError

OWN: Final = ".millrace"
ENDED_FILE: Final = "ended.json"
_DEPTHS: Final = ("*", "*/*")
"""Where an agent has its jobs' folders."""


class _Written(msgspec.Struct, frozen=True):
    """What order.json has that is asked for later."""

    labels: dict[str, str]
    unit: str
    units: int
    limit_s: float | None = None
    grace_s: float = 0.0
    output_limit_bytes: int = 1 << 20


@dataclass(frozen=True, slots=True)
class JobFolder:
    """A job's folder that was prepared; `id` is its name at its engine, None before that has taken it."""

    path: Path
    mark: JobMark
    unit: str
    units: int
    id: str | None
    limit_s: float | None = None
    grace_s: float = 0.0
    output_limit_bytes: int = 1 << 20

    @property
    def ending(self) -> Ended | None:
        """How it ended; None while it has not, as far as is written."""
        return read_record(self.path / OWN / ENDED_FILE, Ended)

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

    def bound(self, job: str) -> JobFolder:
        """Write down under which name the engine has taken it; return it with that."""
        (self.path / OWN).mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(self.path / OWN / "id", job.encode())
        return replace(self, id=job)

    def bounded(self, output: bytes) -> bytes:
        """Return the beginning and the end of an output, half of the limit each."""
        most = self.output_limit_bytes
        if len(output) <= most:
            return output
        head, tail = output[: most - most // 2], output[len(output) - most // 2 :]
        return head + f"\n... {len(output) - most} bytes are left out ...\n".encode() + tail

    def write_results(self, files: Mapping[str, bytes]) -> Ended | None:
        """Write what a job has left elsewhere, the record of its end last; return that, if it is among it.

        Names were checked. What cannot be written, as a folder is where a file should be, is left out.
        """
        record = f"{OWN}/{ENDED_FILE}"
        for name, content in sorted(files.items(), key=lambda item: item[0] == record):
            path = self.path / name
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, content)
        return self.ending

    def write_end(self, ended: Ended) -> None:
        """Write down how it ended, for a worker that could not."""
        _write(self.path / OWN / ENDED_FILE, msgspec.json.encode(ended))

    def say_grace(self, grace_s: float) -> None:
        """Have the worker kill it so many seconds after it was asked to end."""
        _write(self.path / OWN / GRACE_FILE, str(grace_s).encode())

    def forget(self) -> None:
        """Drop what is kept beside what the job itself has left."""
        shutil.rmtree(self.path / OWN, ignore_errors=True)


class JobFolders:
    """The folders below one, in which the agent has its jobs; `engine` is whom errors name."""

    def __init__(self, engine: str, root: Path) -> None:
        self._engine, self._root = engine, root

    def prepare(self, order: JobOrder, *, passes: str) -> JobFolder:
        """Write what the worker needs; `passes` is the beginning of what it keeps of the engine's own environment.

        Raises OrderError for what no process can be given, EngineError where the folder cannot be written.
        """
        self._check(order)
        own = order.folder / OWN
        try:
            shutil.rmtree(own, ignore_errors=True)
            own.mkdir(parents=True, mode=0o700)
            for name in (OUTPUT_FILE, ERRORS_FILE):
                (order.folder / name).unlink(missing_ok=True)
            for name, content in order.files.items():
                path = order.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                _write(path, content)
                path.chmod(0o700 if content.startswith(b"#!") else 0o600)
            shutil.copyfile(KEEPER, own / KEEPER.name)
            _write(own / START_FILE, msgspec.json.encode(_start(order, passes)))
            _write(own / "order.json", msgspec.json.encode(_written(order)))
        except OSError as error:
            raise EngineError(self._engine, f"{error.filename}: {(error.strerror or '').lower()}") from error
        found = read_folder(order.folder)
        assert found is not None, "it was written just now"
        return found

    def all(self) -> Iterator[JobFolder]:
        """Yield those that are there and not forgotten; one that is being removed meanwhile is none."""
        for depth in _DEPTHS:  # not deeper: jobs may leave anything there
            for own in sorted(self._root.glob(f"{depth}/{OWN}")):
                found = read_folder(own.parent)
                if found is not None:
                    yield found

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
            parts = PurePosixPath(name).parts
            if not parts or name.startswith("/") or ".." in parts or parts[0] == OWN or "\0" in name:
                raise OrderError(self._engine, f"task {order.mark.task}: {name!r} is no file of its folder")


def unknown_job(job: str, centre: str) -> JobState:
    """Return a job of which nothing is known."""
    return JobState(id=job, mark=JobMark(centre, "", "", 0), phase=JobPhase.LOST, reason="nothing is known of it")


def read_folder(path: Path) -> JobFolder | None:
    """Return the folder of a job; None for one that is none, or forgotten."""
    written = read_record(path / OWN / "order.json", _Written)
    mark = None if written is None else JobMark.of_labels(written.labels)
    if written is None or mark is None:
        return None
    try:
        job = (path / OWN / "id").read_text()
    except (OSError, UnicodeDecodeError):
        job = None
    return JobFolder(
        path,
        mark,
        written.unit,
        written.units,
        job,
        limit_s=written.limit_s,
        grace_s=written.grace_s,
        output_limit_bytes=written.output_limit_bytes,
    )


def keeper_command(python: str, folder: Path) -> tuple[str, ...]:
    """Return what runs the job of a folder that was prepared."""
    return (python, "-I", "-S", str(folder / OWN / KEEPER.name), str(folder / OWN))


def _written(order: JobOrder) -> _Written:
    return _Written(order.mark.labels, order.unit, order.units, order.limit_s, order.grace_s, order.output_limit_bytes)


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


def _write(path: Path, content: bytes) -> None:
    """Write a file all at once or not at all."""
    new = path.with_name(f"{path.name}.new")
    new.write_bytes(content)
    os.replace(new, path)  # noqa: PTH105
