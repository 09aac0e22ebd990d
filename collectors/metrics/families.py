"""A collector's state as Prometheus metrics: millrace_* in seconds, ratios and, as bps, bits per second.

https://prometheus.io/docs/practices/naming. Labels are bounded by the topology, the rules and the counters that the
code names: links, nodes and rules have their own series, flows are only summed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from collectors.metrics.jobs import job_metrics
from collectors.values import CollectorStatus, Event, LinkState, PathState, ReporterState, Snapshot
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


@dataclass(frozen=True, slots=True)
class _Figure:
    """A gauge with a value for each link; none where the figure is None."""

    name: str
    help: str
    value: Callable[[LinkState], float | None]


def _seconds(time_ns: int | None) -> float | None:
    return None if time_ns is None else time_ns * _NS


_LINK: Final = (
    _Figure("rate_bps", "Rate of a directed link.", lambda link: link.rate_bps),
    _Figure("available_bps", "Rate that is not in use.", lambda link: link.available_bps),
    _Figure("utilisation_ratio", "Share of the rate that is in use.", lambda link: link.utilisation),
    _Figure("queue_frames", "Mean of what packets found waiting.", lambda link: link.queue_occupancy_frames),
    _Figure("buffer_frames", "Mean buffer of the sending switch.", lambda link: link.buffer_occupancy_frames),
    _Figure("loss_ratio", "Share of frames lost; absent while unknown.", lambda link: link.loss),
    _Figure("samples", "Delays behind the figures; 0: they are nominal.", lambda link: link.samples),
    _Figure("age_seconds", "Since the newest sample; absent before the first.", lambda link: _seconds(link.age_ns)),
    _Figure(
        "delay_uncertainty_seconds",
        "By how much a link's delays may be off together; absent while unknown.",
        lambda link: _seconds(link.delay_uncertainty_ns),
    ),
)
_DELAYS: Final[Mapping[str, Callable[[LinkState], int | None]]] = {
    "mean": lambda link: link.delay_mean_ns,
    "p50": lambda link: link.delay_p50_ns,
    "p99": lambda link: link.delay_p99_ns,
    "max": lambda link: link.delay_max_ns,
    "ewma": lambda link: link.delay_ewma_ns,
}
_REPORTS: Final = (
    ("reports_received", "Reports that came from a node.", "received"),
    ("reports_late", "Reports that came after a later one.", "late"),
    ("reports_duplicate", "Reports that came twice.", "duplicate"),
    ("reports_contested", "Reports with a number that another one came with, too.", "contested"),
    ("node_restarts", "Restarts of a node, by the numbers of its reports.", "restarts"),
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
        yield from (_of_links(figure, links) for figure in _LINK)
        yield _delays(links)
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
        lost = GaugeMetricFamily("millrace_reports_lost", "Reports that never came, so far.", labels=("node",))
        yield _filled(lost, self._by_node(reporters, "lost"))

    def _by_node(self, reporters: Iterable[ReporterState], attribute: str) -> Counter[tuple[str, ...]]:
        found: Counter[tuple[str, ...]] = Counter()
        for state in reporters:
            found[(self._names.get(state.node_id, OTHER_NODE),)] += getattr(state, attribute)
        return found

    def _clocks(self, snapshot: Snapshot) -> Iterator[Metric]:
        offset = _gauge("clock_offset_seconds", "A clock's reading, minus its group's reference.", "node", "group")
        drift = _gauge("clock_drift_ratio", "How fast the offset grows.", "node", "group")
        bound = _gauge("clock_uncertainty_seconds", "By how much the offset may be off.", "node", "group")
        for state in snapshot.clocks.values():
            if state.node_id in self._names:
                labels = (self._names[state.node_id], self._names.get(state.group, OTHER_NODE))
                offset.add_metric(labels, state.offset_ns * _NS)
                drift.add_metric(labels, state.drift_ppb * _PPB)
                bound.add_metric(labels, state.uncertainty_ns * _NS)
        yield from (offset, drift, bound)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"millrace_{name}", text, labels=labels)


def _of_links(figure: _Figure, links: Iterable[LinkState]) -> Metric:
    family = _gauge(f"link_{figure.name}", figure.help, "src", "dst")
    for link in links:
        value = figure.value(link)
        if value is not None:
            family.add_metric((link.link.src, link.link.dst), value)
    return family


def _delays(links: Iterable[LinkState]) -> Metric:
    text = "Delay from arrival at a link's tail to arrival at its head, over the collector's window."
    family = _gauge("link_delay_seconds", text, "src", "dst", "statistic")
    for link in links:
        for statistic, read in _DELAYS.items():
            delay_ns = read(link)
            if delay_ns is not None:
                family.add_metric((link.link.src, link.link.dst, statistic), delay_ns * _NS)
    return family


def _sources(links: Iterable[LinkState]) -> Metric:
    family = _gauge("link_delay_source", "1 for where a link's delay is known from.", "src", "dst", "source")
    for link in links:
        family.add_metric((link.link.src, link.link.dst, link.source), 1)
    return family


def _flows(paths: Sequence[PathState]) -> Iterator[Metric]:
    count = _gauge("flows", "Flows that were measured lately.")
    count.add_metric((), len(paths))
    rate = _gauge("flows_rate_bps", "What all flows of known rate send together.")
    rate.add_metric((), sum(path.rate_bps or 0 for path in paths))
    slowest = _gauge("flows_delay_seconds", "Mean delay of flows: their mean, and the greatest.", "statistic")
    delays = [path.delay_ns * _NS for path in paths]
    if delays:
        slowest.add_metric(("mean",), sum(delays) / len(delays))
        slowest.add_metric(("max",), max(delays))
    yield from (count, rate, slowest)


def _events(reading: Reading) -> Iterator[Metric]:
    family = _gauge("events_open", "Events that a rule has raised and not cleared.", "rule")
    found = Counter(event.rule for event in reading.open_events)
    for rule in reading.rules:
        family.add_metric((rule,), found[rule])
    yield family


def _counters(status: CollectorStatus) -> Metric:
    family = CounterMetricFamily(
        "millrace_collector_counts", "What the collector counted, by counter.", labels=("counter",)
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
