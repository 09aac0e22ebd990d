"""Unpacked size of an image, measured without unpacking it: bytes and entries of its layers (tar).

Holes count with the bytes that they stand for, since unpacking writes zeros.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import tarfile
import zlib
from typing import IO, Any

_PIECE = 1 << 20
_HEAD = 512
_GZIP, _BZIP2, _XZ, _ZSTANDARD = b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"


class TooLargeError(Exception):
    """An image is too large, or its size cannot be determined: one phrase."""


class Meter:
    """Adds up the layers of one image, and raises TooLargeError as soon as they are too large."""

    def __init__(self, most_bytes: int, most_entries: int) -> None:
        self._most_bytes, self._most_entries = most_bytes, most_entries
        self.nbytes = self.entries = 0

    def add(self, file: IO[bytes], *, is_archive: bool = False) -> None:
        """Read a layer to its end; for an archive of images, the layers in it."""
        head = file.read(_HEAD)
        whole: Any = _Rest(head, file)
        is_packed = head.startswith((_GZIP, _BZIP2, _XZ, _ZSTANDARD))
        if is_packed:
            whole = _unpacked(head, whole)
        if not is_archive:
            whole = _Counted(whole, self)
        try:
            self._add_members(whole, is_archive=is_archive)
            # Unpacking reads anything after its end, too.
            while whole.read(_PIECE):
                pass
        except tarfile.TarError as error:
            if is_packed or is_archive:
                raise TooLargeError(f"has a layer that is not a tar: {error}") from None
            while whole.read(_PIECE):
                pass
        except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError) as error:
            raise TooLargeError(f"has a damaged layer: {error}") from None

    def note(self, nbytes: int, entries: int = 0) -> None:
        """Add to the sums."""
        self.nbytes += nbytes
        self.entries += entries
        if self.nbytes > self._most_bytes:
            raise TooLargeError(f"takes more than {self._most_bytes} bytes unpacked, this node's limit")
        if self.entries > self._most_entries:
            raise TooLargeError(f"has more than {self._most_entries} files, this node's limit")

    def _add_members(self, file: Any, *, is_archive: bool) -> None:  # noqa: ANN401 - anything with `read`
        with tarfile.open(fileobj=file, mode="r|") as tar:
            while (member := tar.next()) is not None:
                tar.members = []  # type: ignore[attr-defined]  # it would keep them all
                self.note(0, 1)
                # Its own bytes are counted as they are read; seeking over a size that is only claimed would take long.
                if member.issparse() or member.size > self._most_bytes:
                    self.note(member.size)
                if is_archive and member.isreg() and (inner := tar.extractfile(member)) is not None:
                    self.add(inner)


def _unpacked(head: bytes, file: Any) -> Any:  # noqa: ANN401 - anything with `read`
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=file, mode="rb")
    if head.startswith(_BZIP2):
        return bz2.BZ2File(file)
    if head.startswith(_XZ):
        return lzma.LZMAFile(file)
    raise TooLargeError("has a layer in Zstandard, whose size cannot be determined here: use gzip")


class _Rest:
    """A file whose head was read already."""

    def __init__(self, head: bytes, file: IO[bytes]) -> None:
        self._head, self._file = head, file

    def read(self, nbytes: int = -1) -> bytes:
        if self._head:
            given, self._head = (self._head, b"") if nbytes < 0 else (self._head[:nbytes], self._head[nbytes:])
            return given
        return self._file.read(nbytes)


class _Counted:
    """A file whose bytes are added up as they are read."""

    def __init__(self, file: Any, meter: Meter) -> None:  # noqa: ANN401 - anything with `read`
        self._file, self._meter = file, meter

    def read(self, nbytes: int) -> bytes:
        data: bytes = self._file.read(nbytes)
        self._meter.note(len(data))
        return data
