"""Object code on disk, keyed by a digest of everything that determines it; an invalid file counts as missing."""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import json
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

MAGIC = b"millrace object 3\n"
DIGEST_BYTES = 32
KEPT_FILES = 512
"""Number of most recently used files to keep: programs and kernels of several versions, some ten kB each."""
_DRAFT: Final = ".new-"
_ABANDONED_NS: Final = 600_000_000_000
"""A file being written is younger than this, or its writer was killed."""


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """The bytes of object files, which refer to each other, and the functions that they export."""

    exports: tuple[str, ...]
    images: tuple[bytes, ...]


def default_dir() -> Path:
    """Return $MILLRACE_CACHE_DIR, or ~/.cache/millrace."""
    chosen = os.environ.get("MILLRACE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace"


def digest(parts: Iterable[str | bytes], packages: Iterable[str]) -> str:
    """Return a key for these parts and the Python source of these packages; the order of parts matters."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    for package in sorted(set(packages)):
        whole.update(source_digest(package))
    return whole.hexdigest()


@functools.cache
def source_digest(package: str) -> bytes:
    """Return a digest of a package's Python files, computed once per process."""
    whole = hashlib.sha256(package.encode())
    for path, data in _sources(resources.files(package), ""):
        whole.update(hashlib.sha256(path.encode()).digest() + hashlib.sha256(data).digest())
    return whole.digest()


def _sources(folder: Traversable, path: str) -> Iterable[tuple[str, bytes]]:
    for item in sorted(folder.iterdir(), key=lambda item: item.name):
        if item.is_dir():
            yield from _sources(item, f"{path}/{item.name}")
        elif item.name.endswith(".py"):
            yield f"{path}/{item.name}", item.read_bytes()


def read(directory: Path, key: str) -> ObjectCode | None:
    """Return the code stored under a key, or None; only this user's folder and files are trusted: the code will run."""
    try:
        with _opened(directory) as folder:
            file = os.open(f"{key}.o", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(file, "rb") as opened:
                if not _is_ours(os.fstat(file), stat.S_IFREG):
                    return None
                data = opened.read()
                os.utime(file)
    except OSError:
        return None
    return _decode(key, data)


def write(directory: Path, key: str, code: ObjectCode) -> bool:
    """Store code under a key atomically, and return whether that succeeded."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _opened(directory) as folder:
            draft = f"{_DRAFT}{secrets.token_hex(8)}"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            try:
                with os.fdopen(os.open(draft, flags, 0o600, dir_fd=folder), "wb") as file:
                    file.write(_encode(key, code))
                os.replace(draft, f"{key}.o", src_dir_fd=folder, dst_dir_fd=folder)
            except OSError:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(draft, dir_fd=folder)
                raise
            _forget_oldest(folder)
    except OSError:
        return False
    return True


@contextlib.contextmanager
def _opened(directory: Path) -> Iterator[int]:
    """Open a folder; raise OSError for a link, and for one that others own or can write to."""
    folder = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _is_ours(os.fstat(folder), stat.S_IFDIR):
            raise PermissionError(errno.EPERM, "others can write here", str(directory))
        yield folder
    finally:
        os.close(folder)


def _is_ours(status: os.stat_result, kind: int) -> bool:
    is_kind = stat.S_IFMT(status.st_mode) == kind
    return is_kind and status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _forget_oldest(folder: int) -> None:
    """Remove the oldest files beyond the limit, and leftovers of killed writers."""
    written_ns: dict[str, int] = {}
    abandoned: list[str] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                changed_ns = entry.stat(follow_symlinks=False).st_mtime_ns
                if entry.name.endswith(".o"):
                    written_ns[entry.name] = changed_ns
                elif entry.name.startswith(_DRAFT) and time.time_ns() - changed_ns > _ABANDONED_NS:
                    abandoned.append(entry.name)
    for name in [*sorted(written_ns, key=written_ns.__getitem__)[:-KEPT_FILES], *abandoned]:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)


def _encode(key: str, code: ObjectCode) -> bytes:
    head = json.dumps([key, code.exports, [len(image) for image in code.images]])
    body = head.encode() + b"\n" + b"".join(code.images)
    return MAGIC + hashlib.sha256(body).digest() + body


def _decode(key: str, data: bytes) -> ObjectCode | None:
    checksum = data[len(MAGIC) : len(MAGIC) + DIGEST_BYTES]
    body = data[len(MAGIC) + DIGEST_BYTES :]
    if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != checksum:
        return None
    head, _, images = body.partition(b"\n")
    written_for, exports, lengths = json.loads(head)
    if written_for != key:
        return None
    ends = list(itertools.accumulate(lengths))
    return ObjectCode(
        tuple(exports), tuple(images[end - length : end] for end, length in zip(ends, lengths, strict=True))
    )
