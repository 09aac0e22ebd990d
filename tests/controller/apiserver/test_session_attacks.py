"""Sessions under attack or with idle peers: outsiders get nothing, and nobody else waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
import pytest

from controller.apiserver.client import ApiClient, sessions
from controller.apiserver.registry.placements import Binding, BindingRequest, Release, ReleaseRequest
from controller.apiserver.resources import Metadata, Node
from controller.apiserver.sessions import frames
from controller.apiserver.sessions.board import MOST_OF_ANSWERER, PIPE_BYTES
from controller.apiserver.sessions.frames import MOST_BYTES, Frame, Stream
from controller.apiserver.sessions.values import Answerer, AnswererKind, ExecRequest, PodSessionRequest
from controller.common.errors import (
    ApiError,
    ForbiddenError,
    GoneError,
    InvalidError,
    NotFoundError,
    StaleError,
    TooManyError,
    UnavailableError,
)
from dataplane.rpc.access import Right, Role
from tests.controller.apiserver.api_server import Play, Served
from tests.controller.apiserver.session_node import H1, answering, bound_pod
from tests.waiting import until

RUN = ExecRequest(command=("sh",))


@pytest.fixture(autouse=True)
def _talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients send keep-alives often."""
    monkeypatch.setattr(sessions, "KEEP_ALIVE_S", 0.1)


CHUNK = Frame(Stream.STDOUT, bytes(MOST_BYTES))


async def read_all(stream: AsyncIterator[Frame]) -> list[Frame]:
    return [frame async for frame in stream]


async def one_chunk(request: PodSessionRequest) -> AsyncIterator[Frame]:
    yield Frame(Stream.STDOUT, request.pod.encode())
    yield frames.exit_frame(0)


async def nothing(_: PodSessionRequest) -> AsyncIterator[Frame]:
    """Begin to answer but send nothing."""
    await asyncio.Event().wait()
    yield frames.exit_frame(0)


async def greeting(_: PodSessionRequest) -> AsyncIterator[Frame]:
    yield CHUNK
    await asyncio.Event().wait()


async def next_request(client: ApiClient, node: str) -> PodSessionRequest:
    """Return the first session request to a node."""
    async with aclosing(client.node_sessions(node)) as requests:
        request = await anext(requests)
        assert isinstance(request, PodSessionRequest)
        return request


