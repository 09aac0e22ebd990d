"""Audit log: who did what and when, with the outcome, in JSON lines that only the owner can read. Never logs a token.

Each minute, the first refusal of each stranger's address and the first 16 of each caller and status get lines of
their own; the rest share one line with their number. So strangers can neither fill the disk nor hide what others did.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from controller.common.errors import ApiError
from controller.common.http_connections import group_of
from dataplane.clock import NS_PER_S

LOGGER = logging.getLogger("millrace.api")

MAX_BYTES: Final = 64 << 20
KEPT: Final = 8
WINDOW_NS: Final = 60_000_000_000
_MOST_REFUSALS: Final = 64
"""Lines of refusals in a window; those of any further addresses are counted together."""

_LINES_OF_KNOWN: Final = 16

_ENCODER: Final = msgspec.json.Encoder()


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A resource after a request, or before its deletion."""

    kind: str
    name: str
    uid: str
    revision: int
    digest: str
    """SHA-256 of labels and spec, or of labels and status if that was written; it reveals nothing of the content."""


class AuditRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A request that was to change something, or was refused."""

    time_ns: int
    who: str
    role: str
    subject: str | None
    client: str
    """The client's address; empty for a UNIX socket."""
    method: str
    path: str
    what: str
    status: int
    changed: Changed | None = None
    more: int = 0
    """Similar refusals in the previous minute without lines of their own."""


class AuditLog:
    """Appends records to a file; raises ApiError if the file cannot be opened at all.

    A file that would exceed `max_bytes` becomes FILE.1, that one FILE.2 and so on, up to `kept`. If writing fails
    later, `failed` counts the record and the log reports it: requests go on.
    """

    def __init__(
        self, path: Path | None, now_ns: Callable[[], int], *, max_bytes: int = MAX_BYTES, kept: int = KEPT
    ) -> None:
        self._path, self.now_ns = path, now_ns
        self._max_bytes, self._kept = max_bytes, kept
        self.written = self.failed = self.gathered = 0
        """`gathered` counts the records that are refusals without lines of their own."""
        self._file: int | None = None
        self._size = 0
        self._refusals: dict[tuple[str, ...], tuple[AuditRecord, int]] = {}
        self._since_ns = now_ns()
        self.reopen()

    def reopen(self) -> None:
        """Reopen the file, for example after a rename."""
        if self._path is None:
            return
        try:
            fresh = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            # The mode in os.open applies only to a file that it creates.
            os.fchmod(fresh, 0o600)
            size = os.fstat(fresh).st_size
        except OSError as error:
            raise ApiError(f"audit log {self._path}: {error.strerror}") from None
        # Close the old file only once the new one is open, so that a failure loses no records.
        if self._file is not None:
            os.close(self._file)
        self._file, self._size = fresh, size

    def write(self, record: AuditRecord) -> None:
        """Append a record."""
        if self._file is None:
            return
        line = _ENCODER.encode(record) + b"\n"
        # Rotating an empty file would not make a long line fit.
        if self._size and self._size + len(line) > self._max_bytes:
            self._rotate()
        try:
            written = os.write(self._file, line)
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        self._size += written
        if written != len(line):
            self._fail("written in part")
            return
        self.written += 1

    def refuse(self, record: AuditRecord) -> None:
        """Record a refusal: append the first of its kind in a minute, count the others."""
        if record.time_ns - self._since_ns >= WINDOW_NS:
            self.flush()
        key = group_of(record.client), record.who, record.role, str(record.status)
        # A flood from many addresses must not fill the table: the rest share one entry.
        if key not in self._refusals and len(self._refusals) >= _MOST_REFUSALS:
            key = "", "", "", ""
            record = replace(record, client="", who="several", role="", subject=None, path="", what="")
        first, count = self._refusals.get(key, (record, 0))
        self._refusals[key] = first, count + 1
        if count < _lines_of(record):
            self.write(record)
        else:
            self.gathered += 1

    def flush(self) -> None:
        """Append the number of further refusals of each kind, and begin a new minute."""
        refusals, self._refusals, self._since_ns = self._refusals, {}, self.now_ns()
        for first, count in refusals.values():
            if count > _lines_of(first):
                more = count - _lines_of(first)
                self.write(replace(first, time_ns=self._since_ns, path="", what="", more=more))

    async def keep(self) -> None:
        """Flush every minute until cancelled."""
        while True:
            await asyncio.sleep(WINDOW_NS / NS_PER_S)
            self.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self.flush()
            os.close(self._file)
            self._file = None

    def _rotate(self) -> None:
        if self._path is None:
            return
        older = [self._path, *(self._path.with_name(f"{self._path.name}.{number + 1}") for number in range(self._kept))]
        try:
            # From the oldest on, so that no file replaces one that has not been moved yet.
            for before, after in reversed(list(pairwise(older))):
                if before.exists():
                    before.replace(after)
            self.reopen()
        except (OSError, ApiError) as error:
            LOGGER.warning("audit log %s: cannot start a new file: %s", self._path, error)

    def _fail(self, problem: str) -> None:
        self.failed += 1
        LOGGER.warning("audit log %s: %s: record lost", self._path, problem)


def _lines_of(record: AuditRecord) -> int:
    """Return how many refusals of this kind get lines of their own in a window: more if the caller is known."""
    return _LINES_OF_KNOWN if record.role else 1
