"""The history's files: FOLDER/TABLE/FIRST-LAST.INTERVALns.END.parquet, and FOLDER/TABLE/NUMBER.journal before that.

Files of a table are numbered in the order in which they were begun. One that is merged from others bears their first
and last number and appears by a rename; from then on those inside its range are no longer part of the history, deleted
or not yet. So no crash loses rows or shows any twice. END is the newest row's time in UNIX seconds.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collectors.history import journal

_NAME: Final = re.compile(
    r"(?P<first>\d{8})-(?P<last>\d{8})\.(?P<interval>\d+)ns\.(?P<end>\d+)\.parquet(?P<bad>\.corrupt)?"
)
_JOURNAL: Final = re.compile(r"(?P<number>\d{8})" + re.escape(journal.SUFFIX) + r"(?P<bad>\.corrupt)?")
UNFINISHED: Final = ".unfinished"
"""The ending of what is being written."""
CORRUPT: Final = ".corrupt"
"""The ending of what was found broken: no longer read, deleted when it is old."""


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
        """A number that no file has."""
        numbers = [file.last for file in (*self.files, *self.replaced, *self.corrupt)]
        return max((*numbers, *(journal.number for journal in self.journals)), default=0) + 1


def name_of(first: int, last: int, interval_ns: int, end_s: int) -> str:
    """Return a complete file's name."""
    return f"{first:08d}-{last:08d}.{interval_ns}ns.{end_s}.parquet"


def journal_name(number: int) -> str:
    """Return a journal's name."""
    return f"{number:08d}{journal.SUFFIX}"


def listing(folder: Path) -> Listing:
    """Return what a table's folder holds, oldest first; of a folder that is not there, nothing."""
    complete: list[HistoryFile] = []
    journals: list[Journal] = []
    for entry in _entries(folder):
        if found := _NAME.fullmatch(entry.name):
            first, last, interval_ns, end_s = (int(found[part]) for part in ("first", "last", "interval", "end"))
            is_corrupt = found["bad"] is not None
            complete.append(HistoryFile(Path(entry.path), first, last, interval_ns, end_s, _size(entry), is_corrupt))
        elif found := _JOURNAL.fullmatch(entry.name):
            one = Journal(Path(entry.path), int(found["number"]), _size(entry))
            if found["bad"] is None:
                journals.append(one)
            else:
                number, end_s = one.number, _written_s(entry)
                complete.append(HistoryFile(one.path, number, number, 0, end_s, one.size_bytes, is_corrupt=True))
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
    open_ones = [one for one in journals if not any(first <= one.number <= last for first, last in ranges)]
    return Listing(tuple(kept), tuple(replaced), corrupt, tuple(sorted(open_ones, key=lambda one: one.number)))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder at one moment.

    A file that takes another's place while a folder is read may be missed with the other. So it is read until two
    readings are the same: what was missed in the first was there before the second began.
    """
    before, found = None, _read(folder)
    while before != (names := {entry.name for entry in found}):
        before, found = names, _read(folder)
    return found


def _read(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


def _written_s(entry: os.DirEntry[str]) -> int:
    """Return when a file was written last, which is as good as its newest row's time."""
    try:
        return int(entry.stat().st_mtime)
    except FileNotFoundError:
        return 0
