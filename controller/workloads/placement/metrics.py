"""Prometheus metrics of the workload controller."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Metrics:
    """Counters in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.actions = Counter(
            "millrace_placement_actions",
            "Writes that took effect, by what they do.",
            ["action"],
            registry=self.registry,
        )
        self.conflicts = Counter(
            "millrace_placement_conflicts",
            "Writes that came too late, as others wrote first: decided again.",
            registry=self.registry,
        )
        self.failures = Counter(
            "millrace_placement_failures", "Writes that failed for another reason.", registry=self.registry
        )
        self.silent = Gauge("millrace_placement_silent_nodes", "Nodes that do not report.", registry=self.registry)
        self.held = Gauge(
            "millrace_placement_held", "1 while pods of silent nodes wait, as many nodes are.", registry=self.registry
        )
        self.stuck = Gauge(
            "millrace_placement_stuck_pods", "Pods that a node which reports does not stop.", registry=self.registry
        )
        self.nodes = Gauge("millrace_placement_nodes", "Nodes that are known.", registry=self.registry)
        self.pods = Gauge("millrace_placement_pods", "Pods that are known.", registry=self.registry)
        self.groups = Gauge("millrace_placement_groups", "Groups that are known.", registry=self.registry)
        self.seconds = Histogram(
            "millrace_placement_round_seconds",
            "Time that a round of decisions takes, without its writes.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
            registry=self.registry,
        )
