"""Disk performance: many small files, and one large one; written to the disk itself, and read from there.

Files stand in a folder of their own below the current one, the task's. Written data is flushed (fsync), and then
dropped from the kernel's page cache (posix_fadvise), so that it is read from the disk; `figures` report, page by page
(preadv2 with RWF_NOWAIT), whether it really has left the cache. The large file bypasses the cache (O_DIRECT) if its
file system allows that.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels.base import Array, Maker, Sizes, Value, fold

_BLOCK: Final = 1 << 20
_SECTOR: Final = 4096
"""Alignment that O_DIRECT requires of buffers, offsets and lengths."""
_MOST_FILES: Final = 100_000
_MOST_BYTES: Final = 64 << 30
_RESERVE: Final = 0.1
"""Part of the free space left to others."""


class _Disk:
    """A kernel with its own folder, which it removes at the end; its output are checksums of what was read."""

    def __init__(self, name: str, nbytes: int, seed: int) -> None:
        free = shutil.disk_usage(Path.cwd()).free
        if nbytes > min(_MOST_BYTES, int(free * (1 - _RESERVE))):
            raise ProbeKernelError(
                f"{name}: {nbytes} bytes are too many: {free} free in {Path.cwd()}, at most {_MOST_BYTES} allowed"
            )
        self.generator = np.random.default_rng(seed)
        self.folder = Path(tempfile.mkdtemp(prefix="millrace-probe-", dir="."))
        self.written = 0
        self._figures: dict[str, float] = {}
        self._inputs: tuple[Value, ...] = ()
        self.lift = 0

    def take(self, inputs: tuple[Value, ...]) -> None:
        """Have the inputs change the data to write."""
        if inputs is not self._inputs:
            self._inputs, self.lift = inputs, int((fold(inputs) - 1.0) * (1 << 30))

    def figures(self) -> dict[str, float]:
        """Return the seconds of writing and of reading in the last run, and the part read from the cache."""
        return self._figures

    def note(self, write_s: float, read_s: float, cached: float) -> None:
        """Record the figures of the last run."""
        self._figures = {"write_s": write_s, "read_s": read_s, "read_from_cache": cached}

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class SmallFiles(_Disk):
    """Many small files: each created, written, flushed, closed; then all of them opened and read; then removed."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        files, self._size = sizes["files"], sizes["file_bytes"]
        if files > _MOST_FILES:
            raise ProbeKernelError(f"small-files: {files} files are too many, at most {_MOST_FILES} allowed")
        super().__init__("small-files", files * self._size, seed)
        self._content = self.generator.bytes(max(self._size, 8))
        self._names = [self.folder / f"{number:06d}" for number in range(files)]

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Write all, read all, remove all."""
        self.take(inputs)
        try:
            begun_s = time.perf_counter()
            for number, name in enumerate(self._names):
                _write_small(name, self._of(number))
            _flush_folder(self.folder)
            written_s = time.perf_counter()
            cached = np.mean([_put_out(name) for name in self._names])
            read_from_s = time.perf_counter()
            checksums = [zlib.crc32(name.read_bytes()) for name in self._names]
            read_s = time.perf_counter() - read_from_s
        finally:
            for name in self._names:
                name.unlink(missing_ok=True)
        self.note(written_s - begun_s, read_s, float(cached))
        return np.array(checksums, dtype=np.float64)

    def accuracy(self, output: Array) -> float:
        """Return the fraction of files whose content is not what was written."""
        if output.shape != (len(self._names),):
            return math.inf
        true = [zlib.crc32(self._of(number)) for number in range(len(self._names))]
        return float(np.mean(output != np.array(true, dtype=np.float64)))

    def _of(self, number: int) -> bytes:
        """Return a file's content: its number, the inputs' value, then the common bytes."""
        return ((number << 32 | self.lift).to_bytes(8, "big") + self._content[8:])[: self._size]


class BulkIo(_Disk):
    """Bytes written sequentially and read back; the file is unlinked once open, so that none is left."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        self._nbytes = sizes["nbytes"]
        super().__init__("bulk-io", self._nbytes, seed)
        # A buffer of mapped memory begins at a page boundary, as O_DIRECT requires.
        self._buffer = mmap.mmap(-1, _BLOCK)
        self._content = self.generator.bytes(_BLOCK)

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Write, flush, drop from the cache, read."""
        self.take(inputs)
        self._buffer[:] = self._content
        with self._opened() as (number, is_direct):
            begun_s = time.perf_counter()
            for block, size in self._blocks():
                self._buffer[:8] = self._stamp(block)
                _write_all(number, memoryview(self._buffer)[: _padded(size) if is_direct else size])
            os.fsync(number)
            written_s = time.perf_counter()
            cached = 0.0 if is_direct else _put_out_open(number, self._nbytes)
            os.lseek(number, 0, os.SEEK_SET)
            read_from_s = time.perf_counter()
            checksums = [self._read(number, size, is_direct=is_direct) for _, size in self._blocks()]
            read_s = time.perf_counter() - read_from_s
        self.note(written_s - begun_s, read_s, cached)
        self._figures["direct"] = float(is_direct)
        return np.array(checksums, dtype=np.float64)

    def accuracy(self, output: Array) -> float:
        """Return the fraction of blocks whose content is not what was written."""
        true = [_ends(memoryview(self._stamp(block) + self._content[8:]), size) for block, size in self._blocks()]
        if output.shape != (len(true),):
            return math.inf
        return float(np.mean(output != np.array(true, dtype=np.float64)))

    def close(self) -> None:
        """Remove the folder, free the buffer."""
        super().close()
        self._buffer.close()

    @contextmanager
    def _opened(self) -> Iterator[tuple[int, bool]]:
        """Yield a new unnamed file, and whether it bypasses the cache."""
        path, is_direct = self.folder / "bulk", True
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            number = os.open(path, flags | os.O_DIRECT, 0o600)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            path.unlink(missing_ok=True)
            number, is_direct = os.open(path, flags, 0o600), False
        try:
            path.unlink()
            yield number, is_direct
        finally:
            os.close(number)

    def _blocks(self) -> Iterator[tuple[int, int]]:
        """Yield the blocks' numbers and sizes."""
        for start in range(0, self._nbytes, _BLOCK):
            yield start // _BLOCK, min(_BLOCK, self._nbytes - start)

    def _stamp(self, block: int) -> bytes:
        """Return the beginning of a block: its number, and the inputs' value."""
        return (block << 32 | self.lift).to_bytes(8, "big")

    def _read(self, number: int, size: int, *, is_direct: bool) -> int:
        """Read a block, and return the checksum of its ends."""
        wanted = _padded(size) if is_direct else size
        view = memoryview(self._buffer)
        done = 0
        while done < wanted:
            got = os.readv(number, [view[done:wanted]])
            if got == 0:
                raise ProbeKernelError(f"bulk-io: the file ended {wanted - done} bytes early")
            done += got
        return _ends(view, size)


