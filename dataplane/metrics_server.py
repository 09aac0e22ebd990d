"""Metrics over HTTP, for Prometheus: one thread per connection, limited in number and duration."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack, ExitStack, suppress
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from dataplane.errors import MillraceError
from dataplane.rpc.addresses import is_loopback, is_plain, target_of

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication

LOGGER = logging.getLogger("millrace.metrics")

_PATIENCE_S: Final = 10.0
"""Maximum wait of a scrape for its turn; Prometheus gives up after as long."""
_LOOK_S: Final = 0.2
_LAST_PORT: Final = 65_535
_FAILED: Final = "a scrape failed: %s: %s"
_FULL: Final = (
    b"HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b"
)


@dataclass(frozen=True, slots=True)
class MetricsLimits:
    """Limits for scrapers."""

    connections: int = 16
    """Concurrent connections; more are answered with 503."""
    silent_s: float = 5.0
    """A connection without traffic for this long is closed."""
    whole_s: float = 30.0
    """Maximum duration of a connection, however slow it is."""


class MetricsPlace(Protocol):
    """Address in a daemon's settings for its metrics."""

    @property
    def address(self) -> str:
        """The local address."""
        ...

    @property
    def port(self) -> int:
        """The TCP port, 0 for any free one."""
        ...


class MetricsServer:
    """Serves a registry at http://address:port/metrics until it is closed; raises OSError.

    There is no encryption and no authentication: an address other than loopback must say so, `plain:ADDRESS`.
    """

    def __init__(
        self, registry: CollectorRegistry, address: str, port: int, limits: MetricsLimits | None = None
    ) -> None:
        if not is_plain(address) and not is_loopback(f"{address}:{port}"):
            raise OSError(errno.EACCES, f"it is not loopback; to let everyone read it, write plain:{address}")
        if not 0 <= port <= _LAST_PORT:
            raise OSError(errno.EINVAL, f"ports are numbers from 0 to {_LAST_PORT}")
        address = target_of(address)
        family, _, _, _, socket_address = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        self._server = _Server(family, socket_address, limits or MetricsLimits())
        self._server.set_app(_in_one_line(make_wsgi_app(registry)))
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK_S,), name="millrace-metrics", daemon=True
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """Return the actual TCP port, even if 0 was requested."""
        return int(self._server.server_port)

    def close(self) -> None:
        """Stop serving; waits for the server's thread."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Handler(WSGIRequestHandler):
    """One request of one connection."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Log nothing: scrapes are too frequent."""


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def __init__(self, family: socket.AddressFamily, address: Any, limits: MetricsLimits) -> None:  # noqa: ANN401
        self.limits = limits
        self.address_family = family
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address[:2], _Handler)

    def server_bind(self) -> None:
        """Bind without looking up the host's name."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - socketserver's types
        """Serve a connection in a thread, unless there are too many."""
        request.settimeout(self.limits.silent_s)
        most = self.limits.connections
        with self._lock:
            is_one_too_many = len(self._since) >= most
            if not is_one_too_many:
                self._since[request] = time.monotonic()
        if is_one_too_many:
            line = b"%d connections are open, the most at a time\n" % most
            with suppress(OSError):
                request.setblocking(False)
                request.send(_FULL % (len(line), line))
            super().shutdown_request(request)
            return
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401
        """Release a connection that has ended."""
        with self._lock:
            self._since.pop(request, None)
        super().shutdown_request(request)

    def service_actions(self) -> None:
        """End connections that have taken too long: their threads see end of file."""
        latest = time.monotonic() - self.limits.whole_s
        with self._lock:
            late = [request for request, since in self._since.items() if since < latest]
            for request in late:
                with suppress(OSError):
                    request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401, ARG002
        """Log an error in one line, unless a client has gone or was too slow."""
        error = sys.exception()
        if not isinstance(error, OSError):
            LOGGER.error(_FAILED, type(error).__name__, error)


def _in_one_line(application: WSGIApplication) -> WSGIApplication:
    """Return an application that logs failures in one line and answers 500, where wsgiref prints a traceback."""

    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        try:
            return application(environ, start_response)
        except Exception as error:  # noqa: BLE001 - anything a registry's collectors raise
            LOGGER.error(_FAILED, type(error).__name__, error)  # noqa: TRY400 - a line
            start_response("500 Internal Server Error", [("Content-Type", "text/plain")])
            return [b"the figures cannot be read: the log says why\n"]

    return answer


class LoopCollector(Collector):
    """Metric families read in the thread of an event loop, which owns their state.

    Construct it inside that running loop. A scrape that gets no turn for 10 s fails.
    """

    def __init__(self, read: Callable[[], Iterable[Metric]]) -> None:
        self._read_families, self._loop = read, asyncio.get_running_loop()

    def collect(self) -> list[Metric]:
        """Return the families; prometheus_client calls it in a scrape's thread."""
        return asyncio.run_coroutine_threadsafe(self._read(), self._loop).result(_PATIENCE_S)

    async def _read(self) -> list[Metric]:
        return list(self._read_families())


def registry_of(read: Callable[[], Iterable[Metric]]) -> CollectorRegistry:
    """Return a registry of families that are read in the running event loop, and of the process."""
    return registry_with(LoopCollector(read))


def registry_with(collector: Collector) -> CollectorRegistry:
    """Return a registry of a collector, which scrapes call on threads of their own, and of the process."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


def serve_metrics(
    registry: CollectorRegistry,
    endpoint: MetricsPlace | None,
    stack: AsyncExitStack | ExitStack,
    failure: type[MillraceError],
) -> str:
    """Serve a daemon's metrics until `stack` ends; return the end of its ready line, empty if not configured.

    Raises `failure` with one line if nothing can listen there.
    """
    if endpoint is None:
        return ""
    try:
        server = MetricsServer(registry, endpoint.address, endpoint.port)
    except OSError as error:
        raise failure(f"metrics at {endpoint.address}:{endpoint.port}: {error.strerror or error}") from None
    stack.callback(server.close)
    return f", metrics at http://{target_of(endpoint.address)}:{server.port}/metrics"
