"""Prometheus metrics of the task scheduler."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class TaskMetrics:
    """Counters in the scheduler's registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.dispatched = Counter(
            "millrace_scheduler_tasks_dispatched", "Dispatched tasks, by sort.", ["sort"], registry=registry
        )
        self.conflicts = Counter(
            "millrace_scheduler_task_conflicts", "Writes refused as outdated and decided again.", registry=registry
        )
        self.failures = Counter(
            "millrace_scheduler_task_failures", "Decisions that could not be made or written.", registry=registry
        )
        self.silent = Counter(
            "millrace_scheduler_tasks_of_silent_centres", "Tasks taken from silent centres.", registry=registry
        )
        self.waiting = Gauge("millrace_scheduler_tasks_waiting", "Waiting tasks, including probes.", registry=registry)
        self.seconds = Histogram(
            "millrace_scheduler_task_round_seconds",
            "Duration of a round over all waiting tasks.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
            registry=registry,
        )