def _ends(block: memoryview, size: int) -> int:
    """Return a checksum of a block's first and last page: one of the whole would take as long as a fast disk does."""
    return zlib.crc32(block[max(0, size - _SECTOR) : size], zlib.crc32(block[: min(size, _SECTOR)]))


def _write_small(name: Path, content: bytes) -> None:
    number = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write_all(number, memoryview(content))
        os.fsync(number)
    finally:
        os.close(number)


def _write_all(number: int, content: memoryview) -> None:
    while content:
        content = content[os.write(number, content) :]


def _flush_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _put_out(name: Path) -> float:
    """Drop a file from the page cache; return 1 if it is still there, 0 if not."""
    number = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _put_out_open(number, os.fstat(number).st_size)
    finally:
        os.close(number)


def _put_out_open(number: int, nbytes: int) -> float:
    """Drop a file from the page cache; return the part of sampled pages that are still there."""
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
    places = range(0, max(nbytes, 1), max(_SECTOR, nbytes // 64 // _SECTOR * _SECTOR))
    return sum(_is_cached(number, page) for page in places) / len(places)


def _is_cached(number: int, page: int) -> bool:
    """Return whether a page would be read without the disk; also true if the kernel cannot tell."""
    try:
        os.preadv(number, [bytearray(1)], page, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL}:
            raise
    return True


def _padded(size: int) -> int:
    return -(-size // _SECTOR) * _SECTOR


small_files: Final = Maker(SmallFiles, lambda s: s["file_bytes"] * 2 + 200 * s["files"], may_be_zero=("file_bytes",))
bulk_io: Final = Maker(BulkIo, lambda _: 2 * _BLOCK)
