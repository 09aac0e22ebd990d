"""An API server and a scheduler as processes, as an operator starts them, and their CPU time."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from controller.apiserver.client import ApiClient, Place
from tests.waiting import until

READY_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """A daemon that is ready."""

    pid: int

    @property
    def cpu_s(self) -> float:
        """Seconds of user and system time that it has used, all threads together."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@asynccontextmanager
async def running(folder: Path, *words: str, settings: str) -> AsyncIterator[Daemon]:
    """Run `millrace WORDS` with a settings file, from its ready line on, for as long as the block lasts."""
    file, log = folder / f"{words[0]}.yaml", folder / f"{words[0]}.log"
    file.write_text(settings)
    command = [sys.executable, "-m", "controller.apps.cli", *words, "--settings", str(file)]
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stderr=out)
    try:
        await until(
            lambda: b": ready: " in log.read_bytes() or process.returncode is not None,
            log.read_text,
            limit_s=READY_S,
            poll_s=0.01,
        )
        if process.returncode is not None:
            raise SystemExit(f"millrace {' '.join(words)} ended: {log.read_text()}")
        yield Daemon(process.pid)
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


@asynccontextmanager
async def api(folder: Path) -> AsyncIterator[tuple[Daemon, ApiClient]]:
    """Run an API server with default limits over a new SQLite file, and a client of its socket."""
    socket = f"unix:{folder}/api.sock"
    settings = f"storage: {{sqlite: {folder}/api.sqlite}}\nlisten: ['{socket}']\n"
    async with running(folder, "api", "serve", settings=settings) as daemon, ApiClient(Place(socket)) as client:
        yield daemon, client


@asynccontextmanager
async def scheduler(folder: Path, more: str = "") -> AsyncIterator[Daemon]:
    """Run a scheduler at that server with default settings plus `more` lines of YAML."""
    settings = f"api: 'unix:{folder}/api.sock'\n{more}"
    async with running(folder, "scheduler", "serve", settings=settings) as daemon:
        yield daemon
