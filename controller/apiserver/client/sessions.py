"""Sessions on the client's side: frames in, frames out; shared by both clients."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import aclosing
from typing import Final, TypeVar

import httpx
import msgspec

from controller.apiserver.client import calls
from controller.apiserver.client.calls import Call
from controller.apiserver.client.place import Place
from controller.apiserver.resources.nic import NicModeRequest
from controller.apiserver.sessions.frames import KEEP_ALIVE, MEDIA_TYPE, Frame, FrameDecoder
from controller.apiserver.sessions.values import (
    Answerer,
    NicSessionRequest,
    NodeSessionRequest,
    PodSessionRequest,
    SessionRequest,
    TaskSessionRequest,
)

Requested = TypeVar("Requested", bound=SessionRequest)

KEEP_ALIVE_S: Final = 2.0
"""Keep-alive interval of an idle writer: it soon notices that the other side has gone."""
PATIENCE_S: Final = 3600.0
"""Timeout of a writer whose reader has stalled; the server ends the session earlier."""

OUTPUT: Final = httpx.Timeout(calls.SILENCE_S, connect=calls.CONNECT_S)
INPUT: Final = httpx.Timeout(calls.SILENCE_S, connect=calls.CONNECT_S, read=PATIENCE_S, write=PATIENCE_S)
ACCEPT: Final = {"Accept": MEDIA_TYPE}
CONTENT: Final = {"Content-Type": MEDIA_TYPE}


def logs_call(pod: str, container: str | None, *, follow: bool, tail: int | None) -> Call:
    """Return the request for a container's log."""
    parameters = _log_parameters(follow=follow, tail=tail)
    if container is not None:
        parameters["container"] = container
    return Call("GET", f"/v1/pods/{calls.segment(pod)}/logs", parameters)


def task_logs_call(task: str, *, follow: bool, tail: int | None, errors_only: bool) -> Call:
    """Return the request for a task's output."""
    parameters = _log_parameters(follow=follow, tail=tail)
    if errors_only:
        parameters["errors"] = "true"
    return Call("GET", f"/v1/tasks/{calls.segment(task)}/logs", parameters)


def _log_parameters(*, follow: bool, tail: int | None) -> dict[str, str | int]:
    parameters: dict[str, str | int] = {"follow": "true"} if follow else {}
    if tail is not None:
        parameters["tail"] = tail
    return parameters


def path_of(answerer: Answerer) -> str:
    """Return the path of the sessions that a node or centre answers."""
    return f"/v1/{answerer.kind.value}s/{calls.segment(answerer.name)}/sessions"


def node_request_of(line: str) -> NodeSessionRequest | None:
    """Return the request in a line for a node; None for a line without one."""
    if not line.strip():
        return None
    if "nic" in msgspec.json.decode(line, type=dict[str, msgspec.Raw]):
        return msgspec.json.decode(line, type=NicSessionRequest)
    return msgspec.json.decode(line, type=PodSessionRequest)


def task_request_of(line: str) -> TaskSessionRequest | None:
    """Return the request in a line for a centre; None for a line without one."""
    return msgspec.json.decode(line, type=TaskSessionRequest) if line.strip() else None


def nic_mode_call(node: str, request: NicModeRequest) -> Call:
    """Return the request for another mode of a polled queue."""
    return calls.writing("POST", f"/v1/nodes/{calls.segment(node)}/nic-modes", request)


async def frames_in(place: Place, http: httpx.AsyncClient, call: Call) -> AsyncGenerator[Frame, None]:
    """Yield the frames of an answer as they come, without keep-alives; raise UnavailableError if it breaks off."""
    decoder = FrameDecoder()
    with calls.telling(place):
        async with http.stream(
            call.method, call.path, params=call.parameters, headers=ACCEPT, timeout=OUTPUT
        ) as response:
            if not response.is_success:
                await response.aread()
                calls.check(place, response)
            async for data in response.aiter_raw():
                for frame in decoder.feed(data):
                    if frame != KEEP_ALIVE:
                        yield frame


def sync_frames_in(place: Place, http: httpx.Client, call: Call) -> Generator[Frame, None, None]:
    """Yield the frames of an answer like `frames_in`, but with keep-alives, for readers that display them."""
    decoder = FrameDecoder()
    asked = http.stream(call.method, call.path, params=call.parameters, headers=ACCEPT, timeout=OUTPUT)
    with calls.telling(place), asked as response:
        if not response.is_success:
            response.read()
            calls.check(place, response)
        for data in response.iter_raw():
            yield from decoder.feed(data)


async def send_frames(place: Place, http: httpx.AsyncClient, path: str, frames: AsyncIterator[Frame]) -> None:
    """Write frames up to the last one, with keep-alives between; raise ApiError if the server ends it earlier."""
    # Close it here: if the server ends it early, nothing may still wait for a frame when the caller goes on.
    async with aclosing(_with_keep_alives(frames)) as kept, aclosing(_encoded(kept)) as body:
        with calls.telling(place):
            calls.check(place, await http.post(path, content=body, headers=CONTENT, timeout=INPUT))


def sync_send_frames(place: Place, http: httpx.Client, path: str, frames: Iterator[Frame]) -> None:
    """Write frames that include their own keep-alives; raise ApiError if the server ends it earlier."""
    with calls.telling(place):
        body = (frame.encode() for frame in frames)
        calls.check(place, http.post(path, content=body, headers=CONTENT, timeout=INPUT))


async def _encoded(frames: AsyncIterator[Frame]) -> AsyncGenerator[bytes, None]:
    async for frame in frames:
        yield frame.encode()


async def _with_keep_alives(frames: AsyncIterator[Frame]) -> AsyncGenerator[Frame, None]:
    """Yield frames up to the last one, and keep-alives while there are none."""
    waiting: asyncio.Future[Frame | None] | None = None
    try:
        while True:
            # Keep the pending read across timeouts: cancelling it could lose a frame.
            waiting = waiting or asyncio.ensure_future(_next(frames))
            done, _ = await asyncio.wait((waiting,), timeout=KEEP_ALIVE_S)
            if not done:
                yield KEEP_ALIVE
                continue
            frame, waiting = waiting.result(), None
            if frame is None:
                return
            yield frame
            if frame.is_last:
                return
    finally:
        if waiting is not None:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def _next(frames: AsyncIterator[Frame]) -> Frame | None:
    return await anext(frames, None)
