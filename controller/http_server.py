"""HTTP by uvicorn: sockets of our own, deadlines for slow requests and slow readers, an orderly end."""

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
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from dataplane.rpc.addresses import is_plain, is_unix, unavailable
from dataplane.rpc.own_folder import is_own_peer

# What it has to say of requests is said by the gate, in one line.
logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)

_BACKLOG: Final = 1024
CERTIFICATE: Final = "millrace.certificate"
"""Where a request's scope has the certificate (DER) that TLS has verified of whoever asks; None without one."""
ABORT: Final = "millrace.abort"
"""Where a request's scope has the function that ends its connection at once, whatever it still has to send."""
GRACE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """What a connection may take.

    header_bytes: the largest head of a request. head_s: its head, and TLS's handshake, take no longer. send_s: a reader
    that takes nothing of an answer for so long is disconnected. idle_s: a connection without a request is closed after
    so long. connections: at a time; more are answered with 503.
    """

    header_bytes: int
    head_s: float
    send_s: float
    idle_s: float
    connections: int


def listening_socket(address: str, purpose: str, error: Callable[[str], Exception]) -> socket.socket:
    """Return a socket that listens; a UNIX socket is its user's alone.

    Raise `error`, its line beginning with `purpose` ("cannot serve ..."), for an address that cannot be had.
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
    """Have `listening_socket` for as long as the context lasts; a UNIX socket's file goes with it."""
    found = listening_socket(address, purpose, error)
    try:
        yield found
    finally:
        found.close()
        if is_unix(address):
            Path(_path(address)).unlink(missing_ok=True)


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
    """Return the address that is served, with the port where 0 was asked for."""
    return asked if is_unix(asked) else f"{asked.rpartition(':')[0]}:{listening.getsockname()[1]}"


def protocol_of(
    limits: HttpLimits, on_slow: Callable[[], None], on_open: Callable[[int], None]
) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol with a deadline for the head of each request, also the first one of a connection.

    `on_open` gets how many connections are open, with each new one.
    """

    class Guarded(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - uvicorn's
            super().__init__(*arguments, **named)
            inner = self.app

            async def with_abort(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI's
                scope[ABORT] = self.transport.abort
                scope[CERTIFICATE] = _certificate_of(self.transport)
                await inner(scope, receive, send)

            self.app = with_abort

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            on_open(len(self.connections))
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
            super().connection_lost(exc)

        def _arm(self) -> None:
            self._deadline = self.loop.call_later(limits.head_s, self._too_slow)

        def _disarm(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _too_slow(self) -> None:
            on_slow()
            self.transport.abort()

    return Guarded


def _certificate_of(transport: asyncio.Transport) -> bytes | None:
    found = transport.get_extra_info("ssl_object")
    shown: bytes | None = None if found is None else found.getpeercert(binary_form=True)
    return shown


def _end_strangers(transport: asyncio.Transport) -> None:
    """End another user's connection to a UNIX socket, whatever became of its mode."""
    found = transport.get_extra_info("socket")
    if found.family == socket.AF_UNIX and not is_own_peer(found):
        transport.abort()


class HttpServer:
    """Serves an ASGI application on one socket, between `start` and `stop`, by uvicorn's protocol."""

    def __init__(
        self,
        application: Any,  # noqa: ANN401 - ASGI
        listening: socket.socket,
        limits: HttpLimits,
        context: ssl.SSLContext | None,
        *,
        on_slow: Callable[[], None],
        on_full: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_slow` is called for each request that takes too long to come, `on_full` for connections refused."""

        def opened(count: int) -> None:
            if count >= limits.connections:
                on_full()  # uvicorn answers its requests with 503

        self._config = uvicorn.Config(
            application,
            http=protocol_of(limits, on_slow, opened),
            ws="none",
            interface="asgi3",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            limit_concurrency=limits.connections,
            timeout_keep_alive=max(1, round(limits.idle_s)),
            h11_max_incomplete_event_size=limits.header_bytes,
        )
        self._config.load()
        self._state = ServerState()
        self._listening, self._context, self._head_s = listening, context, limits.head_s
        self._server: asyncio.Server | None = None

    @property
    def connections(self) -> int:
        """Connections that are open."""
        return len(self._state.connections)

    async def start(self) -> None:
        """Listen, with a deadline for TLS's first words as well."""
        self._server = await asyncio.get_running_loop().create_server(
            self._protocol,
            sock=self._listening,
            ssl=self._context,
            backlog=_BACKLOG,
            ssl_handshake_timeout=None if self._context is None else self._head_s,
        )

    async def stop(self) -> None:
        """Take no more connections, let answers that are being made end within `GRACE_S`, close all."""
        if self._server is None:
            return
        self._server.close()
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

    def _protocol(self) -> asyncio.Protocol:
        found: Any = self._config.http_protocol_class
        protocol: asyncio.Protocol = found(config=self._config, server_state=self._state, app_state={})
        return protocol


def _path(address: str) -> str:
    return address.removeprefix("unix:").removeprefix("//")


def _unix(address: str) -> socket.socket:
    path = _path(address)
    found = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)
    try:
        Path(path).unlink(missing_ok=True)
        found.bind(path)
        found.listen(_BACKLOG)
    except BaseException:
        found.close()
        raise
    finally:
        os.umask(mask)
    return found


def _tcp(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    family, kind, protocol, _, place = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)[0]
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(place)
        found.listen(_BACKLOG)
    except BaseException:
        found.close()
        raise
    return found
