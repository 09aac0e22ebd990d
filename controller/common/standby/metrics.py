"""The role of a daemon in a pair, as metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from controller.common.standby.values import StandbyStatus
from dataplane.clock import NS_PER_S


def standby_families(daemon: str, status: StandbyStatus | None) -> Iterator[Metric]:
    """Yield `millrace_DAEMON_standby_...` of a daemon in a pair, nothing for one that runs alone."""
    if status is None:
        return
    prefix = f"millrace_{daemon}_standby"
    yield GaugeMetricFamily(f"{prefix}_active", "1: active, 0: standing by.", value=status.is_active)
    yield GaugeMetricFamily(f"{prefix}_token", "Fencing token; 0 while standing by.", value=status.token or 0)
    since_s = 0.0 if status.since_ns is None else status.since_ns / NS_PER_S
    yield GaugeMetricFamily(f"{prefix}_since_seconds", "Active since, UTC; 0 while standing by.", value=since_s)
    yield GaugeMetricFamily(
        f"{prefix}_storage_failing", "1: the lease cannot be read or renewed.", value=bool(status.problem)
    )
    yield CounterMetricFamily(f"{prefix}_changes", "Times that this process became active.", value=status.changes)
