"""A manager's socket for polled queues in the test's own loop, and processes of the test at its other end."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from controller.apiserver.resources.nic import PolledQueue
from controller.workloads.nodes.nic.server import NicServer
from controller.workloads.nodes.settings import NicSection
from dataplane.fabric.kernel import namespaces
from dataplane.nic.managed.link import SOCKET_VARIABLE
from dataplane.nic.managed.messages import FromManager, FromProcess, decode_from_manager, encode
from tests.waiting import until

ROOT = Path(__file__).parents[5]


def section(folder: Path, **more: object) -> NicSection:
    """Return settings with a socket of the test's own and short periods."""
    (folder / "nic").mkdir(exist_ok=True)
    return NicSection(socket=str(folder / "nic" / "s.sock"), period_s=0.05, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def serving(
    settings: NicSection, namespace: str | None = None, *, now_ns: Callable[[], int] | None = None
) -> AsyncIterator[NicServer]:
    """Serve until the block ends; grants are made at once."""
    path = None if namespace is None else Path("/run/netns") / namespace
    server = NicServer("h1", settings, path, settle_s=0, now_ns=now_ns or time.monotonic_ns)
    task = asyncio.create_task(server.run())
    try:
        await until(lambda: server.path.exists() or bool(server.problem) or task.done())
        assert not server.problem, server.problem
        yield server
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def queues_when(server: NicServer, holds: Callable[[tuple[PolledQueue, ...]], bool]) -> tuple[PolledQueue, ...]:
    """Return the reported queues once they fulfil a condition."""
    queues: tuple[PolledQueue, ...] = ()

    def look() -> bool:
        nonlocal queues
        queues = server.queues()
        return holds(queues)

    await until(look, lambda: (queues, server.notes))
    return queues


@contextmanager
def started(namespace: str, manager: str, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a Python module in a namespace until the block ends; `manager` is the socket that it reports to."""
    environment = dict(os.environ) | {"PYTHONPATH": str(ROOT), SOCKET_VARIABLE: manager}
    command = [sys.executable, "-m", *argv]
    with namespaces.start(
        namespace, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@asynccontextmanager
async def polling(namespace: str, manager: str, *arguments: str) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run a poller in a namespace until the block ends; the event loop runs on while it starts."""
    with started(namespace, manager, "tests.controller.workloads.nodes.nic.poller", *arguments) as process:
        assert process.stdout is not None
        assert await asyncio.to_thread(process.stdout.readline) == b"polling\n"
        yield process


class Client:
    """A process's end of the socket, spoken by the test; `send` and `receive` do not block the loop."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        self._socket.connect(str(path))

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    async def send(self, message: FromProcess | bytes) -> None:
        """Send a message, or bytes."""
        packet = message if isinstance(message, bytes) else encode(message)
        await asyncio.get_running_loop().sock_sendall(self._socket, packet)

    async def receive(self) -> FromManager | None:
        """Return the next message, None at the end."""
        try:
            packet = await asyncio.get_running_loop().sock_recv(self._socket, 1 << 20)
        except ConnectionResetError:
            return None
        return decode_from_manager(packet) if packet else None
