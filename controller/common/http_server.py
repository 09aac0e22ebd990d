"""HTTP by uvicorn: with our own sockets, deadlines for slow requests and slow readers, and an orderly shutdown.

Connections are counted from their first packet on, TLS's handshake included (controller/common/http_connections.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from controller.common.http_connections import Connection, ConnectionBook, ConnectionLimits
from dataplane.rpc.addresses import is_plain, is_unix, unavailable
from dataplane.rpc.own_folder import is_own_peer

# The gate logs requests, in one line each.
logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

_BACKLOG: Final = 1024
_ACCEPTED_AT_ONCE: Final = 16
"""Connections accepted in one turn of the event loop: a burst of a thousand does not delay others."""
CERTIFICATE: Final = "millrace.certificate"
"""Key in a request's scope of the caller's certificate (DER) as verified by TLS; None without one."""
ABORT: Final = "millrace.abort"
"""Key in a request's scope of the function that ends its connection at once, even with data still to send."""
ADMIT: Final = "millrace.admit"
"""Key in a request's scope of the function that assigns its connection to an owner: `admit(owner, is_user=...)`.

It returns why the connection is refused, else None.
"""
GRACE_S: Final = 2.0
_LEAST_STRANGERS: Final = 64
"""Connections with an incomplete request head that a small server accepts: they come in bursts, read one turn later."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits of connections.

    header_bytes: the largest head of a request. head_s: timeout of a request's head and of the TLS handshake. send_s: a
    reader that takes nothing of an answer for this long is disconnected. idle_s: a connection without a request is
    closed after this long. connections: the most at a time; more are answered with 503.
    """

    header_bytes: int
    head_s: float
    send_s: float
    idle_s: float
    connections: int


def listening_socket(address: str, purpose: str, error: Callable[[str], Exception]) -> socket.socket:
    """Return a listening socket; only its user can connect to a UNIX socket.

    Raise `error`, its line beginning with `purpose` ("cannot serve ..."), for an unusable address.
    """
    problem = unavailable(address) or ("plain: is for gRPC services" if is_plain(address) else None)
    if problem is not None:
        raise error(f"{purpose} at {address}: {problem}")
    try:
        return _unix(address) if is_unix(address) else _tcp(address)
    except OSError as cause:
        raise error(f"{purpose} at {address}: {cause.strerror or cause}") from None


@contextlib.contextmanager
def listening_at(address: str, purpose: str, error: Callable[[str], Exception]) -> Iterator[socket.socket]:
    """Provide `listening_socket` for the duration of the context; a UNIX socket's file is removed at the end."""
    listening = listening_socket(address, purpose, error)
    path = Path(_path(address)) if is_unix(address) else None
    ours = None if path is None else path.lstat()
    try:
        yield listening
    finally:
        listening.close()
        # Another server may have replaced it meanwhile: of a pair, the one that is active now.
        if path is not None and ours is not None:
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(path.lstat(), ours):
                    path.unlink()


async def send_in_time(
    scope: dict[str, Any],
    send: Callable[[Any], Any],
    message: dict[str, Any],
    send_s: float,
    on_slow: Callable[[], None],
) -> None:
    """Send a part of an answer; end the connection of a reader that takes nothing of it for `send_s`."""
    try:
        async with asyncio.timeout(send_s):
            await send(message)
    except TimeoutError:
        on_slow()
        scope[ABORT]()  # the application sees the end of the connection


def address_of(asked: str, listening: socket.socket) -> str:
    """Return the address being served, with the actual port in place of 0."""
    return asked if is_unix(asked) else f"{asked.rpartition(':')[0]}:{listening.getsockname()[1]}"


class _Guarded(H11Protocol):
    """Uvicorn's protocol with a deadline for the head of each request, including a connection's first one.

    If the application does not identify callers, a connection is admitted with its first complete head.
    """

    server_of: HttpServer
    connection: Connection | None = None
    _deadline: asyncio.TimerHandle | None = None

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - uvicorn's
        super().__init__(*arguments, **named)
        self._inner = self.app
        self.app = self._serve

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
        scope[ABORT] = self.transport.abort
        scope[CERTIFICATE] = _certificate_of(self.transport)
        scope[ADMIT] = self._admit
        if not self.server_of.knows_callers and self._admit(_host_of(self.transport), is_user=False) is not None:
            self.server_of.on_full()
            await service_unavailable(scope, receive, send)
            return
        await self._inner(scope, receive, send)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.connection is None:
            self.connection = self.server_of.book.open(_host_of(transport), transport.abort)
        self.connection.close = transport.abort
        _end_strangers(transport)
        self._arm()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._disarm()
        elif self._deadline is None and self.timeout_keep_alive_task is None:
            self._arm()

    def connection_lost(self, exc: Exception | None) -> None:
        self._disarm()
        if self.connection is not None:
            self.server_of.book.forget(self.connection)
        super().connection_lost(exc)

    def _admit(self, owner: str, *, is_user: bool) -> str | None:
        if self.connection is None or self.transport.is_closing():
            return None  # the connection is gone: no answer can be sent
        return self.server_of.book.admit(self.connection, owner, is_user=is_user)

    def _arm(self) -> None:
        self._deadline = self.loop.call_later(self.server_of.limits.head_s, self._too_slow)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        self.server_of.on_slow()
        self.transport.abort()


