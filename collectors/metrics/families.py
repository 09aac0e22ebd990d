"""A collector's state as Prometheus metrics: millrace_* in seconds, ratios and, as bps, bits per second.

https://prometheus.io/docs/practices/naming. Labels are bounded by the topology, the rules and the counters that the
code names: links, nodes and rules have their own series, flows are only summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.figures import DeclaredFigure
from collectors.metrics.jobs import job_metrics
from collectors.values import LINK_FIGURES, CollectorStatus, Event, LinkState, PathState, ReporterState, Snapshot
from dataplane.load.metrics import load_families
from dataplane.topology.values import Topology

_NS: Final = 1e-9
_PPB: Final = 1e-9
OTHER_NODE: Final = "other"
"""The label of all nodes that the topology lacks: a sender of reports could make up any number of them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One scrape's view of a collector."""

    snapshot: Snapshot
    status: CollectorStatus
    open_events: tuple[Event, ...] = ()
    rules: tuple[str, ...] = ()


_STATISTICS: Final = {
    "delay_seconds": "Delay from arrival at a link's tail to arrival at its head, over the collector's window."
}
"""Help of the gauges whose figures differ in the label `statistic`."""
_REPORTS: Final = (
    ("reports_received", "Reports received from a node.", "received"),
    ("reports_late", "Reports received after a later one.", "late"),
    ("reports_duplicate", "Reports received twice.", "duplicate"),
    ("reports_contested", "Reports whose sequence number another report had already used.", "contested"),
    ("node_restarts", "Restarts of a node, detected from its reports' sequence numbers.", "restarts"),
)


class StateCollector(Collector):
    """Collects what `read` returns at the time of each scrape."""

    def __init__(self, topology: Topology, read: Callable[[], Reading]) -> None:
        self._names = {node.node_id: node.name for node in topology.switches}
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Return all metrics as they are now."""
        reading = self._read()
        snapshot = reading.snapshot
        links = list(snapshot.links.values())
        yield from _of_links(links)
        yield _sources(links)
        yield from _flows(list(snapshot.paths.values()))
        yield from self._reports(list(snapshot.reporters.values()))
        yield from self._clocks(snapshot)
        yield from job_metrics(snapshot.jobs.values())
        yield from _events(reading)
        yield _counters(reading.status)
        yield from load_families("collector", reading.status.load)

    def _reports(self, reporters: Sequence[ReporterState]) -> Iterator[Metric]:
        for name, text, attribute in _REPORTS:
            family = CounterMetricFamily(f"millrace_{name}", text, labels=("node",))
            yield _filled(family, self._by_node(reporters, attribute))
        lost = GaugeMetricFamily("millrace_reports_lost", "Reports missing so far.", labels=("node",))
        yield _filled(lost, self._by_node(reporters, "lost"))

    def _by_node(self, reporters: Iterable[ReporterState], attribute: str) -> Counter[tuple[str, ...]]:
        totals: Counter[tuple[str, ...]] = Counter()
        for state in reporters:
            totals[(self._names.get(state.node_id, OTHER_NODE),)] += getattr(state, attribute)
        return totals

    def _clocks(self, snapshot: Snapshot) -> Iterator[Metric]:
        offset = _gauge("clock_offset_seconds", "A clock's reading, minus its group's reference.", "node", "group")
        drift = _gauge("clock_drift_ratio", "How fast the offset grows.", "node", "group")
        bound = _gauge("clock_uncertainty_seconds", "Uncertainty of the offset.", "node", "group")
        for state in snapshot.clocks.values():
            if state.node_id in self._names:
                labels = (self._names[state.node_id], self._names.get(state.group, OTHER_NODE))
                offset.add_metric(labels, state.offset_ns * _NS)
                drift.add_metric(labels, state.drift_ppb * _PPB)
                bound.add_metric(labels, state.uncertainty_ns * _NS)
        yield from (offset, drift, bound)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"millrace_{name}", text, labels=labels)


def _of_links(links: Sequence[LinkState]) -> Iterator[Metric]:
    """Yield a gauge for each metric of `LINK_FIGURES`; a link has no value where the figure is None."""
    families: dict[str, GaugeMetricFamily] = {}
    for figure in LINK_FIGURES.values():
        name, statistic = figure.uses.metric, figure.uses.statistic
        if not name:
            continue
        labels, read = (statistic,) if statistic else (), attrgetter(figure.name)
        if name not in families:
            text = _STATISTICS[name] if statistic else _help(figure)
            families[name] = _gauge(f"link_{name}", text, "src", "dst", *(("statistic",) if statistic else ()))
        scale = _NS if figure.name.endswith("_ns") else 1
        for link in links:
            value = read(link)
            if value is not None:
                families[name].add_metric((link.link.src, link.link.dst, *labels), value * scale)
    yield from families.values()


def _help(figure: DeclaredFigure) -> str:
    meaning = figure.uses.meaning
    return f"{meaning[0].upper()}{meaning[1:]}{'; absent while unknown' if figure.is_optional else ''}."


def _sources(links: Iterable[LinkState]) -> Metric:
    family = _gauge("link_delay_source", "1 for the source of a link's delay.", "src", "dst", "source")
    for link in links:
        family.add_metric((link.link.src, link.link.dst, link.source), 1)
    return family


def _flows(paths: Sequence[PathState]) -> Iterator[Metric]:
    count = _gauge("flows", "Flows measured recently.")
    count.add_metric((), len(paths))
    rate = _gauge("flows_rate_bps", "Total rate of all flows of known rate.")
    rate.add_metric((), sum(path.rate_bps or 0 for path in paths))
    slowest = _gauge("flows_delay_seconds", "Mean delay of flows: average and maximum.", "statistic")
    delays = [path.delay_ns * _NS for path in paths]
    if delays:
        slowest.add_metric(("mean",), sum(delays) / len(delays))
        slowest.add_metric(("max",), max(delays))
    yield from (count, rate, slowest)


def _events(reading: Reading) -> Iterator[Metric]:
    family = _gauge("events_open", "Events that a rule has raised and not cleared.", "rule")
    counts = Counter(event.rule for event in reading.open_events)
    for rule in reading.rules:
        family.add_metric((rule,), counts[rule])
    yield family


def _counters(status: CollectorStatus) -> Metric:
    family = CounterMetricFamily(
        "millrace_collector_counts", "Counters of the collector, by name.", labels=("counter",)
    )
    for name, count in status.counters.items():
        family.add_metric((name,), count)
    return family


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[tuple[str, ...], int]
) -> CounterMetricFamily | GaugeMetricFamily:
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family
