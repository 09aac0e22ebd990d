"""The node's end of logs and execs of its pods, and of changes of polled queues' modes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import Final

import msgspec

from controller.apiserver.agents.answering import Answering
from controller.apiserver.client import ApiClient
from controller.apiserver.sessions.frames import Frame, Stream, data_frames, exit_frame, resize_of
from controller.apiserver.sessions.values import (
    Answerer,
    AnswererKind,
    NicSessionRequest,
    NodeSessionRequest,
    PodSessionRequest,
    SessionKind,
)
from controller.common.errors import ControllerError
from controller.workloads.nodes.deciding.values import Actual
from controller.workloads.nodes.errors import NodeError
from controller.workloads.nodes.nic.server import NicServer
from controller.workloads.nodes.runtimes.base import STDERR, ExecSession, Output, Runtime, Terminal

LOGGER: Final = logging.getLogger("millrace.node")


class Sessions:
    """Answers sessions of one node until cancelled."""

    def __init__(
        self,
        client: ApiClient,
        runtime: Runtime,
        node: str,
        containers_of: Callable[[str], list[Actual]],
        nic: NicServer | None = None,
    ) -> None:
        self._nic = nic
        self._client, self._runtime, self._node, self._containers_of = client, runtime, node, containers_of
        answerer = Answerer(AnswererKind.NODE, node)
        self._answering = Answering(client, answerer, lambda: client.node_sessions(node), self._frames_of, LOGGER)

    async def run(self) -> None:
        """Answer until cancelled."""
        await self._answering.run()

    def _frames_of(self, request: NodeSessionRequest) -> AsyncGenerator[Frame, None]:
        if isinstance(request, NicSessionRequest):
            return self._set_mode(request)
        return self._log(request) if request.kind is SessionKind.LOGS else self._exec(request)

    async def _set_mode(self, request: NicSessionRequest) -> AsyncGenerator[Frame, None]:
        if self._nic is None:
            raise NodeError(f"node {self._node} knows no polled queues: `nic` of its settings is off")
        answer = await self._nic.set_mode(request.nic)
        for frame in data_frames(Stream.STDOUT, msgspec.json.encode(answer)):
            yield frame
        yield exit_frame(0)

    def _container(self, request: PodSessionRequest, *, running: bool) -> Actual:
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

    async def _log(self, request: PodSessionRequest) -> AsyncGenerator[Frame, None]:
        container = self._container(request, running=False)
        async with aclosing(self._runtime.logs(container.id, follow=request.follow, tail=request.tail)) as outputs:
            async for output in outputs:
                for frame in _frames_of(output):
                    yield frame
        yield exit_frame(0)

    async def _exec(self, request: PodSessionRequest) -> AsyncGenerator[Frame, None]:
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

    async def _feed(self, request: PodSessionRequest, session: ExecSession) -> None:
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


def _frames_of(output: Output) -> list[Frame]:
    return list(data_frames(Stream.STDERR if output.stream == STDERR else Stream.STDOUT, output.data))
