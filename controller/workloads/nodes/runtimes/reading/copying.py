"""Copies of users' files, in a folder that only the node's user may enter: nobody changes them there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

if __package__:
    from controller.workloads.nodes.runtimes.reading.beneath import FOLDER, RefusedError, open_at, open_below, reopen
else:  # in the child process, which can import only from this folder
    from beneath import FOLDER, RefusedError, open_at, open_below, reopen  # type: ignore[import-not-found, no-redef]

MOST_BYTES = 4 << 20
"""Largest size of an index, a manifest or a configuration; one more byte is copied to show the reader the excess."""
_MOST_MANIFESTS = 256
_PIECE = 8 << 20
_SETTING = "image_folders"


class Copier:
    """Copies into `target` from a path in one of `folders`; raises RefusedError or OSError."""

    def __init__(self, folders: Sequence[str], target: str, most_bytes: int) -> None:
        self._folders, self._target, self._left, self._most = folders, target, most_bytes, most_bytes

    def archive(self, path: str) -> None:
        """Copy a file, as `archive`."""
        descriptor = open_below(self._folders, path, _SETTING)
        self._copy(descriptor, "archive", self._left, is_cut=False)

    def indices(self, path: str) -> None:
        """Copy the list of a layout's images: its index, and the indices and manifests in it."""
        names = ["index.json"]
        seen = set(names)
        with _folder(self._folders, path) as layout:
            while names and len(seen) <= _MOST_MANIFESTS:
                name = names.pop()
                for digest in self._index(layout, name):
                    blob = _blob(digest)
                    if blob is not None and blob not in seen:
                        seen.add(blob)
                        names.append(blob)

    def blobs(self, path: str, digests: Sequence[str]) -> None:
        """Copy blobs of a layout."""
        with _folder(self._folders, path) as layout:
            for digest in digests:
                name = _blob(digest)
                if name is None:
                    raise RefusedError(f"has no blob {digest[:80]}")
                try:
                    descriptor = open_at(layout, name)
                except RefusedError as error:
                    raise RefusedError(f"blob {digest} cannot be read: it {error}") from None
                self._copy(descriptor, name, self._left, is_cut=False)

    def _index(self, layout: int, name: str) -> Iterator[str]:
        """Copy an index or a manifest if it exists, and yield the digests of the manifests in it."""
        try:
            descriptor = open_at(layout, name)
        except RefusedError as error:
            if str(error) == "does not exist":
                return
            raise RefusedError(f"{name} cannot be read: it {error}") from None
        path = self._copy(descriptor, name, MOST_BYTES + 1, is_cut=True)
        try:
            with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes long to load
                content: Any = json.load(file)
            for each in content["manifests"]:
                yield str(each["digest"])
        except (ValueError, RecursionError, KeyError, TypeError):
            return  # its later reader reports the problem

    def _copy(self, source: int, name: str, most_bytes: int, *, is_cut: bool) -> str:
        """Copy a file and close its descriptor; one above the limit is refused, or cut."""
        path = os.path.join(self._target, name)  # noqa: PTH118 - pathlib takes long to load
        try:
            nbytes = os.fstat(source).st_size
            if is_cut and self._left <= 0:
                raise RefusedError(f"has more than {self._most} bytes of manifests")
            if nbytes > most_bytes and not is_cut:
                raise RefusedError(f"has {nbytes} bytes, this node allows at most {self._most}")
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
            reading = reopen(source)
        finally:
            os.close(source)
        try:
            writing = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                left = min(nbytes, most_bytes)
                while left and (sent := os.sendfile(writing, reading, None, min(left, _PIECE))):
                    left -= sent
                    self._left -= sent
            finally:
                os.close(writing)
        finally:
            os.close(reading)
        return path


@contextmanager
def _folder(folders: Sequence[str], path: str) -> Iterator[int]:
    descriptor = open_below(folders, path, _SETTING, kind=FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _blob(digest: str) -> str | None:
    """Return a blob's path in a layout."""
    algorithm, _, number = digest.partition(":")
    return f"blobs/sha256/{number}" if algorithm == "sha256" and number.isalnum() and len(number) < 200 else None
