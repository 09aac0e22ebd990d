"""A server of frames: a thread for each connection, of which only a bounded number exists.

Callers are the user of a UNIX socket, or show a certificate with a role that has access. Until a caller has
authenticated it costs one of few places, for a few seconds.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Final, Protocol

from msgspec import Meta

from controller.memory.connections import ClosedError, listening_socket, receive_frame, send_frame, server_context_of
from controller.memory.errors import HostDownError, MemoryPoolError
from controller.memory.frames import Frame, Status, status_of
from dataplane.clock import NS_PER_S
from dataplane.closing import Closing
from dataplane.config import Settings
from dataplane.errors import AccessError, MillraceError
from dataplane.rpc.access.names import principal_of_der
from dataplane.rpc.access.settings import TlsSettings
from dataplane.rpc.access.values import LOCAL, Principal, Role
from dataplane.rpc.addresses import is_unix
from dataplane.rpc.peers import refusal_of_peer

LOGGER: Final = logging.getLogger("millrace.memory")
MAY_ALL: Final = (Role.SERVICE, Role.ADMIN)
_MAY_CALL: Final = (*MAY_ALL, Role.NODE)
_AGAIN_S: Final = 0.1
_Ns = Annotated[int, Meta(ge=1_000_000, le=3_600_000_000_000)]
_Number = Annotated[int, Meta(ge=1, le=4096)]


class FrameLimits(Settings, frozen=True):
    """Limits on callers."""

    connections: _Number = 256
    """Concurrent connections; more are closed on arrival."""
    connections_per_address: _Number = 64
    """Concurrent connections per address."""
    unauthenticated: _Number = 16
    """Concurrent connections that have not authenticated."""
    handshake_ns: _Ns = 5_000_000_000
    """Time to authenticate."""
    frame_ns: _Ns = 10_000_000_000
    """Time for the rest of a frame once it has begun, and for an answer to be taken."""
    idle_ns: _Ns = 600_000_000_000
    """A connection without a request is closed after this time."""


class Conversation(Protocol):
    """Requests of one connection."""

    def answer(self, frame: Frame) -> Frame:
        """Return the answer to a request; raise MemoryPoolError for one that tells of a failure."""
        ...

    def close(self) -> None:
        """Note the end of the connection."""
        ...


class FrameServer(Closing):
    """Serves from construction until it is closed; `converse` returns the conversation with a caller."""

    def __init__(
        self, address: str, tls: TlsSettings | None, limits: FrameLimits, converse: Callable[[Principal], Conversation]
    ) -> None:
        """Raise ConfigError for an address that cannot be listened on, AccessError for unusable certificates."""
        self._address, self._limits, self._converse = address, limits, converse
        self._context = server_context_of(tls)
        self._lock = threading.Lock()
        self._open: dict[socket.socket, str] = {}
        self._threads: set[threading.Thread] = set()
        self._waiting = 0
        self.counts: Counter[str] = Counter()
        """Connections refused or failed, by reason."""
        self._is_closed = False
        self._listening = listening_socket(address, tls)
        self._acceptor = threading.Thread(target=self._accept, name="memory-accept", daemon=True)
        self._acceptor.start()

    @property
    def address(self) -> str:
        """The address listened on, with the port that the kernel picked for port 0."""
        if is_unix(self._address):
            return self._address
        host, port = self._listening.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Stop listening and end all connections."""
        with self._lock:
            self._is_closed = True
            connections = list(self._open)
        for connection in (self._listening, *connections):
            with suppress(OSError):  # the other side may have ended it
                connection.shutdown(socket.SHUT_RDWR)
        self._acceptor.join()
        self._listening.close()
        # What they answer from is closed next.
        for thread in list(self._threads):
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                connection, peer = self._listening.accept()
            except OSError:
                if self._is_closed:
                    return
                time.sleep(_AGAIN_S)  # out of descriptors: connections that end free some
                continue
            source = str(peer[0]) if isinstance(peer, tuple) else "unix"
            if (problem := self._taken(connection, source)) is not None:
                self.counts[problem] += 1
                connection.close()
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="memory-caller", daemon=True)
            with self._lock:
                self._threads.add(thread)
            thread.start()

    def _taken(self, connection: socket.socket, source: str) -> str | None:
        """Count a new connection; return why it is refused instead, None if it is not."""
        with self._lock:
            if self._is_closed:
                return "closed"
            if len(self._open) >= self._limits.connections:
                return "too many connections"
            # One user's own UNIX socket is not divided further.
            if source != "unix" and list(self._open.values()).count(source) >= self._limits.connections_per_address:
                return "too many connections of an address"
            if self._waiting >= self._limits.unauthenticated:
                return "too many unauthenticated connections"
            self._open[connection] = source
            self._waiting += 1
        return None

    def _serve(self, plain: socket.socket) -> None:
        connection, conversation = plain, None
        try:
            try:
                connection, caller = self._authenticated(plain)
            finally:
                with self._lock:
                    self._waiting -= 1
            conversation = self._converse(caller)
            while True:
                self._answer(connection, conversation)
        except ClosedError:
            pass
        except (OSError, MillraceError) as error:
            self.counts[type(error).__name__] += 1
            LOGGER.debug("a connection ends: %s", error)
        finally:
            with self._lock:
                self._open.pop(plain, None)
                self._open.pop(connection, None)
                self._threads.discard(threading.current_thread())
            if conversation is not None:
                conversation.close()
            connection.close()

    def _authenticated(self, plain: socket.socket) -> tuple[socket.socket, Principal]:
        plain.settimeout(self._limits.handshake_ns / NS_PER_S)
        if plain.family == socket.AF_UNIX:
            if (problem := refusal_of_peer(plain)) is not None:
                raise AccessError(problem)
            return plain, LOCAL
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert self._context is not None
        connection = self._context.wrap_socket(plain, server_side=True)
        with self._lock:
            self._open[connection] = self._open.pop(plain)
        try:
            return connection, _principal_of(connection)
        except AccessError:
            connection.close()
            raise

    def _answer(self, connection: socket.socket, conversation: Conversation) -> None:
        frame_s = self._limits.frame_ns / NS_PER_S
        frame = receive_frame(connection, idle_s=self._limits.idle_ns / NS_PER_S, frame_s=frame_s)
        try:
            answer = conversation.answer(frame)
        except HostDownError as error:
            answer = Frame(frame.kind, status=Status.UNREACHABLE, body=str(error).encode())
        except MemoryPoolError as error:
            answer = Frame(frame.kind, status=status_of(error), body=str(error).encode())
        connection.settimeout(frame_s)
        send_frame(connection, answer)


def _principal_of(connection: ssl.SSLSocket) -> Principal:
    """Return the caller by its certificate, which TLS has verified; raise AccessError for one without access."""
    principal = principal_of_der(connection.getpeercert(binary_form=True) or b"")
    if principal is None:
        raise AccessError("this certificate has no role (urn:millrace:role:...) among its names")
    if principal.role not in _MAY_CALL:
        raise AccessError(f"{principal.name} has the role {principal.role.value}, which has no access to memory")
    return principal
