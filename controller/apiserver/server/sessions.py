"""Routes of sessions: logs and commands for users, and the other end of both for nodes and centres.

Neither nodes nor centres listen: each keeps one request open over which it learns of sessions, and answers with
requests whose bodies are streams of frames. A slow end of a stream holds up only the other end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, Response, get, post
from litestar.params import FromPath, JSONBody, QueryParameter
from litestar.response import Stream as StreamedResponse

from controller.apiserver.resources.nic import NicModeAnswer, NicModeRequest
from controller.apiserver.server.callers import Caller, caller_of
from controller.apiserver.server.gate import AUDITED, PATIENCE_S, WHAT
from controller.apiserver.server.handlers import NDJSON
from controller.apiserver.sessions.board import Session
from controller.apiserver.sessions.frames import MEDIA_TYPE, Frame, Stream, error_frame
from controller.apiserver.sessions.service import SessionService
from controller.apiserver.sessions.values import (
    Answerer,
    AnswererKind,
    ExecAnswer,
    ExecRequest,
    PodSessionRequest,
    SessionRequest,
    TaskSessionRequest,
)
from controller.common.errors import UnauthorizedError, UnavailableError
from controller.common.http_server import ABORT
from dataplane.rpc.access import Principal

_Asked = Request[Principal, None, Any]
_Name = FromPath[str]
_Container = Annotated[
    str | None, QueryParameter(max_length=100, description="Name of the container, if the pod has several.")
]
_Follow = Annotated[bool, QueryParameter(description="Follow the log.")]
_Tail = Annotated[int | None, QueryParameter(ge=0, le=1_000_000, description="Number of last lines to start with.")]

_Errors = Annotated[bool, QueryParameter(description="Leave out the standard output.")]

_PLAIN: Final = "application/octet-stream"
_WHAT_BYTES: Final = 200


def session_routes(sessions: SessionService) -> list[Any]:
    """Return the routes of sessions."""
    return [*_of_users(sessions), *_of_nodes(sessions), *_of_centres(sessions)]


def _of_users(sessions: SessionService) -> list[Any]:
    common: dict[str, Any] = {"tags": ["sessions"]}

    @get("/v1/pods/{name:str}/logs", operation_id="readLog", summary="Log of a container.", **common)
    async def read_log(
        request: _Asked, name: _Name, container: _Container = None, follow: _Follow = False, tail: _Tail = None
    ) -> Response[bytes]:
        _note(request, f"log of Pod {name}{'' if container is None else f', container {container}'}")
        session = await sessions.open_log(request.user, name, container, follow=follow, tail=tail)
        return await _answer(request, sessions, session)

    @get(
        "/v1/tasks/{name:str}/logs",
        operation_id="readTaskLog",
        summary="Output and errors of a task's current attempt.",
        **common,
    )
    async def read_task_log(
        request: _Asked, name: _Name, follow: _Follow = False, tail: _Tail = None, errors: _Errors = False
    ) -> Response[bytes]:
        _note(request, f"log of Task {name}")
        session = await sessions.open_task_log(request.user, name, follow=follow, tail=tail, errors_only=errors)
        return await _answer(request, sessions, session)

    @post("/v1/pods/{name:str}/exec", operation_id="exec", summary="Run a command in a container.", **common)
    async def run(request: _Asked, name: _Name, data: JSONBody[ExecRequest]) -> ExecAnswer:
        where = "" if data.container is None else f", container {data.container}"
        _note(request, f"exec in Pod {name}{where}: {' '.join(data.command)[:_WHAT_BYTES]}")
        return ExecAnswer(number=(await sessions.open_exec(request.user, name, data)).number)

    @get("/v1/execs/{number:str}/output", operation_id="readExec", summary="A command's output, as frames.", **common)
    async def read_exec(request: _Asked, number: _Name) -> Response[bytes]:
        return await _answer(request, sessions, sessions.session_of(request.user, number), as_frames=True)

    @post(
        "/v1/execs/{number:str}/input",
        operation_id="writeExec",
        summary="A command's input, as frames in a streamed body.",
        status_code=204,
        **common,
    )
    async def write_exec(request: _Asked, number: _Name) -> None:
        session = sessions.session_of(request.user, number)
        await sessions.take_input(request.user, number, _body(request, sessions, session))

    return [read_log, read_task_log, run, read_exec, write_exec]


def _of_nodes(sessions: SessionService) -> list[Any]:
    common: dict[str, Any] = {"tags": ["sessions"]}

    @get(
        "/v1/nodes/{name:str}/sessions",
        operation_id="watchSessions",
        summary="Sessions that a node must answer.",
        **common,
    )
    async def watch(request: _Asked, name: _Name) -> Response[PodSessionRequest]:  # or NicSessionRequest
        return await _requests(request, sessions, Answerer(AnswererKind.NODE, name))

    @post(
        "/v1/nodes/{name:str}/sessions/{number:str}/output",
        operation_id="answerSession",
        summary="A node's answer, as frames in a body streamed during the session.",
        status_code=204,
        **common,
    )
    async def answer(request: _Asked, name: _Name, number: _Name) -> None:
        await _take(request, sessions, Answerer(AnswererKind.NODE, name), number)

    @post(
        "/v1/nodes/{name:str}/nic-modes",
        operation_id="setNicMode",
        summary="Change the mode of a polled queue; the answer is what is in force.",
        **common,
    )
    async def set_nic_mode(request: _Asked, name: _Name, data: JSONBody[NicModeRequest]) -> NicModeAnswer:
        _note(request, f"polled queue {data.where} of Node {name}: {data.mode.value}")
        return await sessions.set_nic_mode(request.user, name, data)

    @get(
        "/v1/nodes/{name:str}/sessions/{number:str}/input",
        operation_id="readInput",
        summary="A command's input for its node, as frames.",
        **common,
    )
    async def read_input(request: _Asked, name: _Name, number: _Name) -> Response[bytes]:
        frames = await sessions.input_of(request.user, name, number)
        return _streamed(request, sessions, _encoded(request, frames), MEDIA_TYPE)

    return [watch, answer, set_nic_mode, read_input]


def _of_centres(sessions: SessionService) -> list[Any]:
    common: dict[str, Any] = {"tags": ["sessions"]}

    @get(
        "/v1/centres/{name:str}/sessions",
        operation_id="watchCentreSessions",
        summary="Sessions that a centre must answer.",
        **common,
    )
    async def watch(request: _Asked, name: _Name) -> Response[TaskSessionRequest]:
        return await _requests(request, sessions, Answerer(AnswererKind.CENTRE, name))

    @post(
        "/v1/centres/{name:str}/sessions/{number:str}/output",
        operation_id="answerCentreSession",
        summary="A centre's answer, as frames in a body streamed during the session.",
        status_code=204,
        **common,
    )
    async def answer(request: _Asked, name: _Name, number: _Name) -> None:
        await _take(request, sessions, Answerer(AnswererKind.CENTRE, name), number)

    return [watch, answer]


async def _requests(request: _Asked, sessions: SessionService, answerer: Answerer) -> Response[Any]:
    """Answer with the sessions that a node or centre must answer, as they open."""
    requests = await sessions.requests(request.user, answerer)
    lines: Any = StreamedResponse(
        _lines(caller_of(request), requests), media_type=NDJSON, headers={"Cache-Control": "no-store"}
    )
    return lines  # type: ignore[no-any-return]


async def _take(request: _Asked, sessions: SessionService, answerer: Answerer, number: str) -> None:
    """Take a node's or centre's answer until it or the session ends."""
    _note(request, f"answer of {answerer}")
    session = sessions.board.of_answerer(answerer, number)
    await sessions.take_output(request.user, answerer, number, _body(request, sessions, session))


async def _answer(
    request: _Asked, sessions: SessionService, session: Session, *, as_frames: bool = False
) -> Response[bytes]:
    """Answer with a session's output: as frames if requested, else only the bytes."""
    frames = await sessions.output(session)
    if as_frames or MEDIA_TYPE in request.headers.get("accept", ""):
        return _streamed(request, sessions, _encoded(request, frames), MEDIA_TYPE)
    return _streamed(request, sessions, _bytes(request, frames), _PLAIN)