def test_only_the_node_of_the_pod_answers(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        await served.client.of(Node).create(Node(metadata=Metadata(name="h2")))
        h1, h2 = await served.client_of(Role.NODE, "h1"), await served.client_of(Role.NODE, "h2")
        async with h1, h2:
            reading = asyncio.create_task(read_all(served.client.logs("a")))
            request = await next_request(h1, "h1")
            for node, error in (("h1", ForbiddenError), ("h2", NotFoundError)):
                with pytest.raises(error):
                    await h2.answer_session(Answerer(AnswererKind.NODE, node), request.number, one_chunk(request))
                with pytest.raises(error):
                    await read_all(h2.session_input(node, request.number))
            with pytest.raises(ForbiddenError):
                await next_request(h2, "h1")
            with pytest.raises(NotFoundError):
                await h1.answer_session(H1, "0" * 32, one_chunk(request))
            await h1.answer_session(H1, request.number, one_chunk(request))
            assert await reading == [Frame(Stream.STDOUT, b"a"), frames.exit_frame(0)]
            with pytest.raises(NotFoundError):
                await h1.answer_session(H1, request.number, one_chunk(request))

    play(act)


def test_a_pod_that_has_moved_is_not_answered_for(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        reading = asyncio.create_task(read_all(served.client.logs("a")))
        request = await next_request(served.client, "h1")
        await served.client.release(ReleaseRequest(releases=(Release(pod="a"),)))
        await served.client.bind(BindingRequest(bindings=(Binding(pod="a", node="h1"),)))
        with pytest.raises(StaleError, match="Pod a is no longer on node h1"):
            await served.client.answer_session(H1, request.number, one_chunk(request))
        with pytest.raises(StaleError, match="Pod a is no longer on node h1"):
            await reading

    play(act)


def test_rights(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        user, other = await served.client_of(Role.USER), await served.client_of(Role.USER, rights=(Right.EXEC,))
        service, node = await served.client_of(Role.SERVICE), await served.client_of(Role.NODE, "h1")
        third = await served.client_of(Role.USER, name="third", rights=(Right.EXEC,))
        async with user, other, service, node, third:
            for client in (user, service, node):
                with pytest.raises(
                    ForbiddenError, match="may not run commands in pods: this needs the permission exec"
                ):
                    await client.exec("a", RUN)
            with pytest.raises(ForbiddenError, match="may not read logs of pods"):
                await read_all(node.logs("a"))
            with pytest.raises(ForbiddenError, match="may not answer for node h1"):
                await next_request(user, "h1")
            async with answering(node, "h1", one_chunk):
                number = await other.exec("a", RUN)
                for client in (third, user, service):
                    with pytest.raises(NotFoundError, match="there is no such session"):
                        await read_all(client.exec_output(number))
                    with pytest.raises(NotFoundError, match="there is no such session"):
                        await client.write_input(number, one_chunk(_any(number)))
                assert (await read_all(other.exec_output(number)))[-1] == frames.exit_frame(0)
        assert "may not" not in (served.folder / "audit").read_text()

    play(act)


def test_missing_or_silent_node_is_reported_in_time(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        with pytest.raises(UnavailableError, match="node h1 is not connected: its manager is not running"):
            await read_all(served.client.logs("a"))
        async with aclosing(served.client.node_sessions("h1")) as requests:
            listening = asyncio.ensure_future(anext(requests))
            with pytest.raises(UnavailableError, match=r"node h1 has not answered within 0.3 s"):
                await read_all(served.client.logs("a", follow=True))
            assert (await listening).follow
        number = await served.client.exec("a", RUN)
        async with aclosing(served.client.node_sessions("h1")) as requests:
            listening = asyncio.ensure_future(anext(requests))
            with pytest.raises(UnavailableError, match="has not answered"):
                await read_all(served.client.exec_output(number))
        assert (await listening).number == number

    play(act, session_answer_s=0.3)


def test_a_flood_of_sessions_is_refused_and_others_are_served(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        flooding = await served.client_of(Role.USER, name="flood", rights=(Right.EXEC,), projects=("play",))
        user, node = await served.client_of(Role.USER), await served.client_of(Role.NODE, "h1")
        async with flooding, user, node:
            for _ in range(4):
                await flooding.exec("a", RUN)
            with pytest.raises(TooManyError, match="flood has reached the limit of 4 open sessions"):
                await flooding.exec("a", RUN)
            async with answering(node, "h1", one_chunk):
                assert (await read_all(user.logs("a")))[0].payload == b"a"
            for _ in range(2):
                await served.client.exec("a", RUN)
            with pytest.raises(UnavailableError, match="the limit of 6 open sessions is reached"):
                await read_all(user.logs("a"))
        metrics = (await _get(served, "/metrics")).text
        assert "millrace_api_sessions 6.0" in metrics
        assert "millrace_api_sessions_refused_total 2.0" in metrics

    play(act, sessions=6, sessions_of_one=4)


def test_a_node_has_its_limit(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        for _ in range(MOST_OF_ANSWERER):
            await served.client.exec("a", RUN)
        with pytest.raises(TooManyError, match="node h1 has reached the limit of 64 open sessions"):
            await served.client.exec("a", RUN)

    play(act, sessions_of_one=100)


def test_client_that_does_not_read_blocks_only_its_writer(play: Play) -> None:
    """Frames queue in the server up to its bound and in sockets; then the writer is throttled."""
    asked = 0

    async def flood(request: PodSessionRequest) -> AsyncIterator[Frame]:
        nonlocal asked
        if not request.follow:
            async for frame in one_chunk(request):
                yield frame
            return
        while True:
            asked += 1
            yield CHUNK

    async def act(served: Served) -> None:
        await bound_pod(served.client)
        async with answering(served.client, "h1", flood) as failed:
            async with aclosing(served.client.logs("a", follow=True)) as unread:
                await anext(unread)
                before = -1
                while before != asked:
                    before = asked
                    await asyncio.sleep(0.1)
                assert asked * MOST_BYTES < PIPE_BYTES + (32 << 20)
                assert (await read_all(served.client.logs("a")))[0].payload == b"a"
                assert asked == before
            await until(lambda: len(failed) > 0, "the flood is not cut off")
        assert isinstance(failed[0], GoneError | UnavailableError)  # its connection is closed while it writes

    play(act)


def test_idle_node_notices_a_client_that_left(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        async with answering(served.client, "h1", greeting) as failed:
            number = await served.client.exec("a", ExecRequest(command=("sh",), stdin=True))
            waiting = asyncio.create_task(read_all(served.client.session_input("h1", number)))
            log, output = served.client.logs("a", follow=True), served.client.exec_output(number)
            assert (await anext(log), await anext(output)) == (CHUNK, CHUNK)
            await log.aclose()
            await output.aclose()
            assert (await waiting)[-1].stream is Stream.ERROR
            await until(lambda: len(failed) >= 2, "the node does not notice")
        assert all(isinstance(error, GoneError | UnavailableError) for error in failed)

    play(act)


@pytest.mark.parametrize(
    ("sent", "to_node", "to_user"),
    [
        (b"\xff\x00\x00\x00\x00", "not a frame: stream 255, 0 bytes", "not a frame"),
        (b"\x02\x7f\xff\xff\xff", "not a frame: stream 2, 2147483647 bytes", "not a frame"),
        (b"\x01\x00\x00\x00\x01a", "frames of stream STDIN are not accepted here", "frames of stream STDIN"),
        (b"\x02\x00\x00\x00\x05ab", "the body ends within a frame", "the body ends within a frame"),
        (b"", "node h1 ended the session prematurely", "node h1 ended the session prematurely"),
    ],
)
def test_invalid_frames_of_a_node_are_refused(play: Play, sent: bytes, to_node: str, to_user: str) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        reading = asyncio.create_task(read_all(served.client.logs("a")))
        request = await next_request(served.client, "h1")
        answer = await _post(served, f"/v1/nodes/h1/sessions/{request.number}/output", sent)
        assert answer.json()["detail"].startswith(to_node)
        with pytest.raises(ApiError, match=to_user):
            await reading

    play(act)


def test_invalid_input_frames_of_a_user_are_refused(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        number = await served.client.exec("a", ExecRequest(command=("sh",), stdin=True))
        path = f"/v1/execs/{number}/input"
        assert (await _post(served, path, frames.exit_frame(0).encode())).status_code == 400
        assert (await _post(served, path, Frame(Stream.STDIN, b"a").encode())).status_code == 204
        without = await served.client.exec("a", RUN)
        with pytest.raises(StaleError, match="it does not accept input"):
            await served.client.write_input(without, one_chunk(_any(without)))

    play(act)


def test_an_end_that_goes_silent_is_left(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)

        left = asyncio.Event()

        async def silent() -> AsyncIterator[bytes]:
            yield CHUNK.encode()
            await left.wait()

        reading = asyncio.create_task(read_all(served.client.logs("a", follow=True)))
        request = await next_request(served.client, "h1")
        transport = httpx.AsyncHTTPTransport(uds=served.client.place.socket)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
            answer = asyncio.create_task(http.post(f"/v1/nodes/h1/sessions/{request.number}/output", content=silent()))
            assert await reading == [CHUNK, frames.error_frame("no data for 0.3 s")]
            left.set()
            assert (await answer).status_code == 503

    play(act, silence_s=0.3)


def test_idle_session_ends(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        async with answering(served.client, "h1", nothing):
            received = await read_all(served.client.logs("a", follow=True))
        assert received == [frames.error_frame("this session was idle for 0.4 s")]

    play(act, session_idle_s=0.4, heartbeat_s=0.2)


def test_requests_on_a_lost_connection_are_sent_again(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        reading = asyncio.create_task(read_all(served.client.logs("a")))
        first = await next_request(served.client, "h1")
        async with answering(served.client, "h1", one_chunk):
            assert (await reading)[0].payload == b"a"
        assert first.pod == "a"

    play(act)


def test_a_plain_log_that_breaks_off_is_not_taken_for_the_whole(play: Play) -> None:
    async def breaking(_: PodSessionRequest) -> AsyncIterator[Frame]:
        yield Frame(Stream.STDOUT, b"half")
        yield frames.error_frame("the disk is full")

    async def act(served: Served) -> None:
        await bound_pod(served.client)
        async with answering(served.client, "h1", breaking):
            with pytest.raises(httpx.RemoteProtocolError):
                await _get(served, "/v1/pods/a/logs")

    play(act)


def test_stopping_server_ends_sessions_with_a_reason(play: Play) -> None:
    async def act(served: Served) -> None:
        await bound_pod(served.client)
        async with answering(served.client, "h1", greeting):
            log = served.client.logs("a", follow=True)
            assert await anext(log) == CHUNK
            served.stop.set()
            assert await read_all(log) == [frames.error_frame("the server is stopping")]

    play(act)


def test_frames_are_read_however_they_are_cut() -> None:
    wanted = [Frame(Stream.STDOUT, b"abc"), frames.KEEP_ALIVE, frames.error_frame("no\nway"), frames.exit_frame(-9)]
    data = b"".join(frame.encode() for frame in wanted)
    assert data[:8] == b"\x02\x00\x00\x00\x03abc"
    for size in range(1, len(data) + 1):
        decoder = frames.FrameDecoder()
        parts = [data[begin : begin + size] for begin in range(0, len(data), size)]
        assert [frame for part in parts for frame in decoder.feed(part)] == wanted
        assert decoder.is_whole
    for cut in range(1, len(data)):
        decoder = frames.FrameDecoder()
        list(decoder.feed(data[:cut]))
        assert decoder.is_whole == (cut in {8, 13, 24})
    with pytest.raises(InvalidError, match="a frame may have at most 65536 bytes"):
        Frame(Stream.STDOUT, bytes(MOST_BYTES + 1))
    with pytest.raises(InvalidError, match="a frame EXIT has 4 bytes, not 0"):
        frames.exit_code_of(Frame(Stream.EXIT))


def _any(number: str) -> PodSessionRequest:
    return PodSessionRequest(
        number=number, kind="logs", pod="a", uid="", epoch=1, container="main"  # type: ignore[arg-type]
    )  # fmt: skip


async def _get(served: Served, path: str) -> httpx.Response:
    transport = httpx.AsyncHTTPTransport(uds=served.client.place.socket)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
        return await http.get(path)


async def _post(served: Served, path: str, body: bytes) -> httpx.Response:
    transport = httpx.AsyncHTTPTransport(uds=served.client.place.socket)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
        return await http.post(path, content=body)
