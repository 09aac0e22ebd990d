"""Output of tasks: readable by those who may read the task, answered by its centre for its current attempt alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import httpx
import pytest

from controller.apiserver.client import ApiClient, sessions
from controller.apiserver.registry.completions import Completion, CompletionRequest
from controller.apiserver.resources import Task
from controller.apiserver.resources.task import TaskPhase
from controller.apiserver.sessions import frames
from controller.apiserver.sessions.board import MOST_OF_ANSWERER, PIPE_BYTES
from controller.apiserver.sessions.frames import MOST_BYTES, Frame, Stream
from controller.apiserver.sessions.values import Answerer, AnswererKind, TaskSessionRequest
from controller.common.errors import (
    ApiError,
    ForbiddenError,
    GoneError,
    NotFoundError,
    StaleError,
    TooManyError,
    UnavailableError,
)
from dataplane.rpc.access import Role
from tests.controller.apiserver.api_server import Play, Served
from tests.controller.apiserver.session_node import answering_tasks, dispatch, dispatched_task
from tests.waiting import until

C1 = Answerer(AnswererKind.CENTRE, "c1")
END = frames.exit_frame(0)


@pytest.fixture(autouse=True)
def _talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have clients send keep-alives often."""
    monkeypatch.setattr(sessions, "KEEP_ALIVE_S", 0.1)


async def read_all(stream: AsyncIterator[Frame]) -> list[Frame]:
    return [frame async for frame in stream]


async def name_of(request: TaskSessionRequest) -> AsyncIterator[Frame]:
    yield Frame(Stream.STDOUT, f"{request.task} {request.epoch}".encode())
    yield END


async def next_request(client: ApiClient, centre: str = "c1") -> TaskSessionRequest:
    """Return the first session request to a centre."""
    async with aclosing(client.centre_sessions(centre)) as requests:
        return await anext(requests)


def test_users_read_the_output_of_their_own_tasks(play: Play) -> None:
    async def act(served: Served) -> None:
        await dispatched_task(served.client)
        owner = await served.client_of(Role.USER, name="user")
        colleague = await served.client_of(Role.USER, name="ada", projects=("play",))
        other = await served.client_of(Role.USER, name="eve", projects=("work",))
        service = await served.client_of(Role.SERVICE)
        c1 = await served.client_of(Role.CENTRE, "c1")
        async with owner, colleague, other, service, c1, answering_tasks(c1, "c1", name_of):
            for client in (owner, colleague, service):
                assert await read_all(client.task_logs("t", errors_only=True)) == [Frame(Stream.STDOUT, b"t 1"), END]
            with pytest.raises(ForbiddenError, match=r"eve .* may not read Task t: it belongs to another user"):
                await read_all(other.task_logs("t"))
            with pytest.raises(ForbiddenError, match="may not read logs of tasks"):
                await read_all(c1.task_logs("t"))
            with pytest.raises(NotFoundError, match="there is no Task u"):
                await read_all(owner.task_logs("u"))

    play(act)


def test_only_the_centre_of_the_task_answers(play: Play) -> None:
    async def act(served: Served) -> None:
        await dispatched_task(served.client)
        await dispatched_task(served.client, "other", "c2")
        c1, c2 = await served.client_of(Role.CENTRE, "c1"), await served.client_of(Role.CENTRE, "c2")
        node = await served.client_of(Role.NODE, "c1")
        async with c1, c2, node:
            reading = asyncio.create_task(read_all(served.client.task_logs("t")))
            request = await next_request(c1)
            for thief, answerer, error in (
                (c2, C1, ForbiddenError),
                (c2, Answerer(AnswererKind.CENTRE, "c2"), NotFoundError),
                (node, C1, ForbiddenError),
                (node, Answerer(AnswererKind.NODE, "c1"), NotFoundError),
            ):
                with pytest.raises(error):
                    await thief.answer_session(answerer, request.number, name_of(request))
            for client in (c2, node):
                with pytest.raises(ForbiddenError, match="may not answer for centre c1"):
                    await next_request(client)
            with pytest.raises(NotFoundError):
                await c1.answer_session(C1, "0" * 32, name_of(request))
            await c1.answer_session(C1, request.number, name_of(request))
            assert await reading == [Frame(Stream.STDOUT, b"t 1"), END]

    play(act)


def test_an_old_attempt_is_not_answered_for(play: Play) -> None:
    async def act(served: Served) -> None:
        await dispatched_task(served.client)
        await dispatched_task(served.client, "other", "c2")
        c1 = await served.client_of(Role.CENTRE, "c1")
        async with c1:
            for centre in ("c1", "c2"):
                epoch = (await served.client.of(Task).get("t")).status.epoch
                reading = asyncio.create_task(read_all(served.client.task_logs("t")))
                request = await next_request(c1)
                lost = Completion(task="t", epoch=epoch, phase=TaskPhase.PENDING, reasons=("lost",))
                await served.client.complete(CompletionRequest(completions=(lost,)))
                await dispatch(served.client, "t", centre)
                with pytest.raises(StaleError, match="Task t has left centre c1, or was dispatched again"):
                    await c1.answer_session(C1, request.number, name_of(request))
                with pytest.raises(StaleError, match="Task t has left centre c1"):
                    await reading
            reading = asyncio.create_task(read_all(served.client.task_logs("t")))
            assert (await next_request(served.client, "c2")).epoch == 3
            reading.cancel()

    play(act)


