"""The node's end of logs and execs: requested by the API server, answered over connections made from here."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Final

from controller.apiserver.client import ApiClient
from controller.apiserver.sessions.frames import Frame, Stream, data_frames, error_frame, exit_frame, resize_of
from controller.apiserver.sessions.values import SessionKind, SessionRequest
from controller.common.errors import ApiError, ControllerError
from controller.workloads.nodes.deciding.values import Actual
from controller.workloads.nodes.errors import NodeError, reason_of
from controller.workloads.nodes.runtimes.base import STDERR, ExecSession, Output, Runtime, Terminal

LOGGER: Final = logging.getLogger("millrace.node")
_MOST: Final = 64


class Sessions:
    """Answers sessions of one node until cancelled; a failing session ends with one line, and no other."""

    def __init__(
        self, client: ApiClient, runtime: Runtime, node: str, containers_of: Callable[[str], list[Actual]]
    ) -> None:
        self._client, self._runtime, self._node, self._containers_of = client, runtime, node, containers_of
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Answer until cancelled."""
        try:
            while True:
                try:
                    async with aclosing(self._client.node_sessions(self._node)) as requests:
                        async for request in requests:
                            self._begin(request)
                except ApiError as error:
                    LOGGER.warning("logs and execs: %s", error)
                await asyncio.sleep(1.0)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _begin(self, request: SessionRequest) -> None:
        if len(self._tasks) >= _MOST:
            LOGGER.warning("pod %s: session refused: %d are open", request.pod, _MOST)
            return
        task = asyncio.create_task(self._answer(request), name=f"session of {request.pod}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, request: SessionRequest) -> None:
        work = self._log(request) if request.kind is SessionKind.LOGS else self._exec(request)
        try:
            async with aclosing(_with_errors(work)) as frames:
                await self._client.answer_session(self._node, request.number, frames)
        except ApiError as error:
            LOGGER.debug("pod %s: its session ended: %s", request.pod, error)  # the user has gone
        except Exception as error:  # noqa: BLE001 - one session's
            LOGGER.warning("pod %s: its session ended: %s", request.pod, reason_of(error))

    def _container(self, request: SessionRequest, *, running: bool) -> Actual:
        """Return the requested container; raise NodeError if it does not exist."""
        matches = [
            container
            for container in self._containers_of(request.pod)
            if (container.uid, container.epoch, container.container) == (request.uid, request.epoch, request.container)
        ]
        best = max(matches, key=lambda container: (container.runs, container.attempt), default=None)
        if best is None or (running and not best.runs):
            state = "is not running" if running else "does not exist yet"
            raise NodeError(f"pod {request.pod}: container {request.container} {state} on node {self._node}")
        return best

    async def _log(self, request: SessionRequest) -> AsyncGenerator[Frame, None]:
        container = self._container(request, running=False)
        async with aclosing(self._runtime.logs(container.id, follow=request.follow, tail=request.tail)) as outputs:
            async for output in outputs:
                for frame in _frames_of(output):
                    yield frame
        yield exit_frame(0)

    async def _exec(self, request: SessionRequest) -> AsyncGenerator[Frame, None]:
        container = self._container(request, running=True)
        size = None if request.terminal is None else Terminal(request.terminal.rows, request.terminal.columns)
        session = await self._runtime.exec(container.id, request.command, terminal=size)
        feeding = asyncio.create_task(self._feed(request, session))
        try:
            async with aclosing(session.output()) as outputs:
                async for output in outputs:
                    for frame in _frames_of(output):
                        yield frame
            yield exit_frame(await session.exit_code())
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)
            with suppress(ControllerError):
                await session.close()

    async def _feed(self, request: SessionRequest, session: ExecSession) -> None:
        """Pass the user's input on; kill the command when the user has gone."""
        if not request.stdin and request.terminal is None:
            await session.close_input()
        try:
            async with aclosing(self._client.session_input(self._node, request.number)) as frames:
                async for frame in frames:
                    match frame.stream:
                        case Stream.STDIN:
                            await session.write(frame.payload)
                        case Stream.RESIZE:
                            size = resize_of(frame)
                            await session.resize(Terminal(size.rows, size.columns))
                        case Stream.END_OF_INPUT:
                            await session.close_input()
                        case _:
                            pass
        except ControllerError as error:
            LOGGER.debug("pod %s: its input ended: %s", request.pod, error)
        await session.close()


async def _with_errors(frames: AsyncGenerator[Frame, None]) -> AsyncGenerator[Frame, None]:
    """Yield frames; an error becomes the last one."""
    async with aclosing(frames):
        try:
            async for frame in frames:
                yield frame
        except Exception as error:  # noqa: BLE001 - one session's
            yield error_frame(reason_of(error))


def _frames_of(output: Output) -> list[Frame]:
    return list(data_frames(Stream.STDERR if output.stream == STDERR else Stream.STDOUT, output.data))
