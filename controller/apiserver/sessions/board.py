"""Open sessions with their requesters and answerers, which are nodes and centres; bounded in number, bytes and time."""

from __future__ import annotations

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from controller.apiserver.sessions.frames import KEEP_ALIVE, Frame
from controller.apiserver.sessions.values import Answerer, AnswererKind, SessionRequest
from controller.common.errors import ApiError, NotFoundError, TooManyError, UnavailableError
from dataplane.rpc.access import Principal


class Pipe:
    """The writer waits while `capacity` bytes are unread, frame headers included."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._frames: deque[Frame] = deque()
        self._nbytes = 0
        self._error: ApiError | None = None
        self._is_ended = False
        self._changed = asyncio.Event()

    async def put(self, frame: Frame) -> None:
        """Append a frame once there is room; raise the ApiError that broke the pipe."""
        while self._error is None and self._nbytes >= self._capacity:
            await self._change()
        if self._error is not None:
            raise self._error
        self._frames.append(frame)
        self._nbytes += _nbytes(frame)
        self._wake()

    async def get(self, keep_alive_s: float) -> Frame | None:
        """Return the next frame, a keep-alive after `keep_alive_s` without one, or None after the end.

        Raise the ApiError that broke the pipe, after all earlier frames.
        """
        try:
            async with asyncio.timeout(keep_alive_s):
                while not self._frames and self._error is None and not self._is_ended:
                    await self._change()
        except TimeoutError:
            return KEEP_ALIVE
        if self._frames:
            frame = self._frames.popleft()
            self._nbytes -= _nbytes(frame)
            self._wake()
            return frame
        if self._error is not None:
            raise self._error
        return None

    def end(self) -> None:
        """End the stream after the frames that are queued."""
        self._is_ended = True
        self._wake()

    def break_off(self, error: ApiError) -> None:
        """Break the pipe on both sides with this error; the first one counts."""
        self._error = self._error or error
        self._wake()

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _wake(self) -> None:
        self._changed.set()


def _nbytes(frame: Frame) -> int:
    return len(frame.payload) + 5


PIPE_BYTES: Final = 256 << 10
"""Unread bytes per direction of a session; beyond that the writer waits."""
MOST_OF_ANSWERER: Final = 64
_AGENTS: Final = {AnswererKind.NODE: "manager", AnswererKind.CENTRE: "agent"}


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """At most `most` sessions, `of_principal` per principal.

    An answerer must begin within `answer_s`, and the requester of a command begin to read its output within twice
    that. A session without data for `idle_s` ends, as does one whose connections are silent for `silence_s`;
    `keep_alive_s` is the server's keep-alive interval.
    """

    most: int = 256
    of_principal: int = 32
    answer_s: float = 10.0
    idle_s: float = 3600.0
    silence_s: float = 30.0
    keep_alive_s: float = 10.0


@dataclass(slots=True, eq=False)
class Session:
    """A session and its state."""

    request: SessionRequest
    answerer: Answerer
    owner: Principal
    said_ns: int
    """Time of the last data, by the board's clock."""
    error: ApiError | None = None
    """Error that ended it."""
    is_answered: bool = False
    """True once its answerer has begun."""
    is_read: bool = False
    has_input: bool = False
    """True once its answerer reads its input."""
    is_fed: bool = False
    """True while a client writes its input."""
    output: Pipe = field(default_factory=lambda: Pipe(PIPE_BYTES))
    input: Pipe = field(default_factory=lambda: Pipe(PIPE_BYTES))
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def number(self) -> str:
        """Number that identifies the session."""
        return self.request.number


