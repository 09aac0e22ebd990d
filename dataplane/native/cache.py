"""Object code on disk, found by a digest of all that determines it; a file that is wrong in any way is not there."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import json
import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

MAGIC = b"millrace object 2\n"
DIGEST_BYTES = 32
KEPT_FILES = 64
"""The oldest files go when there are more."""


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """The bytes of object files, which refer to each other, and the functions that they offer."""

    exports: tuple[str, ...]
    images: tuple[bytes, ...]


def default_dir() -> Path:
    """Return $MILLRACE_CACHE_DIR, or ~/.cache/millrace."""
    chosen = os.environ.get("MILLRACE_CACHE_DIR")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace"


def digest(parts: Iterable[str | bytes], packages: Iterable[str]) -> str:
    """Return a key for these parts and the Python source of these packages; the order of parts counts."""
    whole = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        whole.update(len(data).to_bytes(8, "big") + data)
    for package in sorted(set(packages)):
        whole.update(source_digest(package))
    return whole.hexdigest()


@functools.cache
def source_digest(package: str) -> bytes:
    """Return a digest of a package's Python files, taken once a process."""
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
    """Return what is stored under a key, or None; only files of this user are trusted, for the code will run."""
    path = directory / f"{key}.o"
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                return None
            data = file.read()
        os.utime(path)
    except OSError:
        return None
    return _decode(data)


def write(directory: Path, key: str, code: ObjectCode) -> bool:
    """Store code under a key, whole or not at all, and return whether that could be done."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=directory, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_encode(code))
            Path(name).replace(directory / f"{key}.o")
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise
        _forget_oldest(directory)
    except OSError:
        return False
    return True


def _forget_oldest(directory: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in directory.glob("*.o")}
    for path in sorted(files, key=files.__getitem__)[:-KEPT_FILES]:
        with contextlib.suppress(OSError):
            path.unlink()


def _encode(code: ObjectCode) -> bytes:
    head = json.dumps([code.exports, [len(image) for image in code.images]])
    body = head.encode() + b"\n" + b"".join(code.images)
    return MAGIC + hashlib.sha256(body).digest() + body


def _decode(data: bytes) -> ObjectCode | None:
    checksum = data[len(MAGIC) : len(MAGIC) + DIGEST_BYTES]
    body = data[len(MAGIC) + DIGEST_BYTES :]
    if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != checksum:
        return None
    head, _, images = body.partition(b"\n")
    exports, lengths = json.loads(head)
    ends = list(itertools.accumulate(lengths))
    return ObjectCode(
        tuple(exports), tuple(images[end - length : end] for end, length in zip(ends, lengths, strict=True))
    )
