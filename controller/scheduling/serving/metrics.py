"""Prometheus metrics of a scheduler."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.scheduling.serving.learning_metrics import learning_metrics


class Metrics:
    """Counters in their own registry; `now_ns` is the wall clock used in decisions."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.now_ns = now_ns
        self.registry = CollectorRegistry()
        self.decisions = Counter(
            "millrace_scheduler_decisions", "Decided pods, by outcome.", ["outcome"], registry=self.registry
        )
        self.conflicts = Counter(
            "millrace_scheduler_conflicts",
            "Bindings refused as outdated and decided again.",
            registry=self.registry,
        )
        self.failures = Counter(
            "millrace_scheduler_failures", "Decisions that could not be made or written.", registry=self.registry
        )
        self.waiting = Gauge("millrace_scheduler_waiting", "Waiting pods and groups.", registry=self.registry)
        self.seconds = Histogram(
            "millrace_scheduler_decision_seconds",
            "Time from the beginning of a decision until it is written.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=self.registry,
        )
        self.learning = learning_metrics(self.registry)
