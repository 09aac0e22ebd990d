"""Closed files of a history on their way to the object store, in order, each until it is there.

A table's folder remembers the number of the newest file that is in the store (`uploaded`); files behind it are neither
merged nor counted as copies. What is repeated after a crash has the same key, and is not written twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from collectors.errors import HistoryError
from collectors.history import files
from collectors.history.files import HistoryFile
from collectors.history.objects.bucket import Bucket
from collectors.history.objects.keys import closed_key
from collectors.history.schema import TABLES


class Uploader:
    """Uploads a folder's closed files; one process does it. `step` may wait for the store."""

    def __init__(self, folder: Path, shard: str, bucket: Bucket) -> None:
        self._folder, self._shard, self._bucket = folder, shard, bucket
        self.uploaded_files = self.uploaded_bytes = 0

    def step(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Upload all files that are closed, table by table; raise HistoryError at the first that fails."""
        for table in TABLES:
            for file in self.waiting(table):
                if stopped():
                    return
                self._upload(table, file)

    def waiting(self, table: str) -> list[HistoryFile]:
        """Return a table's closed files that are not in the store, oldest first."""
        newest = files.uploaded(self._folder / table)
        return [file for file in files.listing(self._folder / table).files if file.last > newest]

    def _upload(self, table: str, file: HistoryFile) -> None:
        try:
            with file.path.open("rb") as content:
                digest = hashlib.file_digest(content, "sha256").hexdigest()
            key = closed_key(table, self._shard, file.end_s, file.first, digest)
            if self._bucket.put(key, file.path):
                self.uploaded_files += 1
                self.uploaded_bytes += file.size_bytes
        except FileNotFoundError:
            return  # deleted meanwhile, as the folder is full
        except OSError as error:
            raise HistoryError(f"{file.path}: cannot be read: {error.strerror}") from error
        files.note_uploaded(self._folder / table, file.last)
