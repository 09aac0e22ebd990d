"""Metrics of a long-running fabric: its own counters, and those of all its switches, labelled by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dataplane.fabric.live.values import FabricCounters
from dataplane.switch.counters import SwitchFigures
from dataplane.switch.metrics import port_families

_REPORTS: Final = ("forwarded", "refused", "ignored", "forged")
_PACKETS: Final = ("sent", "refused", "skipped", "received")


class FabricCollector(Collector):
    """Prometheus collector of a fabric whose switches are read by `read`, callable from any thread."""

    def __init__(self, counters: FabricCounters, read: Callable[[], Mapping[str | None, SwitchFigures]]) -> None:
        self._counters, self._read_switches = counters, read

    def collect(self) -> Iterator[Metric]:
        """Yield the current families."""
        return fabric_families(self._counters, self._read_switches())


def fabric_families(counters: FabricCounters, switches: Mapping[str | None, SwitchFigures]) -> Iterator[Metric]:
    """Yield the families of a fabric and of its switches by name; one that has counted nothing yet may be missing."""
    yield GaugeMetricFamily("millrace_fabric_switches", "Switches of the topology.", value=counters.switches)
    restarts = "Restarts of switches that ended unexpectedly."
    yield CounterMetricFamily("millrace_fabric_switch_restarts", restarts, value=counters.restarts)
    pace = counters.pace
    yield CounterMetricFamily("millrace_fabric_events", "Events of virtual time.", value=pace.events)
    late = "Events that ran more than 20 ms late."
    yield CounterMetricFamily("millrace_fabric_late_events", late, value=pace.late_events)
    about = "Reports that arrived at the collector's host, by what became of them."
    yield _by_outcome("reports", about, {name: getattr(counters.reports, name) for name in _REPORTS})
    about = "Packets of the hosts' own traffic, by what became of them."
    yield _by_outcome("packets", about, {name: getattr(counters.traffic, name) for name in _PACKETS})
    yield from port_families(switches)


def _by_outcome(name: str, about: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(f"millrace_fabric_{name}", about, labels=["outcome"])
    for outcome, count in counts.items():
        family.add_metric([outcome], count)
    return family
