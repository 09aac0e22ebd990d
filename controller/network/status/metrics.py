"""A controller's state as families of metrics; the number of series is bounded by the topology."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from controller.common.standby.metrics import standby_families
from controller.network.status.values import ControllerStatus
from dataplane.load.metrics import load_families


def families(status: ControllerStatus) -> Iterator[Metric]:
    """Yield what Prometheus scrapes of a controller."""
    right = GaugeMetricFamily(
        "millrace_controller_switch_right", "1: the switch holds the desired entries.", labels=["switch"]
    )
    for name in status.live:
        right.add_metric([name], 1)
    for problem in status.problems:
        right.add_metric([problem.switch], 0)
    yield right
    yield GaugeMetricFamily("millrace_controller_switches", "Switches of the topology.", value=status.switches)
    yield GaugeMetricFamily(
        "millrace_controller_settled", "1: every switch holds the desired entries.", value=status.settled
    )
    yield GaugeMetricFamily(
        "millrace_controller_pending_entries",
        "Path entries still to be written or removed.",
        value=status.pending_entries,
    )
    if status.wanted_version is not None:
        yield GaugeMetricFamily(
            "millrace_controller_routes_version", "Version of the desired route set.", value=status.wanted_version
        )
    yield GaugeMetricFamily(
        "millrace_controller_routes_ended", "1: the route feed ended.", value=status.source_problem is not None
    )
    yield CounterMetricFamily(
        "millrace_controller_rejected_route_sets", "Rejected route sets.", value=status.rejected_route_sets
    )
    yield CounterMetricFamily("millrace_controller_writes", "Updates that took effect.", value=status.writes)
    yield from load_families("controller", status.load)
    yield from standby_families("controller", status.standby)
