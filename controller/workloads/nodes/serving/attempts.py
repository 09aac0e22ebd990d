"""Starts in progress when a manager died, by pod: a pod whose starts keep killing managers is held back.

A file per pod counts the starts that no manager has survived. A pod with such a file is a suspect: suspects are started
one at a time, so that the next death counts against only one of them, and successful ones are cleared.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Final
from urllib.parse import quote

LOGGER: Final = logging.getLogger("millrace.node")
MOST_DEATHS: Final = 3


class Attempts:
    """The counts in one folder, by the uids of pods; confined to one event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._suspects = folder, asyncio.Lock()
        self._counted: set[str] = set()

    def deaths(self, uid: str) -> int:
        """Return how many managers have died while starting a pod."""
        try:
            # A file of this manager's own start is not a death; it is empty or half written if the disk is full.
            return 0 if uid in self._counted else int(self._file(uid).read_text(encoding="ascii") or 1)
        except FileNotFoundError:
            return 0
        except (OSError, ValueError):
            return 1

    @asynccontextmanager
    async def counted(self, uid: str) -> AsyncIterator[None]:
        """Count the block as a death until it ends, however it ends; wait for other suspects first."""
        deaths = self.deaths(uid)
        async with self._suspects if deaths else nullcontext():
            self._write(uid, deaths + 1)
            self._counted.add(uid)
            try:
                yield
            finally:
                self._file(uid).unlink(missing_ok=True)
                self._counted.discard(uid)

    def keep(self, uids: Collection[str]) -> None:
        """Forget all other pods."""
        kept = {self._file(uid).name for uid in uids}
        try:
            for file in self._folder.iterdir():
                if file.name not in kept:
                    file.unlink(missing_ok=True)
        except FileNotFoundError:
            pass  # nothing was ever started

    def _write(self, uid: str, deaths: int) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._file(uid).write_text(str(deaths), encoding="ascii")
        except OSError as error:
            LOGGER.warning("%s: %s", self._file(uid), error.strerror or error)

    def _file(self, uid: str) -> Path:
        return self._folder / quote(uid, safe="")
