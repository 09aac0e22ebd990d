"""The storage in one SQLite file: one process has it, one thread writes, many writes a commit."""

from __future__ import annotations

from controller.apiserver.storage.sqlite.storage import SqliteStorage

__all__ = ["SqliteStorage"]
