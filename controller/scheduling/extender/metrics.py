"""Prometheus metrics of the extender."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.scheduling.extender.books import Books


class Metrics:
    """Counters in their own registry, and gauges of the books; `age_s` is the time since a watch's last message."""

    def __init__(self, books: Books, age_s: Callable[[str], float] | None = None) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "millrace_extender_requests", "Requests, by verb and outcome.", ["verb", "outcome"], registry=self.registry
        )
        self.seconds = Histogram(
            "millrace_extender_seconds",
            "Time from the complete body of a request to its answer.",
            ["verb"],
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
            registry=self.registry,
        )
        self.refused_nodes = Counter(
            "millrace_extender_refused_nodes", "Refused nodes, by policy.", ["policy"], registry=self.registry
        )
        self.unauthorized = Counter(
            "millrace_extender_unauthorized", "Requests without a valid token or certificate.", registry=self.registry
        )
        self.slow = Counter(
            "millrace_extender_slow_clients",
            "Connections closed because the client was too slow.",
            registry=self.registry,
        )
        counts = Gauge("millrace_extender_known", "Known nodes and pods.", ["kind"], registry=self.registry)
        counts.labels("node").set_function(lambda: len(books.nodes))
        counts.labels("pod").set_function(lambda: len(books.pods))
        problems = Gauge(
            "millrace_extender_problems", "Nodes left out, and pods only partly counted.", registry=self.registry
        )
        problems.set_function(lambda: len(books.problems))
        if age_s is not None:
            age = Gauge(
                "millrace_extender_watch_age_seconds",
                "Time since the last message of a watch.",
                ["kind"],
                registry=self.registry,
            )
            for kind in ("node", "pod"):
                age.labels(kind).set_function(partial(age_s, kind))
