"""Record of a fabric's resources, written before they are created so that anyone can remove them after a crash.

`<run root>/<fabric id>/manifest.json` names the owner, the namespaces and the processes. A process is its number and
its start time (proc(5), field 22 of stat): numbers are reused, pairs are not. Any process in a fabric's namespaces
belongs to the fabric, recorded or not: its owner may have died between starting and recording it.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import msgspec

from dataplane.errors import FabricError
from dataplane.fabric.kernel import namespaces
from dataplane.local.deadline import LocalDeadline
from dataplane.malformed import MALFORMED
from dataplane.running import unwinding

LOGGER = logging.getLogger("millrace.fabric")

RUN_ROOT = Path("/run/millrace-fabrics")
"""Owned by root: /run/millrace may be the folder of another user's daemons."""
MANIFEST = "manifest.json"
_UNFINISHED_S = 60.0
"""A folder without a manifest is younger than this, or its creator died before creating anything."""
_POLL_S = 0.02


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process, told apart from a later one with the same number by its start time (clock ticks since boot)."""

    pid: int
    start_time: int

    @classmethod
    def of(cls, pid: int) -> ProcessId | None:
        """Return the process that has this number now, or None; a zombie counts as none."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else cls(pid, int(fields[19]))

    def is_alive(self) -> bool:
        """Return whether it is still running."""
        return ProcessId.of(self.pid) == self

    def send(self, number: signal.Signals) -> None:
        """Send a signal to this process; do nothing if it has ended."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return
        try:
            if self.is_alive():
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return
        finally:
            os.close(descriptor)


@dataclass(slots=True)
class Manifest:
    """Resources that one fabric owns; `save` after every change, before acting on it.

    is_named: it was given a name and stays up until it is taken down. topology: its name, empty for bare namespaces
    that form no fabric. hosts: their IPv4 addresses.
    """

    fabric_id: str
    owner: ProcessId
    namespaces: list[str] = field(default_factory=list)
    processes: list[ProcessId] = field(default_factory=list)
    is_named: bool = False
    topology: str = ""
    switches: list[str] = field(default_factory=list)
    hosts: dict[str, str] = field(default_factory=dict)

    def begin(self, run_dir: Path) -> None:
        """Create the folder and write the manifest there, before anything else is created; raise FabricError."""
        try:
            run_dir.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            run_dir.mkdir(mode=0o700)
            self.save(run_dir)
        except OSError as error:
            raise FabricError(f"{run_dir}: {error.strerror}") from error

    def save(self, run_dir: Path) -> None:
        """Write the file atomically: a reader sees the old text or the new one."""
        draft = run_dir / f".{MANIFEST}"
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.replace(run_dir / MANIFEST)

    @staticmethod
    def load(run_dir: Path) -> Manifest | None:
        """Load the manifest, or return None if there is none; raise FabricError for an invalid one."""
        path = run_dir / MANIFEST
        try:
            return msgspec.json.decode(path.read_bytes(), type=Manifest)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FabricError(f"{path}: {error.strerror}") from error
        except MALFORMED as error:
            raise FabricError(f"{path}: {error}") from error


def namespace_of(fabric_id: str, node: str) -> str:
    """Return the name of the network namespace of a fabric's node."""
    return f"mr-{fabric_id}-{node}"


def find_fabrics(run_root: Path = RUN_ROOT, on_problem: Callable[[str], None] = LOGGER.warning) -> list[Manifest]:
    """Return all recorded fabrics, sorted by name, including those whose owner is dead."""
    manifests = (manifest for _, manifest in _written(run_root, on_problem))
    return [manifest for manifest in manifests if manifest is not None and manifest.topology]


def remove_leftovers(run_root: Path = RUN_ROOT, on_problem: Callable[[str], None] = LOGGER.warning) -> list[str]:
    """Remove every fabric whose owner is dead; return their ids. Live fabrics are not touched.

    `on_problem` is called for each that cannot be read or removed; it stays, and the others are removed.
    """
    removed = []
    for run_dir, manifest in _dead(run_root, on_problem):
        try:
            if manifest is None:
                _remove_unfinished(run_dir)
            else:
                remove(manifest, run_dir)
                removed.append(manifest.fabric_id)
        except FabricError as error:
            on_problem(str(error))
    return removed


