"""Logs, commands, orders to nodes: checks rights, finds who answers, relays frames between the two sides.

The node of a pod answers for it, the centre of a task for that.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, Final

import msgspec

from controller.apiserver import access
from controller.apiserver.resources import Kind, Pod, Task
from controller.apiserver.resources.centre import CENTRE
from controller.apiserver.resources.nic import NicModeAnswer, NicModeRequest
from controller.apiserver.resources.node import NODE
from controller.apiserver.resources.pod import POD
from controller.apiserver.resources.task_rules import TASK
from controller.apiserver.service import Service
from controller.apiserver.sessions.board import Session, SessionBoard
from controller.apiserver.sessions.frames import KEEP_ALIVE, Frame, FrameDecoder, Stream, error_frame, error_of
from controller.apiserver.sessions.values import (
    Answerer,
    AnswererKind,
    ExecRequest,
    NicSessionRequest,
    PodSessionRequest,
    SessionKind,
    SessionRequest,
    TaskSessionRequest,
)
from controller.common.errors import ApiError, GoneError, InvalidError, NotFoundError, StaleError, UnavailableError
from dataplane.clock import NS_PER_S
from dataplane.malformed import MALFORMED
from dataplane.rpc.access import Principal
from dataplane.rpc.access.values import LOCAL

_OUTPUT: Final = (Stream.STDOUT, Stream.STDERR, Stream.EXIT, Stream.ERROR)
_INPUT: Final = (Stream.STDIN, Stream.RESIZE, Stream.END_OF_INPUT)
_NO_NUMBER: Final = "0" * 16
_MOST_ANSWER_BYTES: Final = 1 << 20
_ANSWERERS: Final[dict[AnswererKind, Kind[Any]]] = {AnswererKind.NODE: NODE, AnswererKind.CENTRE: CENTRE}


class SessionService:
    """See the module; `body` is a request's body as it arrives."""

    def __init__(self, service: Service, board: SessionBoard) -> None:
        self._service, self.board = service, board

    async def open_log(
        self, principal: Principal, pod: str, container: str | None, *, follow: bool, tail: int | None
    ) -> Session:
        """Ask a pod's node for a container's log; raise StaleError for a pod on no node."""
        access.check_logs(principal, POD)
        resource = (await self._service.get(principal, POD, pod))[0]
        request = _request(SessionKind.LOGS, resource, container, follow=follow, tail=tail)
        return self.board.open(request, _node_of(resource), principal)

    async def open_task_log(
        self, principal: Principal, task: str, *, follow: bool, tail: int | None, errors_only: bool
    ) -> Session:
        """Ask a task's centre for the output of its current attempt; raise StaleError for a task at no centre."""
        access.check_logs(principal, TASK)
        resource = (await self._service.get(principal, TASK, task))[0]
        answerer = _centre_of(resource)
        request = TaskSessionRequest(
            number=_NO_NUMBER,
            task=resource.metadata.name,
            uid=resource.metadata.uid,
            epoch=resource.status.epoch,
            is_probe=resource.spec.is_probe,
            follow=follow,
            tail=tail,
            errors_only=errors_only,
        )
        return self.board.open(request, answerer, principal)

    async def open_exec(self, principal: Principal, pod: str, asked: ExecRequest) -> Session:
        """Ask a pod's node to run a command in a container."""
        access.check_exec(principal)
        resource = (await self._service.get(principal, POD, pod))[0]
        request = _request(
            SessionKind.EXEC,
            resource,
            asked.container,
            command=asked.command,
            terminal=asked.terminal,
            stdin=asked.stdin,
        )
        return self.board.open(request, _node_of(resource), principal)

    async def set_nic_mode(self, principal: Principal, node: str, asked: NicModeRequest) -> NicModeAnswer:
        """Have a node change the mode of a polled queue; return what is in force there."""
        access.check_nic(principal)
        resource = (await self._service.get(principal, NODE, node))[0]
        if not any(
            asked.device == each.device and asked.queue in {None, each.queue} for each in resource.status.nic_queues
        ):
            raise NotFoundError(f"Node {node} reports no polled queue {asked.where}")
        request = NicSessionRequest(number=_NO_NUMBER, uid=resource.metadata.uid, epoch=0, nic=asked)
        session = self.board.open(request, Answerer(AnswererKind.NODE, node), principal)
        answer = b""
        async with aclosing(await self.output(session)) as frames:
            async for frame in frames:
                if frame.stream is Stream.ERROR:
                    raise StaleError(error_of(frame))
                answer += frame.payload if frame.stream is Stream.STDOUT else b""
                if len(answer) > _MOST_ANSWER_BYTES:
                    raise InvalidError(f"node {node} answers with more than {_MOST_ANSWER_BYTES} bytes")
        try:
            return msgspec.json.decode(answer, type=NicModeAnswer)
        except MALFORMED as error:
            raise InvalidError(f"node {node} gives no valid answer: {error}") from None

    def session_of(self, principal: Principal, number: str) -> Session:
        """Return a command that this principal started; raise NotFoundError for others' as well."""
        return self.board.of_owner(principal, number)

    async def output(self, session: Session) -> AsyncGenerator[Frame, None]:
        """Return the frames of a session up to its end, once its answerer has begun.

        Raise ApiError if it fails before; later errors arrive as a frame.
        """
        if session.is_read:
            raise StaleError("another client already reads this session's output")
        session.is_read = True
        try:
            first = await session.output.get(2 * self.board.limits.answer_s)
            if first is not None and first.stream is Stream.ERROR:
                raise StaleError(error_of(first))
        except ApiError as error:
            self.board.close(session, error)
            raise
        return self._frames(session, first)

    async def _frames(self, session: Session, frame: Frame | None) -> AsyncGenerator[Frame, None]:
        try:
            while frame is not None:
                yield frame
                if frame.is_last:
                    return
                frame = await session.output.get(self.board.limits.keep_alive_s)
                self._note_idle(session, frame)
        except ApiError as error:
            yield error_frame(str(error))
        finally:
            self.board.close(session, GoneError("the client has disconnected"))

    async def take_input(self, principal: Principal, number: str, body: AsyncIterator[bytes]) -> None:
        """Pass input on to a command; only one client at a time may write it."""
        session = self.session_of(principal, number)
        takes_input = isinstance(session.request, PodSessionRequest) and session.request.stdin
        if session.is_fed or not takes_input:
            raise StaleError(
                "another client already writes this session's input" if session.is_fed else "it does not accept input"
            )
        session.is_fed = True
        try:
            async for frame in _frames_of(body, _INPUT):
                if frame.stream is not Stream.KEEP_ALIVE:
                    await session.input.put(frame)
                    session.said_ns = self.board.now_ns()
        finally:
            session.is_fed = False

    async def requests(self, principal: Principal, answerer: Answerer) -> AsyncGenerator[SessionRequest | None, None]:
        """Return the sessions for a node or centre to answer from now on, None at intervals."""
        access.check_sessions(principal, answerer.role, answerer.name)
        await self._service.get(principal, _ANSWERERS[answerer.kind], answerer.name)
        return self.board.requests(answerer)

    async def take_output(
        self, principal: Principal, answerer: Answerer, number: str, body: AsyncIterator[bytes]
    ) -> None:
        """Pass an answer on to the requester; raise the ApiError that ended the session."""
        session = await self._session_of_answerer(principal, answerer, number)
        if session.is_answered:
            raise StaleError("this session is already being answered")
        session.is_answered = True
        try:
            await self._pass_on(session, body)
        except ApiError as error:
            session.output.break_off(error)
            raise
        except BaseException:
            session.output.break_off(UnavailableError(f"the connection to {answerer} has ended"))
            raise
        finally:
            session.input.end()

    async def _pass_on(self, session: Session, body: AsyncIterator[bytes]) -> None:
        has_begun = False
        async for frame in _frames_of(body, _OUTPUT):
            if frame.stream is not Stream.KEEP_ALIVE:
                session.said_ns = self.board.now_ns()
            elif has_begun:
                continue
            has_begun = True
            await session.output.put(frame)
            if frame.is_last:
                session.output.end()
                return
        raise UnavailableError(f"{session.answerer} ended the session prematurely")

    async def input_of(self, principal: Principal, node: str, number: str) -> AsyncGenerator[Frame, None]:
        """Return a command's input for its node as its user writes it, until the session ends."""
        session = await self._session_of_answerer(principal, Answerer(AnswererKind.NODE, node), number)
        if session.has_input:
            raise StaleError("another client already reads this session's input")
        session.has_input = True
        return self._input(session)

    async def _input(self, session: Session) -> AsyncGenerator[Frame, None]:
        yield KEEP_ALIVE
        try:
            while (frame := await session.input.get(self.board.limits.keep_alive_s)) is not None:
                yield frame
        except ApiError as error:
            yield error_frame(str(error))

    async def _session_of_answerer(self, principal: Principal, answerer: Answerer, number: str) -> Session:
        """Return a session that is still this node's or centre's to answer; raise NotFoundError, StaleError."""
        access.check_sessions(principal, answerer.role, answerer.name)
        session = self.board.of_answerer(answerer, number)
        problem = await self._problem_of(session.request, answerer)
        if problem:
            error = StaleError(problem)
            self.board.close(session, error)
            raise error
        return session

    async def _problem_of(self, request: SessionRequest, answerer: Answerer) -> str:
        """Return why a pod or task has left its answerer since the request, empty if it has not."""
        current: tuple[str, str | None, int] | None = None
        problem = ""
        with suppress(NotFoundError):
            if isinstance(request, PodSessionRequest):
                problem = f"Pod {request.pod} is no longer on {answerer}"
                pod = (await self._service.get(LOCAL, POD, request.pod))[0]
                current = (pod.metadata.uid, pod.status.node, pod.status.epoch)
            elif isinstance(request, NicSessionRequest):
                problem = f"Node {answerer.name} is another one by now"
                node = (await self._service.get(LOCAL, NODE, answerer.name))[0]
                current = (node.metadata.uid, answerer.name, 0)
            elif isinstance(request, TaskSessionRequest):
                problem = f"Task {request.task} has left {answerer}, or was dispatched again"
                task = (await self._service.get(LOCAL, TASK, request.task))[0]
                current = (task.metadata.uid, task.status.centre, task.status.epoch)
        return "" if current == (request.uid, answerer.name, request.epoch) else problem

    def _note_idle(self, session: Session, frame: Frame | None) -> None:
        """End a session that has been idle for too long."""
        idle_s = self.board.limits.idle_s
        is_idle = self.board.now_ns() - session.said_ns > idle_s * NS_PER_S
        if is_idle and frame is not None and frame.stream is Stream.KEEP_ALIVE:
            raise GoneError(f"this session was idle for {idle_s:g} s")


