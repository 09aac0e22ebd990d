"""A server of ours: requests, refusals, limits, its socket's rights, its health and its end."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from dataplane.errors import SwitchError
from dataplane.rpc.access.permissions import Permission
from dataplane.rpc.errors import MessageError
from dataplane.rpc.limits import Limits
from dataplane.rpc.messages import check_count, checked_name, checked_range, parse, parse_request
from dataplane.rpc.server import RpcServer
from dataplane.rpc.service import Service
from tests.dataplane.rpc.echo import DESCRIPTOR, ECHO, Echo, Word
from tests.waiting import finish_within

BOUND_S = 30.0
PURPOSE = "cannot serve words"


def served(
    scene: Callable[[RpcServer, Echo, grpc.aio.Channel], Awaitable[None]],
    limits: Limits | None = None,
    address: str = "127.0.0.1:0",
) -> None:
    """Run a scene with a server and a channel to it."""

    async def run() -> None:
        echo = Echo()
        server = RpcServer(address, [echo.service], purpose=PURPOSE, error=SwitchError, limits=limits)
        await server.start()
        options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
        try:
            async with grpc.aio.insecure_channel(server.address, options=options) as channel:
                await scene(server, echo, channel)
        finally:
            await server.stop()

    asyncio.run(finish_within(run(), BOUND_S))


async def refusal(call: Awaitable[object]) -> tuple[grpc.StatusCode, str | None]:
    """Return the code and the details of a refused call."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value.code(), caught.value.details()


async def is_let_in(stream: Any) -> bool:
    """Return whether a stream is accepted, False if there are too many."""
    try:
        return bool(await stream.read())
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
            raise
        return False


def talking(channel: grpc.aio.Channel) -> Any:
    """Return a bidirectional stream."""
    call: Any = channel.stream_stream(f"/{ECHO}/Talk", None, None)
    return call()


def say(channel: grpc.aio.Channel, data: bytes) -> Any:
    return channel.unary_unary(f"/{ECHO}/Say", None, None)(data)


def word(text: str) -> bytes:
    return bytes(Word(text=text).SerializeToString())


def test_each_kind_of_call_is_answered() -> None:
    async def scene(_: RpcServer, __: Echo, channel: grpc.aio.Channel) -> None:
        assert await say(channel, word("a")) == word("a")
        assert await channel.unary_stream(f"/{ECHO}/Repeat", None, None)(word("b")).read() == word("b")
        talk = talking(channel)
        for text in ("c", "d"):
            await talk.write(word(text))
            assert await talk.read() == word(text)
        await talk.done_writing()
        assert not await talk.read()

    served(scene)


def test_what_is_refused_has_its_code_and_its_sentence() -> None:
    async def scene(_: RpcServer, __: Echo, channel: grpc.aio.Channel) -> None:
        no = grpc.StatusCode.NOT_FOUND, "there is no such word"
        assert await refusal(say(channel, word("no"))) == no
        assert await refusal(channel.unary_stream(f"/{ECHO}/Repeat", None, None)(word("no")).read()) == no
        broken = grpc.StatusCode.INVALID_ARGUMENT, "a tests.echo.v1.Word does not decode"
        assert await refusal(say(channel, b"\xff")) == broken
        assert await refusal(channel.unary_stream(f"/{ECHO}/Repeat", None, None)(b"\xff").read()) == broken
        talk = talking(channel)
        await talk.write(b"\xff")
        assert await refusal(talk.read()) == broken
        unknown = b"\x78\x01"
        problem = "tests.echo.v1.Word has fields unknown to this version"
        assert await refusal(say(channel, unknown)) == (grpc.StatusCode.INVALID_ARGUMENT, problem)
        code, _details = await refusal(channel.unary_unary(f"/{ECHO}/Shout", None, None)(b""))
        assert code is grpc.StatusCode.UNIMPLEMENTED

    served(scene)


@hypothesis_settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_refused(data: bytes) -> None:
    try:
        message = parse_request(Word, data)
    except MessageError as error:
        call_error = error
    else:
        assert parse(Word, message.SerializeToString()) == message
        return
    assert call_error.code is grpc.StatusCode.INVALID_ARGUMENT
    assert "\n" not in str(call_error)


def test_unknown_fields_are_refused_at_any_depth_of_requests() -> None:
    deep = Word(more=[Word(more=[Word.FromString(b"\x78\x01")])]).SerializeToString()
    with pytest.raises(MessageError, match="unknown to this version"):
        parse_request(Word, deep)
    assert parse(Word, deep).more[0].more[0].text == ""


