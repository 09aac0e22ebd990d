"""Logs and commands for principals: checks rights, finds the pod's node, relays frames between the two sides."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final

from controller.apiserver import access
from controller.apiserver.resources import Pod
from controller.apiserver.resources.node import NODE
from controller.apiserver.resources.pod import POD
from controller.apiserver.service import Service
from controller.apiserver.sessions.board import Session, SessionBoard
from controller.apiserver.sessions.frames import KEEP_ALIVE, Frame, FrameDecoder, Stream, error_frame, error_of
from controller.apiserver.sessions.values import ExecRequest, SessionKind, SessionRequest
from controller.common.errors import ApiError, GoneError, InvalidError, NotFoundError, StaleError, UnavailableError
from dataplane.clock import NS_PER_S
from dataplane.rpc.access import Principal
from dataplane.rpc.access.values import LOCAL

_OUTPUT: Final = (Stream.STDOUT, Stream.STDERR, Stream.EXIT, Stream.ERROR)
_INPUT: Final = (Stream.STDIN, Stream.RESIZE, Stream.END_OF_INPUT)
_NO_NUMBER: Final = "0" * 16


class SessionService:
    """See the module; `body` is a request's body as it arrives."""

    def __init__(self, service: Service, board: SessionBoard) -> None:
        self._service, self.board = service, board

    async def open_log(
        self, principal: Principal, pod: str, container: str | None, *, follow: bool, tail: int | None
    ) -> Session:
        """Ask a pod's node for a container's log; raise StaleError for a pod on no node."""
        access.check_logs(principal)
        resource = (await self._service.get(principal, POD, pod))[0]
        request = _request(SessionKind.LOGS, resource, container, follow=follow, tail=tail)
        return self.board.open(request, _node_of(resource), principal)

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

    def session_of(self, principal: Principal, number: str) -> Session:
        """Return a command that this principal started; raise NotFoundError for others' as well."""
        return self.board.of_owner(principal, number)

    async def output(self, session: Session) -> AsyncGenerator[Frame, None]:
        """Return the frames of a session up to its end, once its node has begun to answer.

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
        if session.is_fed or not session.request.stdin:
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

    async def requests(self, principal: Principal, node: str) -> AsyncGenerator[SessionRequest | None, None]:
        """Return the sessions for a node to answer from now on, None at intervals."""
        access.check_sessions(principal, node)
        await self._service.get(principal, NODE, node)
        return self.board.requests(node)

    async def take_output(self, principal: Principal, node: str, number: str, body: AsyncIterator[bytes]) -> None:
        """Pass a node's answer on to the requester; raise the ApiError that ended the session."""
        session = await self._session_of_node(principal, node, number)
        if session.is_answered:
            raise StaleError("this session is already being answered")
        session.is_answered = True
        try:
            await self._pass_on(session, body)
        except ApiError as error:
            session.output.break_off(error)
            raise
        except BaseException:
            session.output.break_off(UnavailableError(f"the connection to node {node} has ended"))
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
        raise UnavailableError(f"node {session.node} ended the session prematurely")

    async def input_of(self, principal: Principal, node: str, number: str) -> AsyncGenerator[Frame, None]:
        """Return a command's input as its user writes it, until the session ends."""
        session = await self._session_of_node(principal, node, number)
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

    async def _session_of_node(self, principal: Principal, node: str, number: str) -> Session:
        """Return a session of a pod that is still on the node; raise NotFoundError, StaleError."""
        access.check_sessions(principal, node)
        session = self.board.of_node(node, number)
        request = session.request
        try:
            pod = (await self._service.get(LOCAL, POD, request.pod))[0]
            is_there = (pod.metadata.uid, pod.status.node, pod.status.epoch) == (request.uid, node, request.epoch)
        except NotFoundError:
            is_there = False
        if not is_there:
            error = StaleError(f"Pod {request.pod} is no longer on node {node}")
            self.board.close(session, error)
            raise error
        return session

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
) -> SessionRequest:
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
    return SessionRequest(**fields, **asked)  # type: ignore[arg-type]


def _node_of(pod: Pod) -> str:
    """Return the node that a pod is on; raise StaleError."""
    if pod.status.node is None:
        reason = "; ".join(pod.status.reasons[:1])
        why = f": {reason}" if reason else ""
        raise StaleError(f"Pod {pod.metadata.name} is on no node: it is {pod.status.phase.value}{why}")
    return pod.status.node
