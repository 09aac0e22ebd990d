"""Rows that are not in a Parquet file yet: batches appended to one file, each complete or absent.

A frame is length32, CRC32, then that many bytes of an Arrow IPC message: the schema first, then record batches. A
frame cut by a kill fails its length or sum, and the journal ends there; so do the zeros that a power failure may
leave.
"""

from __future__ import annotations

import errno
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyarrow as pa

from collectors.errors import BrokenJournalError, HistoryError

_FRAME: Final = struct.Struct("<II")
_MOST_SCHEMA_BYTES: Final = 1 << 20
SUFFIX: Final = ".journal"


class JournalWriter:
    """Appends batches to a new file; on HistoryError the file is as before."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.rows = path, 0
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except OSError as error:
            raise HistoryError(f"{path}: cannot be created: {error.strerror}") from error
        self._bytes, self._is_torn, self._is_synced = 0, False, False
        try:
            self._append(schema.serialize())
        except HistoryError:
            # Retried at every interval while the disk is full: nothing may pile up.
            os.close(self._file)
            path.unlink(missing_ok=True)
            raise

    def append(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        self._append(batch.serialize())
        self.rows += batch.num_rows

    def sync(self) -> None:
        """Return once all appended batches survive a power cut."""
        try:
            os.fdatasync(self._file)
            if not self._is_synced:
                synchronise(self.path.parent)
                self._is_synced = True
        except OSError as error:
            raise HistoryError(f"{self.path}: cannot be written: {error.strerror}") from error

    def _append(self, message: pa.Buffer) -> None:
        body = message.to_pybytes()
        frame = _FRAME.pack(len(body), zlib.crc32(body)) + body
        try:
            self._mend()
            self._is_torn = True
            written = os.write(self._file, frame)
            if written < len(frame):
                raise OSError(errno.ENOSPC, "the disk is full")
            self._is_torn = False
        except OSError as error:
            with suppress(OSError):
                self._mend()  # else before the next batch: nothing after a cut frame is ever read
            raise HistoryError(f"{self.path}: cannot be written: {error.strerror}") from error
        self._bytes += len(frame)

    def _mend(self) -> None:
        """Cut off half a frame."""
        if self._is_torn:
            os.ftruncate(self._file, self._bytes)
            os.lseek(self._file, self._bytes, os.SEEK_SET)
            self._is_torn = False

    def close(self) -> None:
        """Close the file, which stays."""
        os.close(self._file)


def synchronise(path: Path) -> None:
    """Return once a file's content, or a folder's list of files, survives a power cut; raise OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_journal(path: Path, wanted: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a journal's batches, up to where it was cut, with the columns of this version; raise FileNotFoundError.

    Columns that an older version did not have are null. Raises BrokenJournalError for a journal that can never be read,
    HistoryError if reading fails.
    """
    try:
        frames = _frames(path)
        first = next(frames, None)
        if first is None and not _is_cut_short(path):
            raise BrokenJournalError(f"{path}: is not a journal")
        schema = None if first is None else pa.ipc.read_schema(pa.py_buffer(first))
        for body in frames:
            yield _in_schema(pa.ipc.read_record_batch(pa.py_buffer(body), schema), wanted)
    except FileNotFoundError:
        raise
    except pa.ArrowException as error:
        raise BrokenJournalError(f"{path}: is not a journal of this version") from error
    except OSError as error:
        raise HistoryError(f"{path}: cannot be read: {error.strerror}") from error


def _in_schema(batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
    missing = pa.nulls(batch.num_rows)
    columns = [batch.column(name) if name in batch.schema.names else missing for name in wanted.names]
    cast = [column.cast(kind) for column, kind in zip(columns, wanted.types, strict=True)]
    return pa.RecordBatch.from_arrays(cast, schema=wanted)


def _frames(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while len(head := file.read(_FRAME.size)) == _FRAME.size:
            length, checksum = _FRAME.unpack(head)
            body = file.read(length)
            if not length or len(body) < length or zlib.crc32(body) != checksum:
                return
            yield body


def _is_cut_short(path: Path) -> bool:
    """Return whether a file without a whole frame ends before its first would, or in zeros: it never had a row."""
    with path.open("rb") as file:
        head = file.read(_FRAME.size)
        length = _FRAME.unpack(head)[0] if len(head) == _FRAME.size else 0
        return length < _MOST_SCHEMA_BYTES and (not length or len(file.read(length)) < length)
