"""Clients of our services over a slow network."""

from __future__ import annotations

import asyncio

from collectors.collector import Collector
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from dataplane.clock import VirtualClock
from tests.collectors.reports import build_topology
from tests.waiting import finish_within

BOUND_S = 30.0
DELAY_S = 0.15
"""More than the shortest wait before a client tries again."""


class FarAway:
    """Forwards connections to a port of this machine, each byte `DELAY_S` later; use it as an async context manager."""

    def __init__(self, port: int) -> None:
        self._there = port
        self._forwards: list[asyncio.Task[None]] = []
        self._sinks: list[asyncio.StreamWriter] = []
        self.connections = 0

    async def __aenter__(self) -> FarAway:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._forwards:
            task.cancel()
        await asyncio.gather(*self._forwards, return_exceptions=True)
        for sink in self._sinks:
            sink.close()
        await asyncio.gather(*(sink.wait_closed() for sink in self._sinks), return_exceptions=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._there)
        self._sinks += [writer, far_writer]
        for source, sink in ((reader, far_writer), (far_reader, writer)):
            self._forwards.append(asyncio.create_task(self._forward(source, sink)))

    async def _forward(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        while data := await source.read(65536):
            loop.call_later(DELAY_S, sink.write, data)
        loop.call_later(DELAY_S, sink.close)


def test_a_first_question_is_answered_over_the_first_connection() -> None:
    async def scene() -> int:
        server = FeedServer(Collector(build_topology(), VirtualClock(7)), FeedSettings(address="127.0.0.1:0"))
        await server.start()
        try:
            async with FarAway(int(server.address.rpartition(":")[2])) as way:
                # Short waits between attempts leave each enough time.
                settings = FeedClientSettings(address=way.address, longest_wait_ns=100_000_000)
                async with FeedClient(settings) as client:
                    assert (await client.status()).taken_ns == 7
                return way.connections
        finally:
            await server.stop()

    assert asyncio.run(finish_within(scene(), BOUND_S)) == 1
