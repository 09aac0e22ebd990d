"""Reads an output of a job while it grows, from a folder in which the job may do anything."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from controller.workloads.centres.engines.jobs.places import open_file
from controller.workloads.centres.errors import CentreError

CHUNK: Final = 1 << 16


class OutputReader:
    """Reads one file from its last `tail` lines on, within its last `most` bytes, up to its size at the last look.

    The file stays open, as a job's folder may be removed once it has ended. Safe for threads: one that is still reading
    does not see its descriptor closed, and reused for another file.
    """

    def __init__(self, name: str, *, tail: int | None, most: int) -> None:
        self.name, self._tail, self._most = name, tail, most
        self._file: int | None = None
        self._position: int | None = None
        self._end = 0
        self._lock, self._is_closed = threading.Lock(), False

    @property
    def is_open(self) -> bool:
        """True once there was a file."""
        return self._file is not None

    def look(self, folder: Path) -> None:
        """Open the file in a job's folder, or what has replaced it; keep the one that is open if there is none."""
        with self._lock:
            if self._is_closed:
                return
            try:
                file = open_file(folder, self.name)
            except CentreError:
                # Not there yet, or no longer; or the job has put something else in its place.
                if self._file is None:
                    return
            else:
                self._replace(file)
            self._measure()

    def read(self) -> bytes:
        """Return the next bytes up to the size at the last look; empty at its end."""
        with self._lock:
            if self._file is None or self._position is None or self._position >= self._end:
                return b""
            data = os.pread(self._file, min(CHUNK, self._end - self._position), self._position)
            self._position += len(data)
            return data

    def close(self) -> None:
        """Close the file for good."""
        with self._lock:
            self._is_closed = True
            self._replace(None)

    def _replace(self, file: int | None) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = file

    def _measure(self) -> None:
        """Take the file's size, and begin at its tail if this is the first look at it."""
        if self._file is None:
            return
        self._end = os.fstat(self._file).st_size
        if self._position is None:
            begin = max(0, self._end - self._most)
            self._position = begin if self._tail is None else start_of_tail(self._file, begin, self._end, self._tail)


def start_of_tail(file: int, begin: int, end: int, lines: int) -> int:
    """Return where the last lines of a file's bytes from `begin` to `end` start; an unfinished line counts."""
    if lines == 0:
        return end
    position = end
    while position > begin:
        start = max(begin, position - CHUNK)
        block = os.pread(file, position - start, start)
        # The newline at the end finishes the last line and starts no other.
        stop = len(block) - (position == end and block.endswith(b"\n"))
        while (stop := block.rfind(b"\n", 0, stop)) >= 0:
            lines -= 1
            if lines == 0:
                return start + stop + 1
        position = start
    return begin
