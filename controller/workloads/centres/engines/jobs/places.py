"""Folders that jobs write into: created and read through descriptors, so that no link of a job's leads elsewhere.

A job's folder is created exclusively for one attempt, filled while nobody else may enter it, and given to the job's
user last. Jobs' results are read as if an attacker had written them: regular files, no links, nothing that blocks,
bounded.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from controller.workloads.centres.errors import CentreError

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
OMISSION_BYTES: Final = 64
"""Room for the line that takes the place of an output's middle."""
_OMITTED: Final = re.compile(rb"\n\.\.\. (\d{1,18}) bytes omitted \.\.\.\n")
_OTHERS_WRITE: Final = 0o022
_REMOVING_S: Final = 600


@contextmanager
def opened(path: Path, parent: int | None = None) -> Iterator[int]:
    """Open a folder that is not a link; raise OSError."""
    descriptor = os.open(path, _FOLDER, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_root(path: Path) -> Iterator[int]:
    """Open the parent of jobs' folders, created if missing; raise OSError.

    Raises PermissionError if somebody else could replace a folder in it with a link.
    """
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    with opened(path) as descriptor:
        status = os.fstat(descriptor)
        if status.st_uid not in (os.geteuid(), 0) or status.st_mode & _OTHERS_WRITE:
            raise PermissionError(0, f"other users may write into it: chmod go-w {path}", str(path))
        yield descriptor


def make_folder(path: Path, files: Mapping[str, bytes], owner: tuple[int, int] | None) -> None:
    """Create a job's folder with its files, which `owner` (user, group) gets last; raise OSError.

    Remains of an earlier attempt are removed. Names may have folders in them, but no dots.
    """
    with opened_root(path.parent) as root:
        remove(path)
        os.mkdir(path.name, 0o700, dir_fd=root)
        with opened(Path(path.name), root) as folder:
            for name, content in files.items():
                _write_below(folder, name.split("/"), content, owner)
            os.fchmod(folder, 0o700)
            if owner is not None:
                os.fchown(folder, *owner)


def replace_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file into a job's folder atomically, creating the folders that lead to it; raise OSError.

    Replaces anything that the job has put in its place, and follows none of its links. The file gets its folder's
    owner.
    """
    *parts, last = name.split("/")
    with _opened_below(folder, parts, makes=True) as directory:
        new, status = f".{secrets.token_hex(8)}.new", os.fstat(directory)
        write_file(directory, new, content, (status.st_uid, status.st_gid) if os.geteuid() == 0 else None)
        try:
            os.rename(new, last, src_dir_fd=directory, dst_dir_fd=directory)
        except OSError:  # a folder is there
            os.unlink(new, dir_fd=directory)
            raise


def write_file(folder: int, name: str, content: bytes, owner: tuple[int, int] | None = None) -> None:
    """Write a new file, executable if it names its interpreter; raise OSError."""
    descriptor = os.open(name, _NEW, 0o600, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(descriptor, 0o700 if content.startswith(b"#!") else 0o600)
        if owner is not None:
            os.fchown(descriptor, *owner)


def read_file(folder: Path, name: str, most: int) -> bytes:
    """Return a regular file's content; raise CentreError for a link, a pipe, a device, or a file above the limit."""
    with _opened_file(folder, name) as (descriptor, size):
        if size > most:
            raise CentreError(f"{name}: has more than {most} bytes")
        return _read(descriptor, most)


def read_ends(folder: Path, name: str, most: int) -> bytes:
    """Return a regular file's content, of one above the limit its beginning and its end, half of the limit each.

    If the keeper has already omitted its middle, that counts, too. Raise CentreError for anything but a file.
    """
    with _opened_file(folder, name) as (descriptor, size):
        if size <= most:
            return _read(descriptor, most)
        begin = _read(descriptor, most - most // 2)
        # The keeper's halves are equal, so its line is in the middle.
        earlier = _OMITTED.search(os.pread(descriptor, 2 * OMISSION_BYTES, max(0, size // 2 - OMISSION_BYTES)))
        more = 0 if earlier is None else int(earlier[1]) - len(earlier[0])
        os.lseek(descriptor, size - most // 2, os.SEEK_SET)
        return begin + omission(size - most + more) + _read(descriptor, most // 2)


def omission(nbytes: int) -> bytes:
    """Return the line that takes the place of an output's middle, as the keeper writes it."""
    return f"\n... {nbytes} bytes omitted ...\n".encode()


def open_file(folder: Path, name: str) -> int:
    """Return a descriptor of a regular file; raise CentreError for anything else."""
    *parts, last = name.split("/")
    try:
        with _opened_below(folder, parts) as directory:
            descriptor = os.open(last, _READ, dir_fd=directory)
    except OSError as error:
        raise CentreError(f"{name}: {error.strerror or error}") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise CentreError(f"{name}: is not a regular file")
    return descriptor


def append_file(folder: Path, name: str, content: bytes) -> None:
    """Append to a file that `replace_file` has written; raise OSError."""
    with opened(folder) as directory:
        descriptor = os.open(name, _APPEND, dir_fd=directory)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)


def read_end(folder: Path, name: str, most: int) -> bytes:
    """Return the last bytes of a regular file; raise CentreError for anything else."""
    with _opened_file(folder, name) as (descriptor, size):
        os.lseek(descriptor, max(0, size - most), os.SEEK_SET)
        return _read(descriptor, most)


def remove(path: Path) -> None:
    """Remove a job's folder as far as possible, however deep it is; links in it are not followed."""
    if os.path.lexists(path):  # true for links, too: they are removed as well
        # Not shutil.rmtree: its recursion ends at a thousand nested folders.
        command = ["rm", "-rf", "--one-file-system", "--", str(path)]
        subprocess.run(  # noqa: S603 - the path is the agent's own
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=_REMOVING_S
        )


@contextmanager
def _opened_below(folder: Path, parts: Sequence[str], *, makes: bool = False) -> Iterator[int]:
    """Open a folder that is reached only over folders, not links; raise OSError."""
    with ExitStack() as stack:
        directory = stack.enter_context(opened(folder))
        for part in parts:
            if makes:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=directory)
            directory = stack.enter_context(opened(Path(part), directory))
        yield directory


@contextmanager
def _opened_file(folder: Path, name: str) -> Iterator[tuple[int, int]]:
    descriptor = open_file(folder, name)
    try:
        yield descriptor, os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _read(descriptor: int, most: int) -> bytes:
    with os.fdopen(os.dup(descriptor), "rb") as file:
        return file.read(most)


def _write_below(folder: int, parts: Sequence[str], content: bytes, owner: tuple[int, int] | None) -> None:
    """Write a file, creating the folders that lead to it."""
    first, *rest = parts
    if not rest:
        write_file(folder, first, content, owner)
        return
    with suppress(FileExistsError):  # an earlier file created it
        os.mkdir(first, 0o700, dir_fd=folder)
    with opened(Path(first), folder) as below:
        if owner is not None:
            os.fchown(below, *owner)
        _write_below(below, rest, content, owner)
