"""Clients that ask and servers that echo, each in its host's namespace, all on one event loop.

Each side echoes its input, so that a payload crosses the fabric twice. TCP sends every
request in a segment of its own; one not answered in time is a stall, whatever the kernel would still try.
"""

from __future__ import annotations

import asyncio
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from tests.payloads import shapes
from tests.payloads.kernel import Bed
from tests.payloads.lines import CLIENT, FRAGMENTED_BYTES, Line
from tests.payloads.shapes import Header

Draw = Callable[[int], bytes]
"""Makes a payload of this many bytes."""
Opening = Callable[[], socket.socket]

STALL_S = 30.0
"""By then seven retransmissions have failed; a busy machine alone is not so late."""
LOST_S = 10.0
_PIECE_BYTES = 1480
_AT_ONCE = 1 << 16
_TCP_INFO_OPTIONS_BYTE = 5
TIMESTAMPS, SACK, WINDOW_SCALE, SYN_DATA = 1, 2, 4, 32
"""Bits of TCP_INFO's options."""


@dataclass(slots=True)
class KernelCounts:
    """Results at the sockets; `lost` are datagrams that did not come back, `changed` those that came back different.

    `by_line` are requests and datagrams; `options` the bits of TCP_INFO that connections of a line ended with.
    """

    tcp_requests: int = 0
    tcp_stalls: int = 0
    tcp_changed: int = 0
    datagrams: int = 0
    lost: int = 0
    changed: int = 0
    by_line: Counter[str] = field(default_factory=Counter)
    options: dict[str, int] = field(default_factory=dict)

    @property
    def faults(self) -> tuple[int, int, int, int]:
        """Stalls, changed answers, lost datagrams and changed ones."""
        return self.tcp_stalls, self.tcp_changed, self.lost, self.changed


class Talk:
    """Talks over lines for a while and counts; the servers listen from `open` to the end of its stack."""

    def __init__(self, bed: Bed, stack: ExitStack, lines: Sequence[Line]) -> None:
        self._bed, self._lines = bed, lines
        self._servers = {line: stack.enter_context(self._in(line.server, line.open_server)) for line in lines}
        self.counts = KernelCounts()

    def run(self, rng: random.Random, headers: Sequence[Header], seconds: float, rate: float, longest: int) -> None:
        """Send requests and datagrams at such a rate of each at most, over the lines with payloads not longer."""
        asyncio.run(self._run(rng, headers, seconds, rate, longest))

    async def _run(
        self, rng: random.Random, headers: Sequence[Header], seconds: float, rate: float, longest: int
    ) -> None:
        end = time.monotonic() + seconds
        lines = [line for line in self._lines if line.size <= longest]
        kinds = Counter(line.tcp for line in lines)
        servers = [asyncio.create_task(self._serve(line, self._servers[line])) for line in lines]
        async with asyncio.TaskGroup() as group:
            for line in lines:
                draw = partial(_payload, random.Random(rng.getrandbits(64)), headers)
                ask = self._request if line.tcp else self._send_datagrams
                group.create_task(ask(line, draw, rate / kinds[line.tcp], end))
        for server in servers:
            server.cancel()
        await asyncio.gather(*servers, return_exceptions=True)

    def _in(self, host: str, open_one: Opening) -> socket.socket:
        return self._bed.fabric.call_in(host, open_one)

    # servers

    async def _serve(self, line: Line, opened: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        if not line.tcp:
            while True:
                data, peer = await loop.sock_recvfrom(opened, _AT_ONCE)
                await loop.sock_sendto(opened, data, peer)
        async with asyncio.TaskGroup() as group:
            while True:
                connection, _ = await loop.sock_accept(opened)
                group.create_task(_echo(connection))

    # clients

    async def _request(self, line: Line, draw: Draw, rate: float, end: float) -> None:
        """Ask one request after the other; a connection that stalls is given up."""
        counts, connection, asked = self.counts, None, 0
        async for _ in _paced(rate, end):
            request = draw(line.size)
            counts.tcp_requests += 1
            counts.by_line[line.name] += 1
            try:
                async with asyncio.timeout(STALL_S):
                    if connection is None:
                        connection = await self._connect(line)
                    counts.tcp_changed += await _asked(connection, request) != request
            except (TimeoutError, OSError):
                counts.tcp_stalls += 1
                asked = -1
            asked += 1
            if connection is not None and (asked == 0 or asked == line.reconnect):
                self._close(line, connection)
                connection, asked = None, 0
        if connection is not None:
            self._close(line, connection)

    async def _connect(self, line: Line) -> socket.socket:
        opened = self._in(CLIENT, line.open_client)
        await asyncio.get_running_loop().sock_connect(opened, (line.server_address, line.port))
        return opened

    def _close(self, line: Line, connection: socket.socket) -> None:
        options = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 8)[_TCP_INFO_OPTIONS_BYTE]
        self.counts.options[line.name] = self.counts.options.get(line.name, 0) | options
        connection.close()

    async def _send_datagrams(self, line: Line, draw: Draw, rate: float, end: float) -> None:
        """Send datagrams and wait for each echo; late echoes reach a closed port."""
        counts, loop = self.counts, asyncio.get_running_loop()
        client = await self._connect(line)
        async for _ in _paced(rate, end):
            datagram = draw(line.size)
            counts.datagrams += 1
            counts.by_line[line.name] += 1
            try:
                async with asyncio.timeout(LOST_S):
                    await loop.sock_sendall(client, datagram)
                    counts.changed += await loop.sock_recv(client, _AT_ONCE) != datagram
            except (TimeoutError, OSError):
                counts.lost += 1
                client.close()
                client = await self._connect(line)
        client.close()


async def _asked(connection: socket.socket, request: bytes) -> bytes:
    loop, answer = asyncio.get_running_loop(), b""
    await loop.sock_sendall(connection, request)
    while len(answer) < len(request):
        data = await loop.sock_recv(connection, _AT_ONCE)
        if not data:
            raise ConnectionError("the other side has closed")
        answer += data
    return answer


async def _echo(connection: socket.socket) -> None:
    """Answer until the client has closed, or given up."""
    loop = asyncio.get_running_loop()
    connection.setblocking(False)
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            while data := await loop.sock_recv(connection, _AT_ONCE):
                await loop.sock_sendall(connection, data)
        except OSError:
            return


def _payload(rng: random.Random, headers: Sequence[Header], size: int) -> bytes:
    """Return random bytes, every second time with a header or two somewhere, or where a fragment begins."""
    data = bytearray(rng.randbytes(size))
    pieces = (0, _PIECE_BYTES - 8, 2 * _PIECE_BYTES - 8) if size >= FRAGMENTED_BYTES else (0,)
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.choice(pieces) + rng.choice(shapes.OFFSETS)
        header = rng.choice(headers)(rng, size - at)
        data[at : at + len(header)] = header
    return bytes(data[:size])


async def _paced(rate: float, end: float) -> AsyncIterator[None]:
    """Go on at a rate until a time, without catching up."""
    while (now := time.monotonic()) < end:
        yield
        await asyncio.sleep(max(0.0, now + 1 / rate - time.monotonic()))
