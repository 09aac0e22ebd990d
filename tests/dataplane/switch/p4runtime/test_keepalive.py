"""Controllers that die silently with an open connection: the server detects it, and frees their ids."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from finsy.proto import p4r, p4r_grpc

from dataplane.rpc.limits import Limits
from dataplane.switch.p4runtime import Code, P4RuntimeCore, P4RuntimeServer
from dataplane.switch.p4runtime.server import Keepalive
from tests.black_hole import BlackHole
from tests.waiting import finish_within

DEVICE = 7


@contextmanager
def served(core: P4RuntimeCore, keepalive: Keepalive) -> Iterator[tuple[str, BlackHole]]:
    """Yield the server's address and a way to it that may swallow everything."""
    with P4RuntimeServer(core, ["127.0.0.1:0"], keepalive=keepalive) as server, BlackHole(server.ports[0]) as way:
        yield f"127.0.0.1:{server.ports[0]}", way


async def bid(channel: grpc.aio.Channel, election_id: int) -> tuple[Any, int]:
    """Open a stream and bid; return the stream and the answer's code."""
    # finsy's stubs have no types for calls that are asynchronous
    stub: Any = p4r_grpc.P4RuntimeStub(channel)
    stream = stub.StreamChannel()
    update = p4r.MasterArbitrationUpdate(device_id=DEVICE, election_id=p4r.Uint128(low=election_id))
    await stream.write(p4r.StreamMessageRequest(arbitration=update))
    return stream, (await stream.read()).arbitration.status.code


def test_the_id_of_a_controller_that_died_without_a_word_is_free(core: P4RuntimeCore) -> None:
    async def run(address: str, way: BlackHole) -> None:
        async with grpc.aio.insecure_channel(way.address) as dying, grpc.aio.insecure_channel(address) as living:
            _, code = await bid(dying, 9)
            assert code == Code.OK
            backup, code = await bid(living, 4)
            assert code == Code.ALREADY_EXISTS
            way.swallow()
            assert (await backup.read()).arbitration.status.code == Code.NOT_FOUND
            assert (await bid(living, 9))[1] == Code.OK
            # The silent backup was notified, too: it counted as connected.
            assert (await backup.read()).arbitration.status.code == Code.ALREADY_EXISTS

    assert Keepalive().interval_s + Keepalive().timeout_s < 15
    with served(core, Keepalive(interval_s=0.2, timeout_s=0.2)) as (address, way):
        asyncio.run(finish_within(run(address, way), 30))


def test_who_opens_a_stream_and_says_nothing_is_refused(core: P4RuntimeCore) -> None:
    async def run(address: str) -> None:
        async with grpc.aio.insecure_channel(address) as channel:
            _, code = await bid(channel, 5)
            assert code == Code.OK
            stub: Any = p4r_grpc.P4RuntimeStub(channel)
            silent = [stub.StreamChannel() for _ in range(20)]
            for stream in silent:
                with pytest.raises(grpc.aio.AioRpcError, match=r"no message within 1 s of the stream's beg") as late:
                    await stream.read()
                assert late.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
            assert (await bid(channel, 7))[1] == Code.OK

    limits = Limits(first_message_ns=1_000_000_000)
    with P4RuntimeServer(core, ["127.0.0.1:0"], limits=limits) as server:
        asyncio.run(finish_within(run(f"127.0.0.1:{server.ports[0]}"), 30))


def test_frequent_keepalive_pings_do_not_close_the_connection(core: P4RuntimeCore) -> None:
    asking = [("grpc.keepalive_time_ms", 1000), ("grpc.http2.max_pings_without_data", 0)]

    async def run(address: str) -> None:
        async with grpc.aio.insecure_channel(address, options=asking) as channel:
            stream, code = await bid(channel, 5)
            assert code == Code.OK
            with pytest.raises(TimeoutError):  # and not that the stream has ended
                await asyncio.wait_for(stream.read(), 4)

    with served(core, Keepalive()) as (address, _):
        asyncio.run(finish_within(run(address), 30))