async def _frames_of(body: AsyncIterator[bytes], accepted: tuple[Stream, ...]) -> AsyncGenerator[Frame, None]:
    """Yield the frames of a body; raise InvalidError for unexpected or incomplete frames."""
    decoder = FrameDecoder()
    async for data in body:
        for frame in decoder.feed(data):
            if frame.stream is not Stream.KEEP_ALIVE and frame.stream not in accepted:
                raise InvalidError(f"frames of stream {frame.stream.name} are not accepted here")
            yield frame
    if not decoder.is_whole:
        raise InvalidError("the body ends within a frame")


def _request(
    kind: SessionKind,
    pod: Pod,
    container: str | None,
    **asked: object,
) -> PodSessionRequest:
    names = [item.name for item in pod.spec.containers]
    name = pod.metadata.name
    if container is None and len(names) > 1:
        raise InvalidError(f"Pod {name} has several containers, name one: {', '.join(names)}")
    if container is not None and container not in names:
        raise NotFoundError(f"Pod {name} has no container {container}; it has {', '.join(names)}")
    fields = {
        "number": _NO_NUMBER,
        "kind": kind,
        "pod": name,
        "uid": pod.metadata.uid,
        "epoch": pod.status.epoch,
        "container": container or names[0],
    }
    return PodSessionRequest(**fields, **asked)  # type: ignore[arg-type]


def _centre_of(task: Task) -> Answerer:
    """Return the centre that runs or ran a task; raise StaleError."""
    name, status = task.metadata.name, task.status
    if task.spec.asks:
        raise StaleError(f"Task {name} only asks which units could run it: it has no output")
    if status.centre is None:
        reason = "; ".join(status.reasons[:1])
        why = f": {reason}" if reason else ""
        raise StaleError(f"Task {name} is at no centre: it is {status.phase.value}{why}")
    return Answerer(AnswererKind.CENTRE, status.centre)


def _node_of(pod: Pod) -> Answerer:
    """Return the node that a pod is on; raise StaleError."""
    if pod.status.node is None:
        reason = "; ".join(pod.status.reasons[:1])
        why = f": {reason}" if reason else ""
        raise StaleError(f"Pod {pod.metadata.name} is on no node: it is {pod.status.phase.value}{why}")
    return Answerer(AnswererKind.NODE, pod.status.node)
