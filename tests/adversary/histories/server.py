"""An API server over SQLite, or another storage, as a process that is killed, stopped and set to other times."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.waiting import until

READY_S: Final = 60.0
_PROGRAM: Final = Path(__file__).with_name("stepped_server.py")
_OFFSET_BYTES: Final = 8


class Server:
    """The process; its files are in a folder."""

    def __init__(self, folder: Path, storage: str | None = None) -> None:
        """`storage` is that of the settings."""
        self.folder, self.socket = folder, f"unix:{folder}/api.sock"
        self._settings, self._offset, self._log = folder / "api.yaml", folder / "offset", folder / "api.log"
        self._settings.write_text(
            f"storage: {storage or f'{{sqlite: {folder}/api.db}}'}\n"
            f"listen: ['{self.socket}']\n"
            "limits: {heartbeat: 500ms}\n"
        )
        self.step(0)
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it, and return once it serves."""
        command = (sys.executable, str(_PROGRAM), str(self._offset), "api", "serve", "-s", str(self._settings))
        with self._log.open("wb") as log:
            process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.DEVNULL, stderr=log)
        self._process = process
        await until(
            lambda: ": ready: " in self._log.read_text() or process.returncode is not None,
            self._log.read_text,
            limit_s=READY_S,
        )
        assert process.returncode is None, self._log.read_text()

    def pause(self) -> None:
        """Stop it where it is, without its knowing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    async def kill(self) -> None:
        """End it without a warning."""
        self._signal(signal.SIGKILL)
        await self.wait()

    async def stop(self) -> None:
        """Have it end."""
        self.go_on()
        self._signal(signal.SIGTERM)
        await self.wait()

    async def wait(self) -> None:
        """Wait until it has ended."""
        if self._process is not None:
            await self._process.wait()

    def step(self, offset_ns: int) -> None:
        """Set its wall clock to the machine's plus this offset; the file stays the one that it has mapped."""
        data = offset_ns.to_bytes(_OFFSET_BYTES, "little", signed=True)
        if not self._offset.exists():
            self._offset.write_bytes(data)
        with self._offset.open("r+b", buffering=0) as file:
            file.write(data)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)


@asynccontextmanager
async def running(folder: Path, storage: str | None = None) -> AsyncIterator[Server]:
    """Have a server for as long as the block lasts."""
    server = Server(folder, storage)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