def test_a_task_of_the_same_name_is_another(play: Play) -> None:
    async def act(served: Served) -> None:
        await dispatched_task(served.client)
        reading = asyncio.create_task(read_all(served.client.task_logs("t")))
        request = await next_request(served.client)
        await served.client.of(Task).delete("t")
        done = Completion(task="t", epoch=1, phase=TaskPhase.FAILED)
        await served.client.complete(CompletionRequest(completions=(done,)))
        await dispatched_task(served.client)
        with pytest.raises(StaleError):
            await served.client.answer_session(C1, request.number, name_of(request))
        with pytest.raises(StaleError):
            await reading

    play(act)


def test_missing_or_silent_centre_is_reported_in_time(play: Play) -> None:
    async def act(served: Served) -> None:
        await dispatched_task(served.client)
        with pytest.raises(UnavailableError, match="centre c1 is not connected: its agent is not running, or cannot"):
            await read_all(served.client.task_logs("t"))
        async with aclosing(served.client.centre_sessions("c1")) as requests:
            listening = asyncio.ensure_future(anext(requests))
            with pytest.raises(UnavailableError, match=r"centre c1 has not answered within 0.3 s"):
                await read_all(served.client.task_logs("t", follow=True, tail=7))
            request = await listening
        assert (request.task, request.follow, request.tail) == ("t", True, 7)

    play(act, session_answer_s=0.3)


def test_a_centre_has_its_own_limit(play: Play) -> None:
    """Sessions of a centre and of a node of the same name are counted apart."""

    async def act(served: Served) -> None:
        await dispatched_task(served.client)
        await dispatched_task(served.client, "other", "c2")
        waiting = [
            asyncio.create_task(read_all(served.client.task_logs("t", follow=True))) for _ in range(MOST_OF_ANSWERER)
        ]
        await until(lambda: _open(served, MOST_OF_ANSWERER), "they do not open")
        with pytest.raises(TooManyError, match="centre c1 has reached the limit of 64 open sessions"):
            await read_all(served.client.task_logs("t"))
        async with answering_tasks(served.client, "c2", name_of):
            assert (await read_all(served.client.task_logs("other")))[-1] == END
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    play(act, sessions_of_one=100)


async def _open(served: Served, count: int) -> bool:
    transport = httpx.AsyncHTTPTransport(uds=served.client.place.socket)
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
        return f"millrace_api_sessions {count:.1f}" in (await http.get("/metrics")).text


def test_a_flooding_centre_waits_for_its_reader(play: Play) -> None:
    asked = 0

    async def flood(request: TaskSessionRequest) -> AsyncIterator[Frame]:
        nonlocal asked
        while request.follow:
            asked += 1
            yield Frame(Stream.STDOUT, bytes(MOST_BYTES))
        yield END

    async def act(served: Served) -> None:
        await dispatched_task(served.client)
        async with answering_tasks(served.client, "c1", flood) as failed:
            async with aclosing(served.client.task_logs("t", follow=True)) as unread:
                await anext(unread)
                before = -1
                while before != asked:
                    before = asked
                    await asyncio.sleep(0.1)
                assert asked * MOST_BYTES < PIPE_BYTES + (32 << 20)
                assert await read_all(served.client.task_logs("t")) == [END]
            await until(lambda: len(failed) > 0, "the flood is not cut off")
        assert isinstance(failed[0], GoneError | UnavailableError)

    play(act)


@pytest.mark.parametrize(
    ("sent", "problem"),
    [
        (b"\xff\x00\x00\x00\x00", "not a frame: stream 255, 0 bytes"),
        (b"\x01\x00\x00\x00\x01a", "frames of stream STDIN are not accepted here"),
        (b"\x02\x00\x00\x00\x05ab", "the body ends within a frame"),
        (b"", "centre c1 ended the session prematurely"),
    ],
)
def test_invalid_frames_of_a_centre_are_refused(play: Play, sent: bytes, problem: str) -> None:
    async def act(served: Served) -> None:
        await dispatched_task(served.client)
        reading = asyncio.create_task(read_all(served.client.task_logs("t")))
        request = await next_request(served.client)
        transport = httpx.AsyncHTTPTransport(uds=served.client.place.socket)
        async with httpx.AsyncClient(transport=transport, base_url="http://api") as http:
            answer = await http.post(f"/v1/centres/c1/sessions/{request.number}/output", content=sent)
        assert answer.json()["detail"].startswith(problem)
        with pytest.raises(ApiError, match=problem):
            await reading

    play(act)