def test_names_counts_and_ranges_have_bounds() -> None:
    assert checked_name("s1", "switch") == "s1"
    for wrong in ("", "x" * 257, "a\nb"):
        with pytest.raises(MessageError, match="switch: a name has 1 to 256 printable characters"):
            checked_name(wrong, "switch")
    check_count([1, 2], 2, "hops")
    with pytest.raises(MessageError, match="hops has 3 entries, at most 2 are taken"):
        check_count([1, 2, 3], 2, "hops")
    assert checked_range(0, 0, 5, "port") == 0
    with pytest.raises(MessageError, match="port is 6, not in 0 to 5"):
        checked_range(6, 0, 5, "port")


def test_requests_have_a_largest_size() -> None:
    async def scene(_: RpcServer, __: Echo, channel: grpc.aio.Channel) -> None:
        assert len(await say(channel, word("x" * 900))) > 900
        code, _details = await refusal(say(channel, word("x" * 1100)))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        packed = channel.unary_unary(f"/{ECHO}/Say", None, None)
        code, _details = await refusal(packed(word("x" * 1_000_000), compression=grpc.Compression.Gzip))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED, "of a million bytes in a thousand"

    served(scene, Limits(request_bytes=1024))


def test_calls_at_a_time_have_a_bound() -> None:
    async def scene(_: RpcServer, echo: Echo, channel: grpc.aio.Channel) -> None:
        waiting = say(channel, word("wait"))
        first = asyncio.ensure_future(waiting)
        await echo.begun.wait()
        code, _details = await refusal(say(channel, word("a")))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        echo.go.set()
        assert await first == word("wait")

    served(scene, Limits(calls=1))


def test_calls_of_a_connection_beyond_its_own_wait() -> None:
    async def scene(_: RpcServer, echo: Echo, channel: grpc.aio.Channel) -> None:
        first = asyncio.ensure_future(say(channel, word("wait")))
        await echo.begun.wait()
        second = asyncio.ensure_future(say(channel, word("a")))
        assert not (await asyncio.wait((second,), timeout=0.1))[0]
        echo.go.set()
        assert [await first, await second] == [word("wait"), word("a")]

    served(scene, Limits(calls_per_connection=1))


def test_connections_have_a_bound() -> None:
    async def scene(server: RpcServer, _: Echo, channel: grpc.aio.Channel) -> None:
        assert await say(channel, word("a")) == word("a")
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(server.address, options=options) as another:
            code, _details = await refusal(say(another, word("b")))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert await say(channel, word("c")) == word("c")

    served(scene, Limits(connections=1))


