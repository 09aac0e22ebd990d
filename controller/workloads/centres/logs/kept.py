"""Outputs of ended jobs, whose own folders may be gone, in a folder that only the agent can enter.

FOLDER/NUMBER-ACCOUNT-JOB/stdout, stderr    NUMBER rises; ACCOUNT and JOB are digests
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.workloads.centres.engines.base import ERRORS_FILE, OUTPUT_FILE, JobMark
from controller.workloads.centres.engines.jobs.places import OMISSION_BYTES, make_folder, read_ends, remove
from controller.workloads.centres.errors import CentreError

OUTPUTS: Final = (OUTPUT_FILE, ERRORS_FILE)
_FOLDER: Final = re.compile(r"(\d{12})-([0-9a-f]{16})-([0-9a-f]{32})")
_NEW: Final = "new"


@dataclass(frozen=True, slots=True)
class KeptLimits:
    """At most `count` jobs' outputs, of `nbytes` together; of one output at most `each_bytes`."""

    count: int
    nbytes: int
    each_bytes: int

    @property
    def share(self) -> int:
        """Bytes of one output or errors that are kept."""
        equal = self.nbytes // self.count // len(OUTPUTS) if self.count else 0
        return max(0, min(equal - OMISSION_BYTES, self.each_bytes))


@dataclass(frozen=True, slots=True)
class _Entry:
    number: int
    account: str
    job: str
    nbytes: int

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.number:012}-{self.account}-{self.job}"


class KeptOutputs:
    """See the module; safe for threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._entries: dict[str, _Entry] = {}
        self._lock = threading.Lock()

    def open(self) -> None:
        """Create the folder, or find the outputs in it; raise OSError."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for path in self._folder.iterdir():
            match = _FOLDER.fullmatch(path.name)
            if match is not None:
                nbytes = sum(file.stat().st_size for file in path.iterdir())
                self._entries[match[3]] = _Entry(int(match[1]), match[2], match[3], nbytes)

    def keep(self, mark: JobMark, account: str, job_folder: Path, limits: KeptLimits) -> None:
        """Keep the ends of a job's output for an account, and drop what is beyond the limits; raise OSError."""
        contents = {name: _ends(job_folder, name, limits.share) for name in OUTPUTS} if limits.share else {}
        with self._lock:
            self._drop(_job(mark))
            if contents:
                number = max((entry.number for entry in self._entries.values()), default=0) + 1
                nbytes = sum(map(len, contents.values()))
                entry = _Entry(number, _digest(account)[:16], _job(mark), nbytes)
                make_folder(self._folder / _NEW, contents, None)
                (self._folder / _NEW).rename(self._folder / entry.name)
                self._entries[entry.job] = entry
            self._make_room(limits)

    def find(self, mark: JobMark) -> Path | None:
        """Return the folder with the kept output of a job; None if it is not kept (any more)."""
        entry = self._entries.get(_job(mark))  # without the lock: the event loop must not wait for a disk
        return None if entry is None else self._folder / entry.name

    def _make_room(self, limits: KeptLimits) -> None:
        """Drop the oldest output of the account with the most of them, until all are within the limits."""
        while len(self._entries) > limits.count or sum(each.nbytes for each in self._entries.values()) > limits.nbytes:
            counts = Counter(entry.account for entry in self._entries.values())
            oldest = min(self._entries.values(), key=lambda entry: (-counts[entry.account], entry.number))
            self._drop(oldest.job)

    def _drop(self, job: str) -> None:
        entry = self._entries.pop(job, None)
        if entry is not None:
            remove(self._folder / entry.name)


def _ends(folder: Path, name: str, most: int) -> bytes:
    """Return the ends of an output; empty if the job has left none that can be read."""
    with suppress(CentreError):
        return read_ends(folder, name, most)
    return b""


def _job(mark: JobMark) -> str:
    return _digest(repr(sorted(mark.labels.items())))[:32]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
