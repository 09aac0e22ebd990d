"""The history's files: FOLDER/TABLE/FIRST-LAST.INTERVALns.END.parquet, and FOLDER/TABLE/NUMBER.journal before that.

Files of a table are numbered in the order in which they were begun. One that is merged from others has their first
and last number and appears by a rename; from then on files inside its range are not part of the history, even before
they are deleted. So no crash loses rows or shows any twice. END is the newest row's time in UNIX seconds.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collectors.errors import HistoryError
from collectors.history import journal

_NAME: Final = re.compile(
    r"(?P<first>\d{8})-(?P<last>\d{8})\.(?P<interval>\d+)ns\.(?P<end>\d+)\.parquet(?P<bad>\.corrupt)?"
)
_JOURNAL: Final = re.compile(r"(?P<number>\d{8})" + re.escape(journal.SUFFIX) + r"(?P<bad>\.corrupt)?")
UNFINISHED: Final = ".unfinished"
"""The suffix of a file that is being written."""
CORRUPT: Final = ".corrupt"
"""The suffix of a broken file: no longer read, deleted when it is old."""
UPLOADED_FILE: Final = "uploaded"
"""The number of the newest file that is in the object store, in a table's folder."""
TOPOLOGY_FILE: Final = "topology.yaml"
"""The topology that the newest rows are of, beside the tables."""


@dataclass(frozen=True, slots=True)
class HistoryFile:
    """A complete file: which numbers it covers, the interval of its rows, the newest row's time, its size."""

    path: Path
    first: int
    last: int
    interval_ns: int
    end_s: int
    size_bytes: int
    is_corrupt: bool = False

    def covers(self, other: HistoryFile) -> bool:
        """Return whether `other`, another file of the table, is contained in this one."""
        inside = self.first <= other.first and other.last <= self.last
        same = (self.first, self.last) == (other.first, other.last)
        return inside and (not same or self.interval_ns > other.interval_ns)


@dataclass(frozen=True, slots=True)
class Journal:
    """A file that is still written, or was when its collector was killed."""

    path: Path
    number: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Listing:
    """A table's folder: files that make up the history, files that others have replaced, set aside, and journals."""

    files: tuple[HistoryFile, ...]
    replaced: tuple[HistoryFile, ...]
    corrupt: tuple[HistoryFile, ...]
    journals: tuple[Journal, ...]

    @property
    def size_bytes(self) -> int:
        """The size of everything in the folder."""
        complete = sum(file.size_bytes for file in (*self.files, *self.replaced, *self.corrupt))
        return complete + sum(journal.size_bytes for journal in self.journals)

    @property
    def next_number(self) -> int:
        """An unused number."""
        numbers = [file.last for file in (*self.files, *self.replaced, *self.corrupt)]
        return max((*numbers, *(journal.number for journal in self.journals)), default=0) + 1


def name_of(first: int, last: int, interval_ns: int, end_s: int) -> str:
    """Return a complete file's name."""
    return f"{first:08d}-{last:08d}.{interval_ns}ns.{end_s}.parquet"


def journal_name(number: int) -> str:
    """Return a journal's name."""
    return f"{number:08d}{journal.SUFFIX}"


def uploaded(folder: Path) -> int:
    """Return the number of a table's newest file that is in the object store, 0 if none is; raise HistoryError."""
    file = folder / UPLOADED_FILE
    try:
        return int(file.read_text("ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a number"
        raise HistoryError(f"{file}: {reason}") from error


def note_uploaded(folder: Path, number: int) -> None:
    """Remember the number of a table's newest file that is in the object store; raise HistoryError."""
    file = folder / UPLOADED_FILE
    draft = file.with_name(UPLOADED_FILE + UNFINISHED)
    try:
        draft.write_text(str(number), "ascii")
        draft.replace(file)
    except OSError as error:
        raise HistoryError(f"{file}: cannot be written: {error.strerror}") from error


def listing(folder: Path) -> Listing:
    """Return the content of a table's folder, oldest first; empty for a missing folder."""
    complete: list[HistoryFile] = []
    journals: list[Journal] = []
    for entry in _entries(folder):
        if match := _NAME.fullmatch(entry.name):
            first, last, interval_ns, end_s = (int(match[part]) for part in ("first", "last", "interval", "end"))
            is_corrupt = match["bad"] is not None
            complete.append(HistoryFile(Path(entry.path), first, last, interval_ns, end_s, _size(entry), is_corrupt))
        elif match := _JOURNAL.fullmatch(entry.name):
            journal = Journal(Path(entry.path), int(match["number"]), _size(entry))
            if match["bad"] is None:
                journals.append(journal)
            else:
                number, end_s = journal.number, _written_s(entry)
                complete.append(
                    HistoryFile(journal.path, number, number, 0, end_s, journal.size_bytes, is_corrupt=True)
                )
    return _sorted_out(complete, journals)


def _sorted_out(complete: list[HistoryFile], journals: list[Journal]) -> Listing:
    complete.sort(key=lambda file: (file.first, -file.last, -file.interval_ns))
    corrupt = tuple(file for file in complete if file.is_corrupt)
    kept: list[HistoryFile] = []
    replaced: list[HistoryFile] = []
    for file in complete:
        # Ranges nest or are apart, so only the newest that is kept can contain the next.
        if not file.is_corrupt:
            (replaced if kept and kept[-1].covers(file) else kept).append(file)
    ranges = [(file.first, file.last) for file in (*kept, *corrupt)]
    open_ones = [journal for journal in journals if not any(first <= journal.number <= last for first, last in ranges)]
    return Listing(tuple(kept), tuple(replaced), corrupt, tuple(sorted(open_ones, key=lambda journal: journal.number)))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return a consistent listing of a folder.

    A file that replaces another while the folder is read may be missed together with it. So read until two listings are
    equal: any file missed in the first existed before the second began.
    """
    before, names_now = None, _read(folder)
    while before != (names := {entry.name for entry in names_now}):
        before, names_now = names, _read(folder)
    return names_now


def _read(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except FileNotFoundError:
        return []


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def _written_s(entry: os.DirEntry[str]) -> int:
    """Return the time of a file's last write, which is as good as its newest row's time."""
    try:
        return int(entry.stat().st_mtime)
    except FileNotFoundError:
        return 0
