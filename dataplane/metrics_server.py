"""Metrics over HTTP, for Prometheus."""

from __future__ import annotations

from contextlib import AsyncExitStack
from types import TracebackType
from typing import Protocol

from prometheus_client import CollectorRegistry, start_http_server

from dataplane.errors import MillraceError


class MetricsPlace(Protocol):
    """Where a daemon's settings want its metrics to be."""

    @property
    def address(self) -> str:
        """The local address."""
        ...

    @property
    def port(self) -> int:
        """The TCP port, 0 for any that is free."""
        ...


class MetricsServer:
    """Serves a registry at http://address:port/metrics until it is closed; raises OSError."""

    def __init__(self, registry: CollectorRegistry, address: str, port: int) -> None:
        self._server, self._thread = start_http_server(port, address, registry)

    @property
    def port(self) -> int:
        """Return the TCP port, also where 0 asked for any."""
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


def serve_metrics(
    registry: CollectorRegistry, place: MetricsPlace | None, stack: AsyncExitStack, failure: type[MillraceError]
) -> str:
    """Serve a daemon's metrics until `stack` ends; return where, as the end of its ready line, empty without a place.

    Raise `failure` of one line where nothing can listen there.
    """
    if place is None:
        return ""
    try:
        server = MetricsServer(registry, place.address, place.port)
    except OSError as error:
        raise failure(f"metrics at {place.address}:{place.port}: {error.strerror or error}") from None
    stack.callback(server.close)
    return f", metrics at http://{place.address}:{server.port}/metrics"
