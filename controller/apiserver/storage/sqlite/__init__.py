"""The storage in one SQLite file: one process owns it, one thread writes, many writes per commit."""

from __future__ import annotations

from controller.apiserver.storage.sqlite.storage import SqliteStorage

__all__ = ["SqliteStorage"]
