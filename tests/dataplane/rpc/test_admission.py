"""Large, numerous and slow requests: a server reads only as many at once as it has room for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from dataplane.errors import MillraceError
from dataplane.local.deadline import local_timeout
from dataplane.rpc.admission import Admission, Budget
from dataplane.rpc.limits import Limits
from dataplane.rpc.server import RpcServer
from tests.dataplane.rpc.echo import ECHO, Echo, Word
from tests.waiting import until

MIB = 1 << 20
SAY = f"/{ECHO}/Say"
LIMITS = Limits(request_bytes=MIB, pending_bytes=2 * MIB)


def test_budget_is_given_in_order() -> None:
    async def run() -> None:
        budget = Budget(10)
        assert await budget.take(8, 1)
        large, small = asyncio.create_task(budget.take(10, 60)), asyncio.create_task(budget.take(1, 60))
        await asyncio.sleep(0)
        assert not await budget.take(1, 0.001)
        budget.give_back(8)
        assert await large
        assert not small.done()
        large = asyncio.create_task(budget.take(5, 60))
        await asyncio.sleep(0)
        large.cancel()
        budget.give_back(10)
        assert await small
        assert await budget.take(9, 0)

    asyncio.run(run())


def test_requests_beyond_the_budget_wait_unread(tmp_path: Path) -> None:
    """Two running requests hold the budget; the third is read once one has ended."""
    echo, word = Echo(), Word(text="wait", more=[Word(text="x" * (MIB - 64))])

    async def run() -> None:
        server = RpcServer(
            f"unix:{tmp_path}/echo", [echo.service], purpose="cannot serve", error=MillraceError, limits=LIMITS
        )
        await server.start()
        async with local_timeout(60, "a test"), grpc.aio.insecure_channel(server.address) as channel:
            say = channel.unary_unary(SAY, Word.SerializeToString, Word.FromString)
            waiting = [say(word) for _ in range(2)]
            await echo.begun.wait()
            third = say(Word(text="a"))
            await asyncio.sleep(0.05)  # time enough to read the third, if nothing held it back
            assert not third.done()
            echo.go.set()
            await until(lambda: all(call.done() for call in waiting))
            assert (await third).text == "a"
        await server.stop()

    asyncio.run(run())


async def run_with_server(folder: Path, act: Callable[[Any], Awaitable[None]], busy: asyncio.Event) -> None:
    """Run a function on a channel of a server with room for one request, which runs until `busy` is set."""

    async def answer(data: bytes, context: object) -> bytes:
        if len(data) == MIB:
            await busy.wait()
        return data

    server = grpc.aio.server(interceptors=[Admission(MIB, MIB, wait_s=0.2, read_s=0.2)])
    handlers = {"Say": grpc.unary_unary_rpc_method_handler(answer)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(ECHO, handlers),))
    server.add_insecure_port(f"unix:{folder}/echo")
    await server.start()
    async with local_timeout(60, "a test"), grpc.aio.insecure_channel(f"unix:{folder}/echo") as channel:
        await act(channel)
    await server.stop(0)


def test_who_waits_too_long_is_refused(tmp_path: Path) -> None:
    async def act(channel: Any) -> None:
        say, refusals = channel.unary_unary(SAY), list[tuple[object, object]]()
        first = say(bytes(MIB))
        while not refusals:  # until the first one is running
            try:
                await say(b"a")
            except grpc.aio.AioRpcError as error:
                refusals.append((error.code(), error.details()))
        problem = f"requests of {MIB} bytes are in progress, the most at a time"
        assert refusals == [(grpc.StatusCode.RESOURCE_EXHAUSTED, problem)]
        busy.set()
        assert len(await first) == MIB
        assert await say(b"a") == b"a"

    busy = asyncio.Event()
    asyncio.run(run_with_server(tmp_path, act, busy))


def test_who_stops_halfway_keeps_no_room(tmp_path: Path) -> None:
    async def act(channel: Any) -> None:
        half = channel.stream_unary(SAY)()  # its request never comes
        with pytest.raises(grpc.aio.AioRpcError, match=r"the request did not arrive within 0\.2 s"):
            await half
        assert await channel.unary_unary(SAY)(b"a") == b"a"

    asyncio.run(run_with_server(tmp_path, act, asyncio.Event()))