@dataclass(frozen=True, slots=True)
class Leftover:
    """Leftovers of a dead fabric: its id, its remaining namespaces, and the processes in them."""

    fabric_id: str
    namespaces: tuple[str, ...]
    pids: tuple[int, ...]


def find_leftovers(run_root: Path = RUN_ROOT, on_problem: Callable[[str], None] = LOGGER.warning) -> list[Leftover]:
    """Return what `remove_leftovers` would remove."""
    leftovers = []
    for _, manifest in _dead(run_root, on_problem):
        if manifest is not None:
            there = tuple(name for name in manifest.namespaces if (namespaces.RUN_NETNS / name).exists())
            living = [process for process in manifest.processes if process.is_alive()]
            pids = sorted({process.pid for process in [*living, *_inside(manifest.namespaces)]})
            leftovers.append(Leftover(manifest.fabric_id, there, tuple(pids)))
    return leftovers


def _dead(run_root: Path, on_problem: Callable[[str], None]) -> Iterator[tuple[Path, Manifest | None]]:
    """Yield the folders of fabrics whose owner is dead, and those without a manifest."""
    for run_dir, manifest in _written(run_root, on_problem):
        if manifest is None or not manifest.owner.is_alive():
            yield run_dir, manifest


def _written(run_root: Path, on_problem: Callable[[str], None]) -> Iterator[tuple[Path, Manifest | None]]:
    """Yield all folders with their manifests."""
    for run_dir in sorted(run_root.iterdir()) if run_root.is_dir() else ():
        try:
            manifest = Manifest.load(run_dir)
        except FabricError as error:
            on_problem(str(error))
            continue
        yield run_dir, manifest


@contextmanager
def held_namespaces(*names: str, run_root: Path = RUN_ROOT) -> Iterator[None]:
    """Hold namespaces while the block lasts; raise FabricError for one that cannot be created or already exists.

    They are recorded first: however the process ends, they are removed, at the latest by the next fabric or `millrace
    clean`. Needs root.
    """
    owner = ProcessId.of(os.getpid())
    if owner is None:
        raise FabricError("this process is not in /proc")
    namespaces.require_free(names)
    manifest = Manifest(secrets.token_hex(3), owner, list(names))
    run_dir = run_root / manifest.fabric_id
    with unwinding():
        try:
            manifest.begin(run_dir)
            for name in names:
                namespaces.create(name)
            yield
        finally:
            remove(manifest, run_dir)


def _remove_unfinished(run_dir: Path) -> None:
    """Remove a folder that never got its manifest; another process may be doing the same."""
    with suppress(FileNotFoundError):
        if time.time() - run_dir.stat().st_mtime > _UNFINISHED_S:
            shutil.rmtree(run_dir, ignore_errors=True)


def remove(manifest: Manifest, run_dir: Path, *, stop_timeout_s: float = 3.0) -> None:
    """End a fabric's processes, then remove its namespaces and, if all went well, its folder; idempotent."""
    end_processes([*manifest.processes, *_inside(manifest.namespaces)], stop_timeout_s)
    end_processes(_inside(manifest.namespaces), stop_timeout_s)
    for name in manifest.namespaces:
        namespaces.remove(name)
    shutil.rmtree(run_dir, ignore_errors=True)


def end_processes(processes: Iterable[ProcessId], stop_timeout_s: float) -> None:
    """Ask processes to stop, kill those still running after `stop_timeout_s`; raise FabricError if one survives."""
    left = {process for process in processes if process.is_alive()}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            process.send(number)
        deadline = LocalDeadline(stop_timeout_s, "the end of a fabric's processes")
        while left and not deadline.has_passed():
            left = {process for process in left if process.is_alive()}
            if left:
                time.sleep(_POLL_S)
    if left:
        raise FabricError(f"processes {sorted(p.pid for p in left)} do not end, {stop_timeout_s} s after SIGKILL")


def _inside(names: Iterable[str]) -> list[ProcessId]:
    """Return the processes, except ours, that run in the named namespaces."""
    inodes = set()
    for name in names:
        with suppress(OSError):
            status = (namespaces.RUN_NETNS / name).stat()
            inodes.add((status.st_dev, status.st_ino))
    processes = []
    for entry in Path("/proc").iterdir() if inodes else ():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        with suppress(OSError):
            status = (entry / "ns/net").stat()
            process = ProcessId.of(int(entry.name))
            if (status.st_dev, status.st_ino) in inodes and process is not None:
                processes.append(process)
    return processes
