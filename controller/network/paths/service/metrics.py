"""A path server's state as families of metrics."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from controller.common.standby.metrics import standby_families
from controller.network.paths.records.values import PathServerStatus
from dataplane.clock import NS_PER_S
from dataplane.load.metrics import load_families


def families(status: PathServerStatus) -> Iterator[Metric]:
    """Yield what Prometheus scrapes of a path server."""
    yield GaugeMetricFamily("millrace_paths_routes_version", "Version of the route set in force.", value=status.version)
    yield GaugeMetricFamily("millrace_paths_flows", "Managed flows.", value=status.flows)
    yield GaugeMetricFamily(
        "millrace_paths_explicit_routes", "Flows that are not on their base path.", value=status.explicit_routes
    )
    yield GaugeMetricFamily("millrace_paths_pinned_flows", "Flows that are pinned to a path.", value=status.pinned)
    yield GaugeMetricFamily(
        "millrace_paths_feed_silent",
        "1: the collector's feed is silent, decisions are suspended.",
        value=status.feed_is_silent,
    )
    if status.snapshot_age_ns is not None:
        age_s = status.snapshot_age_ns / NS_PER_S
        yield GaugeMetricFamily("millrace_paths_state_age_seconds", "Age of the network's newest state.", value=age_s)
    counts = CounterMetricFamily("millrace_paths_counts", "Events that the path server counts.", labels=["counter"])
    for name, count in sorted(status.counters.items()):
        counts.add_metric([name], count)
    yield counts
    yield from load_families("paths", status.load)
    yield from standby_families("paths", status.standby)