class SessionBoard:
    """See the module; for one event loop. `now_ns` is monotonic."""

    def __init__(self, limits: SessionLimits, now_ns: Callable[[], int]) -> None:
        self.limits, self.now_ns = limits, now_ns
        self._sessions: dict[str, Session] = {}
        self._streams: dict[Answerer, asyncio.Event] = {}
        """By answerer, the event that wakes the connection over which it learns of sessions."""
        self._is_stopped = False
        self.opened = self.refused = self.unanswered = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: SessionRequest, answerer: Answerer, owner: Principal) -> Session:
        """Open a session with an answerer; raise TooManyError, UnavailableError if there are too many.

        The request's number is replaced by an unguessable one.
        """
        self._check_room(answerer, owner)
        number = secrets.token_urlsafe(24)
        session = Session(replace(request, number=number), answerer, owner, self.now_ns())
        self._sessions[number] = session
        self.opened += 1
        loop = asyncio.get_running_loop()
        loop.call_later(self.limits.answer_s, self._check_answered, session)
        loop.call_later(2 * self.limits.answer_s, self._check_read, session)
        self._wake(answerer)
        return session

    def of_answerer(self, answerer: Answerer, number: str) -> Session:
        """Return a session for a node or centre to answer; raise NotFoundError."""
        return self._found(number, lambda session: session.answerer == answerer)

    def of_owner(self, owner: Principal, number: str) -> Session:
        """Return a session that this principal opened; raise NotFoundError."""
        return self._found(number, lambda session: session.owner == owner)

    def close(self, session: Session, error: ApiError) -> None:
        """End a session; its reader and writer get the error."""
        if self._sessions.pop(session.number, None) is None:
            return
        session.error = error
        session.output.break_off(error)
        session.input.break_off(error)
        session.ended.set()

    async def requests(self, answerer: Answerer) -> AsyncGenerator[SessionRequest | None, None]:
        """Yield the sessions for a node or centre to answer, None at intervals; ends when it reconnects.

        Sessions that an earlier connection was given but has not begun to answer are repeated.
        """
        if answerer in self._streams:
            self._streams[answerer].set()
        mine = self._streams[answerer] = asyncio.Event()
        told: set[str] = set()
        try:
            while self._streams.get(answerer) is mine and not self._is_stopped:
                # Clear before looking: a session that opens meanwhile sets it again.
                mine.clear()
                # Forget closed sessions, or a long connection would collect their numbers.
                told &= self._sessions.keys()
                for session in self._waiting(answerer):
                    if session.number not in told:
                        told.add(session.number)
                        yield session.request
                try:
                    async with asyncio.timeout(self.limits.keep_alive_s):
                        await mine.wait()
                except TimeoutError:
                    yield None
        finally:
            if self._streams.get(answerer) is mine:
                del self._streams[answerer]

    def stop(self) -> None:
        """End all sessions and answerers' connections."""
        self._is_stopped = True
        # A copy, as closing changes the dictionary.
        for session in list(self._sessions.values()):
            self.close(session, UnavailableError("the server is stopping"))
        for answerer in list(self._streams):
            self._wake(answerer)

    def _check_room(self, answerer: Answerer, owner: Principal) -> None:
        limits, problem = self.limits, None
        if self._is_stopped:
            raise UnavailableError("the server is stopping")
        if sum(session.owner == owner for session in self._sessions.values()) >= limits.of_principal:
            problem = f"{owner.name} has reached the limit of {limits.of_principal} open sessions"
        elif sum(session.answerer == answerer for session in self._sessions.values()) >= MOST_OF_ANSWERER:
            problem = f"{answerer} has reached the limit of {MOST_OF_ANSWERER} open sessions"
        if problem is not None:
            self.refused += 1
            raise TooManyError(problem)
        if len(self) >= limits.most:
            self.refused += 1
            raise UnavailableError(f"the limit of {limits.most} open sessions is reached")

    def _found(self, number: str, is_his: Callable[[Session], bool]) -> Session:
        session = self._sessions.get(number)
        if session is None or not is_his(session):
            raise NotFoundError("there is no such session, or it has ended")
        return session

    def _waiting(self, answerer: Answerer) -> list[Session]:
        return [each for each in self._sessions.values() if each.answerer == answerer and not each.is_answered]

    def _wake(self, answerer: Answerer) -> None:
        if answerer in self._streams:
            self._streams[answerer].set()

    def _check_answered(self, session: Session) -> None:
        if session.is_answered or session.number not in self._sessions:
            return
        self.unanswered += 1
        seconds = f"{self.limits.answer_s:g} s"
        answerer = session.answerer
        self.close(
            session,
            UnavailableError(
                f"{answerer} has not answered within {seconds}"
                if answerer in self._streams
                else f"{answerer} is not connected: its {_AGENTS[answerer.kind]} is not running,"
                " or cannot reach this server"
            ),
        )

    def _check_read(self, session: Session) -> None:
        if not session.is_read:
            self.close(session, UnavailableError("no client has started to read this session's output"))
