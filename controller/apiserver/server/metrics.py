"""Metrics of the server for Prometheus; label values are bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.apiserver.resources import KINDS
from controller.apiserver.server.audit import AuditLog
from controller.apiserver.server.callers import WatchBook
from controller.apiserver.service import Service
from controller.apiserver.sessions.board import SessionBoard
from controller.common.errors import TooManyError
from controller.common.http_connections import ConnectionBook
from dataplane.load.metrics import load_families
from dataplane.load.values import NO_LOAD, DaemonLoad

_METHODS: Final = ("GET", "POST", "PUT", "DELETE")
_OTHERS: Final = ("bindings", "releases", "dispatches", "picks", "completions", "tokens", "execs", "batches")


class Metrics:
    """Counters of requests, and of what the service and the audit log count."""

    def __init__(self, service: Service, audit: AuditLog, sessions: SessionBoard) -> None:
        self.read_load: Callable[[], DaemonLoad] = lambda: NO_LOAD
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "millrace_api_requests", "Requests answered.", ("method", "what", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "millrace_api_request_seconds", "Time from a request's head to the end of its answer, without watches.",
            registry=self._registry,
        )  # fmt: skip
        self.connections: ConnectionBook | None = None
        self.user_watches: WatchBook | None = None
        self.slow_readers = self.slow_requests = self.refused_connections = self.over_rate = 0
        self._registry.register(_State(self, service, audit, sessions))

    @property
    def displaced_strangers(self) -> int:
        """Connections of strangers closed to make room."""
        return 0 if self.connections is None else self.connections.displaced

    @property
    def refused_watches(self) -> int:
        """Watches refused beyond the users' share."""
        return 0 if self.user_watches is None else self.user_watches.refused

    def note_slow_reader(self) -> None:
        """Count a connection closed because its reader stalled."""
        self.slow_readers += 1

    def note_slow_request(self) -> None:
        """Count a request whose head or body took too long."""
        self.slow_requests += 1

    def note_refused_connection(self) -> None:
        """Count a connection beyond the limit."""
        self.refused_connections += 1

    def note(self, method: str, path: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        parts = path.split("/")
        word = parts[2] if len(parts) > 2 and parts[1] == "v1" else ""
        what = word if word in _OTHERS or KINDS.of_plural(word) is not None else "other"
        self._requests.labels(method if method in _METHODS else "other", what, str(status)).inc()
        self._seconds.observe(seconds)
        self.over_rate += status == TooManyError.status

    def families(self) -> Iterable[Metric]:
        """Return all metrics; in the thread of the event loop, which owns what they count."""
        return self._registry.collect()

    def text(self) -> bytes:
        """Return all metrics in Prometheus' format."""
        return generate_latest(self._registry)


class _State(Collector):
    """Gauges read at scrape time."""

    def __init__(self, metrics: Metrics, service: Service, audit: AuditLog, sessions: SessionBoard) -> None:
        self._metrics, self._service, self._audit, self._sessions = metrics, service, audit, sessions

    def collect(self) -> Iterable[Metric]:
        """Yield the families."""
        service, cache = self._service, self._service.cache
        resources = GaugeMetricFamily("millrace_api_resources", "Resources of a kind.", labels=("kind",))
        for plural, count in cache.counts().items():
            resources.add_metric([plural], count)
        yield resources
        yield GaugeMetricFamily("millrace_api_revision", "The last revision seen.", value=cache.ring.revision)
        yield GaugeMetricFamily(
            "millrace_api_storage_up", "1: the storage answers.", value=float(not service.health.is_away)
        )
        yield GaugeMetricFamily("millrace_api_watches", "Open watches.", value=service.watches.open)
        yield GaugeMetricFamily("millrace_api_sessions", "Open sessions.", value=len(self._sessions))
        sessions, metrics = self._sessions, self._metrics
        counters = (
            (
                "millrace_api_slow_readers",
                "Connections closed because the client did not read the answer.",
                metrics.slow_readers,
            ),
            ("millrace_api_slow_requests", "Requests whose head or body took too long.", metrics.slow_requests),
            ("millrace_api_connections_refused", "Connections beyond the limit.", metrics.refused_connections),
            (
                "millrace_api_strangers_displaced",
                "Connections without a token, closed to make room for others.",
                metrics.displaced_strangers,
            ),
            ("millrace_api_requests_over_rate", "Requests beyond the rate of a principal.", metrics.over_rate),
            (
                "millrace_api_sessions_opened",
                "Logs read of pods and tasks, and commands run in containers.",
                sessions.opened,
            ),
            ("millrace_api_sessions_refused", "Sessions beyond a limit.", sessions.refused),
            (
                "millrace_api_sessions_unanswered",
                "Sessions that no node or centre answered in time.",
                sessions.unanswered,
            ),
            (
                "millrace_api_watches_too_slow",
                "Watches ended because they fell too far behind.",
                service.watches.too_slow,
            ),
            (
                "millrace_api_watches_refused",
                "Watches beyond a limit.",
                service.watches.refused + metrics.refused_watches,
            ),
            ("millrace_api_audit_records", "Records in the audit log.", self._audit.written),
            ("millrace_api_audit_gathered", "Refusals recorded in combined lines.", self._audit.gathered),
            ("millrace_api_audit_lost", "Audit records that could not be written.", self._audit.failed),
        )
        for name, text, value in counters:
            yield CounterMetricFamily(name, text, value=value)
        yield from load_families("api", metrics.read_load())