def _streamed(
    request: _Asked, sessions: SessionService, parts: AsyncIterator[bytes], media_type: str
) -> Response[bytes]:
    request.scope["state"][PATIENCE_S] = sessions.board.limits.idle_s
    stream: Any = StreamedResponse(
        parts, media_type=media_type, headers={"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    )
    return stream  # type: ignore[no-any-return]


async def _lines(caller: Caller, requests: AsyncGenerator[SessionRequest | None, None]) -> AsyncIterator[bytes]:
    """Yield requests as JSON lines, with an empty line at the start and while there are none.

    The stream ends once the answerer's token becomes invalid; the answer to its next request says why.
    """
    yield b"\n"
    async with aclosing(requests):
        async for request in requests:
            if not _counts(caller):
                return
            yield b"\n" if request is None else msgspec.json.encode(request) + b"\n"


async def _encoded(request: _Asked, frames: AsyncGenerator[Frame, None]) -> AsyncIterator[bytes]:
    """Yield frames, at least one per heartbeat, until the caller's token becomes invalid."""
    async with aclosing(frames):
        async for frame in frames:
            try:
                caller_of(request).check()
            except UnauthorizedError as error:
                yield error_frame(str(error)).encode()
                return
            yield frame.encode()


async def _bytes(request: _Asked, frames: AsyncGenerator[Frame, None]) -> AsyncIterator[bytes]:
    """Yield the bytes in frames; a later failure aborts the connection, so that a partial body is recognised."""
    async with aclosing(frames):
        async for frame in frames:
            if frame.stream is Stream.ERROR or not _counts(caller_of(request)):
                request.scope[ABORT]()  # type: ignore[typeddict-item]
                return
            if frame.payload and not frame.is_last:
                yield frame.payload


async def _body(request: _Asked, sessions: SessionService, session: Session) -> AsyncIterator[bytes]:
    """Yield a body as it arrives, until it or the session ends; raise UnavailableError if it goes silent."""
    request.scope["state"][PATIENCE_S] = sessions.board.limits.idle_s
    silence_s = sessions.board.limits.silence_s
    ended = asyncio.ensure_future(session.ended.wait())
    try:
        while True:
            part = asyncio.ensure_future(request.receive())
            await asyncio.wait((part, ended), timeout=silence_s, return_when=asyncio.FIRST_COMPLETED)
            if not part.done():
                part.cancel()
                # Cancelling only asks: wait until the read has ended.
                await asyncio.gather(part, return_exceptions=True)
                raise session.error or UnavailableError(f"no data for {silence_s:g} s")
            message: Any = part.result()
            caller_of(request).check()
            if message["type"] == "http.disconnect":
                raise UnavailableError("the connection has ended")
            yield message.get("body", b"")
            if not message.get("more_body"):
                return
    finally:
        ended.cancel()


def _counts(caller: Caller) -> bool:
    try:
        caller.check()
    except UnauthorizedError:
        return False
    return True


def _note(request: _Asked, what: str) -> None:
    """Mark the request for the audit log, which records reads of logs as well."""
    request.scope["state"][WHAT] = what
    request.scope["state"][AUDITED] = True
