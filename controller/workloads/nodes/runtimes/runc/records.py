"""Records of each container in its folder: its owner, and its end as conmon saw it.

A folder has `record.json`, written last when the container is created, so that one without it is half made; conmon's
files `log`, `pid`, `conmon.pid`, `exit` and `oom`; and the bundle: config.json and rootfs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from controller.workloads.nodes.runtimes.errors import NoSuchContainerError

_RECORD: Final = "record.json"
_STARTED: Final = "started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A container as ordered; `cgroup` is the path of its control group."""

    id: str
    name: str
    labels: dict[str, str]
    cgroup: str
    image_digest: str = ""


_DECODER: Final = msgspec.json.Decoder(Record)
"""Made here: threads read records, and msgspec crashes if several ask for a type the first time."""


@dataclass(frozen=True, slots=True)
class Ending:
    """End of a container: its exit code, None if conmon was killed, and the time."""

    exit_code: int | None
    time_ns: int | None


class Records:
    """The containers' folders below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, container: str) -> Path:
        """Return a container's folder; raise NoSuchContainerError for an invalid id."""
        if not container.isalnum():
            raise NoSuchContainerError(f"runc: {container[:80]!r} is not a container id")
        return self.folder / container

    def write(self, record: Record) -> None:
        """Record that a container is complete."""
        folder = self.path(record.id)
        new = folder / f"{_RECORD}.new"
        new.write_bytes(msgspec.json.encode(record))
        new.rename(folder / _RECORD)

    def read(self, container: str) -> Record:
        """Return a container's record; raise NoSuchContainerError if there is none."""
        try:
            return _DECODER.decode((self.path(container) / _RECORD).read_bytes())
        except FileNotFoundError as error:
            raise NoSuchContainerError(f"runc: there is no container {container[:12]}") from error

    def all(self) -> list[Record]:
        """Return all complete containers."""
        records = []
        for path in self.folder.glob(f"*/{_RECORD}"):
            try:
                records.append(_DECODER.decode(path.read_bytes()))
            except FileNotFoundError:
                continue  # removed just now
        return records

    def unfinished(self) -> list[str]:
        """Return the ids of half-made containers."""
        return [path.name for path in self.folder.iterdir() if path.is_dir() and not (path / _RECORD).exists()]

    def set_started(self, container: str) -> None:
        """Record that a container was started now."""
        (self.path(container) / _STARTED).touch()

    def started_ns(self, container: str) -> int | None:
        """Return when it was started."""
        return _modified_ns(self.path(container) / _STARTED)

    def ending(self, container: str) -> Ending | None:
        """Return how it ended; None until conmon has reported that."""
        path = self.path(container) / "exit"
        try:
            text = path.read_text()
        except FileNotFoundError:
            return None
        return Ending(int(text) if text.strip().isdecimal() else None, _modified_ns(path))

    def was_short_of_memory(self, container: str) -> bool:
        """Return whether conmon saw a process of it killed for lack of memory."""
        return (self.path(container) / "oom").exists()

    def pid(self, container: str, name: str) -> int | None:
        """Return the process of `pid` (the container's first) or `conmon.pid`."""
        try:
            return int((self.path(container) / name).read_text())
        except (FileNotFoundError, ValueError):
            return None


def _modified_ns(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None
