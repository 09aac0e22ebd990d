"""Prometheus metrics of learning policies, read at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.scheduling.framework.lessons import Learns

_PREFIX = "millrace_scheduler_learning"


class LearningMetrics(Collector):
    """Figures of learning policies, by profile and subject: pods or tasks."""

    def __init__(self) -> None:
        self._asked: dict[str, Callable[[], Mapping[str, Learns]]] = {}

    def ask(self, of: str, learners: Callable[[], Mapping[str, Learns]]) -> None:
        """Read the policies that a function returns."""
        self._asked[of] = learners

    def collect(self) -> Iterator[Metric]:
        """Yield the current figures."""
        labels = ("of", "profile")
        counters = {
            name: CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=(*labels, *more))
            for name, text, more in (
                ("decisions", "Decisions in force, by chooser.", ("by",)),
                ("unanswered", "Decisions not made by the network's highest value, by reason.", ("reason",)),
                ("compared", "Decisions with a choice and with the network's values.", ()),
                ("agreed", "Compared decisions that took the network's first choice.", ()),
                ("regret", "Shortfall of the other compared decisions, by the network's values.", ()),
                ("experiences", "Experiences, by outcome.", ("outcome",)),
                ("training", "Counters of training, by name.", ("count",)),
            )
        }
        gauges = {
            name: GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
            for name, text in (
                ("version", "Version of the deciding weights; 0 is untrained."),
                ("shadow", "1 if the other scores decide."),
                ("waiting", "Decisions whose outcome is not known yet."),
                ("loss", "Mean loss of the newest training step."),
                ("error", "Mean error of the newest training step."),
                ("unsaved", "1 if the last save of learned state failed."),
            )
        }
        for of, learners in self._asked.items():
            for profile, learner in learners().items():
                self._add(counters, gauges, (of, profile), learner)
        yield from counters.values()
        yield from gauges.values()

    @staticmethod
    def _add(
        counters: Mapping[str, CounterMetricFamily],
        gauges: Mapping[str, GaugeMetricFamily],
        labels: tuple[str, str],
        learner: Learns,
    ) -> None:
        standing = learner.standing
        counts = {name: figure for name, figure in standing.training.items() if name not in gauges}
        for name, by in (
            ("decisions", standing.decisions),
            ("unanswered", standing.unanswered),
            ("experiences", standing.experiences),
            ("training", counts),
        ):
            for label, figure in by.items():
                counters[name].add_metric((*labels, label), figure)
        for name in ("compared", "agreed", "regret"):
            counters[name].add_metric(labels, getattr(standing, name))
        figures = {
            "version": standing.version,
            "shadow": standing.is_shadow,
            "waiting": standing.waiting,
            "loss": standing.training.get("loss", 0.0),
            "error": standing.training.get("error", 0.0),
            "unsaved": standing.training.get("unsaved", 0.0),
        }
        for name, figure in figures.items():
            gauges[name].add_metric(labels, float(figure))


def learning_metrics(registry: CollectorRegistry) -> LearningMetrics:
    """Return the figures of learning policies, registered."""
    metrics = LearningMetrics()
    registry.register(metrics)
    return metrics
