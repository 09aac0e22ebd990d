"""Overload monitor of the API server, with advice on settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final

from controller.apiserver.server.audit import AuditLog
from controller.apiserver.server.metrics import Metrics
from controller.apiserver.service import Service
from controller.apiserver.sessions.board import SessionBoard
from controller.apiserver.settings import ApiLimits
from controller.apiserver.storage import Storage
from dataplane.load.monitor import LoadMonitor
from dataplane.load.values import QueueLoad

_RELIEF: Final = (
    "watch less (fewer schedulers, controllers and `--watch` commands), list in pages, or give the API server a faster"
    " core: it uses one"
)
SHED: Final = {
    "connections refused": "raise limits.connections, or find the clients that keep connections open",
    "watches refused": "raise limits.watches, or find the clients that open so many",
    "watches too slow": "raise limits.watch_events: clients that read too slowly must list again",
    "sessions refused": "raise limits.sessions or limits.sessions_of_one",
    "slow readers": "connections that read nothing of an answer for limits.send are closed",
    "slow requests": "requests that take longer than limits.head or limits.body to arrive are dropped",
    "requests over the rate": "raise limits.requests_per_s, or limits.user_requests_per_s for users, or find the"
    " frequent callers in the audit log",
    "audit records lost": "the audit log cannot be written: make room, or set audit.file to another disk",
}
"""Kinds of refused or lost work, and what helps."""


def monitor_of(
    service: Service,
    storage: Storage,
    limits: ApiLimits,
    *,
    metrics: Metrics,
    audit: AuditLog,
    sessions: SessionBoard,
    connections: Callable[[], int],
    log: logging.Logger,
) -> LoadMonitor:
    """Return a monitor of an API server's process; `connections` returns the number of open ones."""
    monitor = LoadMonitor(log, loop_advice=_RELIEF)

    def refused() -> Mapping[str, int]:
        return {
            "connections refused": metrics.refused_connections,
            "watches refused": service.watches.refused + metrics.refused_watches,
            "watches too slow": service.watches.too_slow,
            "sessions refused": sessions.refused,
            "slow readers": metrics.slow_readers,
            "slow requests": metrics.slow_requests,
            "requests over the rate": metrics.over_rate,
            "audit records lost": audit.failed,
        }

    monitor.watch_queue(
        lambda: QueueLoad("connections", connections(), limits.connections), SHED["connections refused"]
    )
    monitor.watch_queue(lambda: QueueLoad("watches", service.watches.open, limits.watches), SHED["watches refused"])
    monitor.watch_queue(
        lambda: QueueLoad("storage requests", storage.waiting, storage.most_waiting),
        "give the storage a faster disk: each write waits for it",
    )
    monitor.watch_counters(refused, SHED)
    return monitor