def test_answers_have_a_largest_size(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(_: RpcServer, __: Echo, channel: grpc.aio.Channel) -> None:
        large = grpc.StatusCode.RESOURCE_EXHAUSTED, "an answer of 2003 bytes is larger than the 1024 that are sent"
        assert await refusal(say(channel, word("x" * 2000))) == large
        assert await refusal(channel.unary_stream(f"/{ECHO}/Repeat", None, None)(word("x" * 2000)).read()) == large
        assert await say(channel, word("a")) == word("a")

    served(scene, Limits(answer_bytes=1024))
    assert not [record for record in caplog.records if record.name.startswith("grpc")]


def test_streams_at_a_time_have_a_bound_and_the_others_go_on() -> None:
    async def scene(_: RpcServer, __: Echo, channel: grpc.aio.Channel) -> None:
        repeat = channel.unary_stream(f"/{ECHO}/Repeat", None, None)
        first, talk = repeat(word("a")), talking(channel)
        assert await first.read() == word("a")
        await talk.write(word("b"))
        assert await talk.read() == word("b")
        full = grpc.StatusCode.RESOURCE_EXHAUSTED, "2 streams are open, the most at a time"
        for _number in range(50):
            assert await refusal(repeat(word("c")).read()) == full
        assert await refusal(talking(channel).read()) == full
        await talk.write(word("d"))
        assert await talk.read() == word("d")
        assert await say(channel, word("e")) == word("e")
        first.cancel()
        while not await is_let_in(repeat(word("f"))):  # until the server has noticed
            pass

    served(scene, Limits(streams=2))


def test_who_opens_a_stream_and_says_nothing_is_refused() -> None:
    async def scene(_: RpcServer, __: Echo, channel: grpc.aio.Channel) -> None:
        late = grpc.StatusCode.DEADLINE_EXCEEDED, "no message within 1 s of the stream's beginning"
        begun = talking(channel)
        await begun.write(word("a"))
        assert await begun.read() == word("a")
        silent = [talking(channel) for _ in range(20)]
        for connection in silent:
            assert await refusal(connection.read()) == late
        await begun.write(word("b"))
        assert await begun.read() == word("b")

    served(scene, Limits(first_message_ns=1_000_000_000))


HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


SOON_NS = 500_000_000
GREETED_SOON, CALLED_SOON = Limits(first_message_ns=SOON_NS), Limits(idle_ns=SOON_NS)


@pytest.mark.parametrize(
    ("data", "limits"),
    [(b"", GREETED_SOON), (HTTP2[:10], GREETED_SOON), (HTTP2, CALLED_SOON)],
    ids=["nothing", "half a greeting", "no call"],
)
def test_connections_that_carry_nothing_are_closed(data: bytes, limits: Limits) -> None:
    async def scene(server: RpcServer, __: Echo, channel: grpc.aio.Channel) -> None:
        host, _, port = server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        try:
            while await reader.read(1000):
                pass
        except ConnectionResetError:
            pass
        writer.close()
        method = channel.unary_unary(f"/{ECHO}/Say", None, None)
        assert await method(word("a"), wait_for_ready=True) == word("a")

    served(scene, limits)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_a_socket_is_never_open_to_others(umask: int) -> None:
    before = os.umask(umask)
    try:
        with TemporaryDirectory(prefix="rpc") as folder:
            path = Path(folder) / "s"

            async def scene(_: RpcServer, __: Echo, channel: grpc.aio.Channel) -> None:
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                assert await say(channel, word("a")) == word("a")

            served(scene, address=f"unix:{path}")
        assert os.umask(umask) == umask
    finally:
        os.umask(before)


def test_an_address_that_is_taken_is_one_clear_error() -> None:
    async def scene(server: RpcServer, echo: Echo, channel: grpc.aio.Channel) -> None:
        with pytest.raises(SwitchError) as caught:
            RpcServer(server.address, [echo.service], purpose=PURPOSE, error=SwitchError)
        assert str(caught.value) == f"cannot serve words at {server.address}: Address already in use"
        assert await say(channel, word("a")) == word("a")

    served(scene)


def test_stopping_server_ends_streams_and_finishes_answers() -> None:
    async def scene(server: RpcServer, echo: Echo, channel: grpc.aio.Channel) -> None:
        stream = channel.unary_stream(f"/{ECHO}/Repeat", None, None)(word("a"))
        assert await stream.read() == word("a")
        talk = talking(channel)
        await talk.write(word("b"))
        assert await talk.read() == word("b")
        answer = asyncio.ensure_future(say(channel, word("wait")))
        await echo.begun.wait()
        stopping = asyncio.ensure_future(server.stop())
        stopped = grpc.StatusCode.UNAVAILABLE, "the service stops"
        assert await refusal(stream.read()) == stopped
        assert await refusal(talk.read()) == stopped
        echo.go.set()
        assert await answer == word("wait")
        await stopping

    served(scene)


def test_health_tells_of_the_server_and_of_each_service() -> None:
    async def scene(server: RpcServer, _: Echo, channel: grpc.aio.Channel) -> None:
        health = health_pb2_grpc.HealthStub(channel)
        for name in ("", ECHO):
            answer = await health.Check(health_pb2.HealthCheckRequest(service=name))
            assert answer.status == health_pb2.HealthCheckResponse.SERVING
        watch = health.Watch(health_pb2.HealthCheckRequest(service=ECHO))
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
        stopping = asyncio.ensure_future(server.stop())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
        await stopping
        code, _details = await refusal(health.Check(health_pb2.HealthCheckRequest(service="nobody")))
        assert code in {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE}

    served(scene)


def test_service_implements_exactly_its_declared_methods() -> None:
    with pytest.raises(ValueError, match=r"tests.echo.v1.Echo declares \['Repeat', 'Say', 'Talk'\], not \['Say'\]"):
        Service(DESCRIPTOR.services_by_name["Echo"], {"Say": print}, {})
    methods = {"Say": print, "Repeat": print, "Talk": print}
    with pytest.raises(ValueError, match=r"tests.echo.v1.Echo: \['Repeat', 'Talk'\]: missing or unknown permissions"):
        Service(DESCRIPTOR.services_by_name["Echo"], methods, {"Say": Permission.READ})