class _Early(asyncio.Protocol):
    """Keeps data that TLS delivers with the end of its handshake, for the next protocol."""

    def __init__(self) -> None:
        self.data, self.is_lost = b"", False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's
        self.is_lost = True


class _Arriving(asyncio.Protocol):
    """A connection until its TLS handshake is complete: asyncio does not report one that never completes it."""

    def __init__(self, server: HttpServer, context: ssl.SSLContext) -> None:
        self._server, self._context = server, context
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        connection = self._server.book.open(_host_of(transport), transport.abort)
        self._task = asyncio.get_running_loop().create_task(self._shake_hands(transport, connection))
        self._server.arriving.add(self._task)
        self._task.add_done_callback(self._server.arriving.discard)

    async def _shake_hands(self, transport: asyncio.Transport, connection: Connection) -> None:
        early, upgraded = _Early(), None
        try:
            upgraded = await asyncio.get_running_loop().start_tls(
                transport,
                early,
                self._context,
                server_side=True,
                ssl_handshake_timeout=self._server.limits.head_s,
            )
        except OSError:  # not TLS, too slow, or gone
            pass
        finally:
            if upgraded is None or early.is_lost:
                self._server.book.forget(connection)
                transport.abort()
        if upgraded is None or early.is_lost:
            return
        protocol: Any = self._server.new_protocol()
        protocol.connection = connection
        upgraded.set_protocol(protocol)
        protocol.connection_made(upgraded)
        if early.data:
            protocol.data_received(early.data)


def _host_of(transport: asyncio.Transport) -> str:
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _certificate_of(transport: asyncio.Transport) -> bytes | None:
    tls = transport.get_extra_info("ssl_object")
    shown: bytes | None = None if tls is None else tls.getpeercert(binary_form=True)
    return shown


def _end_strangers(transport: asyncio.Transport) -> None:
    """End another user's connection to a UNIX socket, whatever the socket's mode is."""
    peer = transport.get_extra_info("socket")
    if peer.family == socket.AF_UNIX and not is_own_peer(peer):
        transport.abort()


class HttpServer:
    """Serves an ASGI application on one socket, between `start` and `stop`, by uvicorn's protocol.

    An application that identifies callers assigns connections to them by `ADMIT`, and answers those for which there is
    no room; its servers share a `book`. Without one, connections beyond the limit are answered with 503.
    """

    def __init__(
        self,
        application: Any,  # noqa: ANN401 - ASGI
        listening: socket.socket,
        limits: HttpLimits,
        context: ssl.SSLContext | None,
        *,
        on_slow: Callable[[], None],
        on_full: Callable[[], None] = lambda: None,
        book: ConnectionBook | None = None,
    ) -> None:
        """`on_slow` is called for each request that takes too long to arrive, `on_full` for each that is refused."""
        strangers = max(_LEAST_STRANGERS, limits.connections)
        book_limits = ConnectionLimits(limits.connections, limits.connections, strangers, strangers)
        self.book = ConnectionBook(book_limits) if book is None else book
        self.limits, self.on_slow, self.on_full, self.knows_callers = limits, on_slow, on_full, book is not None
        self.arriving: set[asyncio.Task[None]] = set()
        """Handshakes in progress."""
        self._config = uvicorn.Config(
            application,
            http=type("_Served", (_Guarded,), {"server_of": self}),
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=max(1, round(limits.idle_s)),
            h11_max_incomplete_event_size=limits.header_bytes,
        )
        self._config.load()
        self._state = ServerState()
        self._listening, self._context = listening, context
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        """Listen, with a deadline for the TLS handshake as well."""
        self._server = await asyncio.get_running_loop().create_server(
            self._arriving, sock=self._listening, backlog=_ACCEPTED_AT_ONCE
        )
        self._listening.listen(_BACKLOG)  # asyncio accepts a whole backlog per turn

    async def stop(self) -> None:
        """Stop accepting connections, let pending answers finish within `GRACE_S`, then close all."""
        if self._server is None:
            return
        self._server.close()
        for task in self.arriving:
            task.cancel()
        for connection in list(self._state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GRACE_S):
                while self._state.tasks:
                    await asyncio.wait(self._state.tasks)
        for task in self._state.tasks:
            task.cancel()
        for connection in list(self._state.connections):
            if isinstance(connection, H11Protocol):
                connection.transport.abort()

    def new_protocol(self) -> asyncio.Protocol:
        """Return the protocol for a new connection."""
        protocol_class: Any = self._config.http_protocol_class
        protocol: asyncio.Protocol = protocol_class(config=self._config, server_state=self._state, app_state={})
        return protocol

    def _arriving(self) -> asyncio.Protocol:
        return self.new_protocol() if self._context is None else _Arriving(self, self._context)


def _path(address: str) -> str:
    return address.removeprefix("unix:").removeprefix("//")


def _unix(address: str) -> socket.socket:
    path = _path(address)
    listening = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        Path(path).unlink(missing_ok=True)
        listening.bind(path)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    finally:
        os.umask(mask)
    return listening


def _tcp(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    family, kind, protocol, _, sockaddr = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(sockaddr)
        listening.listen(_BACKLOG)
    except BaseException:
        listening.close()
        raise
    return listening
