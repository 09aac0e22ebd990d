"""Prometheus metrics of jobs that switches add up for; the label is `reduction`, as `job` is Prometheus' own.

Series are bounded by the switches of the topology, the jobs that the collector keeps, and their contributors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from collectors.values import ChildState, JobState

_NS: Final = 1e-9
_JOB: Final = ("reduction", "name", "node")
_CHILD: Final = (*_JOB, "child")


@dataclass(frozen=True, slots=True)
class _Figure:
    """A figure of each job; none where it is None."""

    name: str
    help: str
    value: Callable[[JobState], float | None]
    is_count: bool = False


_FIGURES: Final = (
    _Figure("items_per_second", "Items aggregated per second.", lambda job: job.items_per_s),
    _Figure("items", "Items aggregated, from their item numbers.", lambda job: job.items, is_count=True),
    _Figure("items_reported", "Items reported by the switch.", lambda job: job.reported, is_count=True),
    _Figure(
        "repeated",
        "Repeated contributions to reported items: retransmissions.",
        lambda job: job.repeated,
        is_count=True,
    ),
    _Figure(
        "cells_used", "Maximum number of cells in use at once, over the collector's window.", lambda job: job.cells_used
    ),
    _Figure("cells", "Cells of the job; absent while unknown.", lambda job: job.cells),
    _Figure("epoch", "Membership changes; absent while unknown.", lambda job: job.epoch),
    _Figure("age_seconds", "Time since the newest report.", lambda job: job.age_ns * _NS),
)
_WAITS: Final[dict[str, Callable[[JobState], int]]] = {
    "mean": lambda job: job.wait_mean_ns,
    "p50": lambda job: job.wait_p50_ns,
    "p99": lambda job: job.wait_p99_ns,
    "max": lambda job: job.wait_max_ns,
}


def job_metrics(jobs: Iterable[JobState]) -> Iterator[Metric]:
    """Yield the metrics of jobs and of their children."""
    states = list(jobs)
    yield from (_of_jobs(figure, states) for figure in _FIGURES)
    yield _waits(states)
    yield from _children([(job, child) for job in states for child in job.children])


def _labels(job: JobState) -> tuple[str, ...]:
    return str(job.key.job), job.name or "", job.key.switch


def _of_jobs(figure: _Figure, jobs: Iterable[JobState]) -> Metric:
    kind = CounterMetricFamily if figure.is_count else GaugeMetricFamily
    family = kind(f"millrace_job_{figure.name}", figure.help, labels=_JOB)
    for job in jobs:
        value = figure.value(job)
        if value is not None:
            family.add_metric(_labels(job), value)
    return family


def _waits(jobs: Iterable[JobState]) -> Metric:
    text = "From an item's first contribution to its last, over the collector's window."
    family = GaugeMetricFamily("millrace_job_wait_seconds", text, labels=(*_JOB, "statistic"))
    for job in jobs:
        for statistic, read in _WAITS.items():
            family.add_metric((*_labels(job), statistic), read(job) * _NS)
    return family


def _children(children: Iterable[tuple[JobState, ChildState]]) -> Iterator[Metric]:
    last = CounterMetricFamily(
        "millrace_job_last", "Reported items whose last contribution came from this child.", labels=_CHILD
    )
    caused = GaugeMetricFamily(
        "millrace_job_wait_caused_seconds", "Wait that a child caused, averaged over all items.", labels=_CHILD
    )
    for job, child in children:
        labels = (*_labels(job), child.key.name)
        last.add_metric(labels, child.last)
        caused.add_metric(labels, child.wait_caused_ns * _NS)
    yield from (last, caused)
