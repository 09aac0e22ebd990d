"""Limits on a client's use of our servers: one line beyond each bound; other clients go on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import msgspec
import pytest

from collectors.collector import Collector
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedServer, FeedSettings
from dataplane.clock import VirtualClock
from dataplane.rpc.errors import CallError
from dataplane.rpc.limits import Limits
from dataplane.rpc.service import in_time
from tests.collectors.reports import build_topology
from tests.waiting import finish_within


async def stream_of(*messages: str) -> AsyncIterator[str]:
    for message in messages:
        yield message


async def nothing() -> AsyncIterator[str]:
    await asyncio.Event().wait()
    yield ""


def test_who_does_not_begin_is_not_waited_for() -> None:
    async def all_of(messages: AsyncIterator[str]) -> list[str]:
        return [message async for message in in_time(messages, 50_000_000)]

    assert asyncio.run(all_of(stream_of("a", "b"))) == ["a", "b"]
    assert asyncio.run(all_of(stream_of())) == []
    with pytest.raises(CallError, match=r"^no message within 0\.05 s of the stream's beginning$") as caught:
        asyncio.run(all_of(nothing()))
    assert caught.value.code is grpc.StatusCode.DEADLINE_EXCEEDED


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("request_bytes", 1024, 2**31 - 1),
        ("pending_bytes", 1024, 2**31 - 1),
        ("answer_bytes", 1024, 2**31 - 1),
        ("calls", 1, 2**20),
        ("streams", 1, 2**20),
        ("calls_per_connection", 1, 2**20),
        ("connections", 1, 2**20),
        ("first_message_ns", 10**6, 86_400 * 10**9),
        ("idle_ns", 10**6, 86_400 * 10**9),
    ],
)
def test_each_limit_has_bounds_itself(key: str, least: int, most: int) -> None:
    name = next(field.encode_name for field in msgspec.structs.fields(Limits) if field.name == key)
    for fine in (least, most):
        assert getattr(msgspec.convert({name: fine}, Limits), key) == fine
    for wrong in (least - 1, most + 1):
        with pytest.raises(msgspec.ValidationError, match=rf"Expected `int` [<>]= .* - at `\$\.{name}`"):
            msgspec.convert({name: wrong}, Limits)


def test_a_client_takes_no_more_than_it_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataplane.rpc.options.ANSWER_BYTES", 100)

    async def run() -> None:
        address = f"unix:{tmp_path}/feed"
        server = FeedServer(Collector(build_topology(), VirtualClock(0)), FeedSettings(address=address))
        await server.start()
        waits: list[str] = []
        waiting = asyncio.Event()

        async def wait(_: float) -> None:
            waiting.set()
            await asyncio.Event().wait()

        async with FeedClient(FeedClientSettings(address=address), sleep=wait, on_wait=waits.append) as client:
            following = asyncio.ensure_future(anext(client.snapshots(10**9)))
            await waiting.wait()
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
            assert (await client.status()).last_problem is None
        assert re.fullmatch(
            r"waiting .* for the collector at unix:.*: RESOURCE_EXHAUSTED: .*larger than max.*", waits[0]
        )
        await server.stop()

    asyncio.run(finish_within(run(), 30))
