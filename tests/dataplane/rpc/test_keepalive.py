"""Clients of our services detect a vanished server; silent connections stay open."""

from __future__ import annotations

import asyncio

import pytest

from collectors.collector import Collector
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from dataplane.clock import VirtualClock
from tests.black_hole import BlackHole
from tests.collectors.reports import build_topology
from tests.waiting import finish_within

BOUND_S = 30.0


def test_a_stream_that_a_dead_network_has_swallowed_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataplane.rpc.options.KEEPALIVE_MS", 300)

    async def scene() -> None:
        server = FeedServer(Collector(build_topology(), VirtualClock(0)), FeedSettings(address="127.0.0.1:0"))
        await server.start()
        waits: list[str] = []
        ended = asyncio.Event()

        async def told(_: float) -> None:
            ended.set()
            await asyncio.Event().wait()

        with BlackHole(int(server.address.rpartition(":")[2])) as way:
            settings = FeedClientSettings(address=way.address)
            async with FeedClient(settings, sleep=told, on_wait=waits.append) as client:
                records = client.records()
                assert await anext(records) == ()
                following = asyncio.ensure_future(anext(records))
                # Silence for many times a client's keepalive interval: the stream stays open.
                assert not (await asyncio.wait((following,), timeout=2))[0]
                way.swallow()
                await ended.wait()
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
        assert "waiting" in waits[0]
        await server.stop()

    asyncio.run(finish_within(scene(), BOUND_S))
