"""Who did what, when, and what came of it: a line of JSON each, in a file that only its user reads. Never a token."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from controller.errors import ApiError

LOGGER = logging.getLogger("millrace.api")

_ENCODER: Final = msgspec.json.Encoder()


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was to change something, or was refused."""

    time_ns: int
    who: str
    role: str
    subject: str | None
    client: str
    """The address of the other side; empty for a UNIX socket."""
    method: str
    path: str
    what: str
    status: int


class AuditLog:
    """Appends records to a file; raises ApiError where it cannot be had at all.

    Where a record cannot be written later, `failed` counts it and the log says so: requests go on.
    """

    def __init__(self, path: Path | None, now_ns: Callable[[], int]) -> None:
        self._path, self.now_ns = path, now_ns
        self.written = self.failed = 0
        self._file: int | None = None
        self.reopen()

    def reopen(self) -> None:
        """Open the file again, as after it was renamed."""
        if self._path is None:
            return
        try:
            fresh = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            os.fchmod(fresh, 0o600)
        except OSError as error:
            raise ApiError(f"audit log {self._path}: {error.strerror}") from None
        self.close()
        self._file = fresh

    def write(self, record: AuditRecord) -> None:
        """Append a record."""
        if self._file is None:
            return
        line = _ENCODER.encode(record) + b"\n"
        try:
            written = os.write(self._file, line)
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        if written != len(line):
            self._fail("written in part")
            return
        self.written += 1

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _fail(self, problem: str) -> None:
        self.failed += 1
        LOGGER.warning("audit log %s: %s: a record is lost", self._path, problem)
