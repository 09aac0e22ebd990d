"""Metrics over HTTP, for Prometheus."""

from __future__ import annotations

from types import TracebackType

from prometheus_client import CollectorRegistry, start_http_server


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
