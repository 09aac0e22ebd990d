"""A network between clients and a server: connections that break, in the middle of an answer, too, or say nothing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import closing, suppress
from types import TracebackType
from typing import Final, Self

_AT_ONCE: Final = 1 << 16
_TEARS_ONE_OF: Final = 6

Cut = Callable[[bytes], bytes | None]
"""Returns the part of a server's data to forward before its connection ends; None forwards everything."""


class Proxy:
    """Takes TCP connections on loopback and passes them to a UNIX socket; an async context manager."""

    def __init__(self, upstream: str, cut: Cut = lambda _: None) -> None:
        self._upstream, self._cut = upstream.removeprefix("unix:"), cut
        self._flowing, self._is_apart = asyncio.Event(), False
        self._flowing.set()
        self._ends: set[asyncio.StreamWriter] = set()
        self._passing: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """URL of the server for clients."""
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def part(self) -> None:
        """End all connections, and take no others."""
        self._is_apart = True
        for end in self._ends:
            end.transport.abort()

    def stall(self) -> None:
        """Stop forwarding; pending data arrives after healing, whether or not anyone still waits for it."""
        self._flowing.clear()

    def tear(self, rng: random.Random) -> None:
        """End connections somewhere in the middle of what the server says, one time out of `_TEARS_ONE_OF`."""
        self._cut = lambda data: None if rng.randrange(_TEARS_ONE_OF) else data[: rng.randrange(len(data))]

    def heal(self) -> None:
        """Pass everything on again."""
        self._is_apart, self._cut = False, lambda _: None
        self._flowing.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward data both ways until one end closes."""
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        task.add_done_callback(self._passing.discard)
        with suppress(OSError), closing(writer):
            if self._is_apart:
                return
            from_server, to_server = await asyncio.open_unix_connection(self._upstream)
            with closing(to_server):
                self._ends |= {writer, to_server}
                passing = [
                    asyncio.create_task(self._pass(reader, to_server, lambda _: None)),
                    asyncio.create_task(self._pass(from_server, writer, self._cut_now)),
                ]
                try:
                    await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    self._ends -= {writer, to_server}
                    for forwarding in passing:
                        forwarding.cancel()
                    await asyncio.gather(*passing, return_exceptions=True)

    def _cut_now(self, data: bytes) -> bytes | None:
        return self._cut(data)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cut: Cut) -> None:
        """Forward one end's data until it closes or the connection is cut."""
        while data := await reader.read(_AT_ONCE):
            await self._flowing.wait()
            left = cut(data)
            writer.write(data if left is None else left)
            await writer.drain()
            if left is not None:
                return

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.heal()
        self.part()
        await asyncio.gather(*self._passing, return_exceptions=True)
