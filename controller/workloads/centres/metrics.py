"""Prometheus metrics of a centre's agent."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from controller.apiserver.resources.centre import UnitType
from controller.apiserver.resources.task import TASK_ENDED
from controller.workloads.centres.deciding import Cause
from controller.workloads.centres.engines.base import JobPhase, JobState
from dataplane.clock import NS_PER_S


class JobKind(StrEnum):
    """Purpose of a job."""

    TASK = "task"
    PROBE = "probe"
    TRIAL = "trial"
    """Our own job, which tests which kernels run here."""


class Failure(StrEnum):
    """Failed operation that is retried."""

    REPORT = "report"
    """The centre's status was not written in time."""
    API = "api"
    """Another request to the API server."""
    ENGINE = "engine"
    """The engine failed, or did not answer."""


class Drop(StrEnum):
    """Item dropped for good."""

    COMPLETION = "completion"
    """The end of a task that was dispatched again meanwhile, or is gone."""
    RESULT = "result"
    """Results of a probe that the API server rejected: the probe has failed."""
    STEP = "step"
    """A step for a task that had changed meanwhile: it is decided again."""
    NOTE = "note"
    """A line for people, from a report that has too many."""
    OUTPUT = "output"
    """The output of an ended job, which could not be kept."""


@dataclass(frozen=True, slots=True)
class _Standing:
    """Current state; replaced as a whole, as another thread reads it."""

    units: tuple[UnitType, ...]
    held: tuple[tuple[str, int], ...]
    jobs: tuple[tuple[tuple[str, str], int], ...]


class Metrics(Collector):
    """Counters and current state, in a separate registry; `now_ns` is a monotonic clock."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.is_ready = False
        """True while tasks may come."""
        self._now_ns = now_ns
        self._standing: _Standing | None = None
        self._reported_ns: int | None = None
        self.registry = CollectorRegistry()
        kinds = (JobKind.TASK, JobKind.PROBE)
        ways, causes = product(kinds, TASK_ENDED), product(kinds, Cause)
        self.begun = self._counter("jobs_begun", "Jobs that the engine has accepted.", ("kind",), product(kinds))
        self.ended = self._counter("tasks_ended", "Tasks reported as ended.", ("kind", "phase"), ways)
        says = "Tasks refused, or left without a job, by reason."
        self.given_back = self._counter("tasks_given_back", says, ("kind", "cause"), causes)
        self.failures = self._counter("failures", "Failures, which are retried.", ("of",), product(Failure))
        self.drops = self._counter("drops", "Items dropped for good.", ("what",), product(Drop))
        self.registry.register(self)

    def reported(self) -> None:
        """Note that a report was acknowledged just now."""
        self._reported_ns = self._now_ns()

    def is_away(self) -> None:
        """Note that the engine does not report its resources."""
        self._standing = None

    def stands(self, units: Collection[UnitType], jobs: Collection[JobState], trials: Collection[str]) -> None:
        """Replace the current state; `trials` are the names of our own pseudo-tasks."""
        held, number = Counts[str](), Counts[tuple[str, str]]()
        for job in jobs:
            number[kind_of(job, trials), job.phase] += 1
            if job.phase is JobPhase.RUNNING and job.unit is not None:
                held[job.unit] += job.units
        self._standing = _Standing(tuple(units), tuple(held.items()), tuple(number.items()))

    def collect(self) -> Iterator[Metric]:
        """Yield the current state for a scrape; unknown values are absent."""
        now, reported_ns = self._standing, self._reported_ns
        yield GaugeMetricFamily("millrace_centre_ready", "1 while tasks may come.", float(self.is_ready))
        if now is not None:
            yield _units(now)
            yield _jobs(now)
        age = GaugeMetricFamily("millrace_centre_report_age_seconds", "Time since the last acknowledged report.")
        if reported_ns is not None:
            age.add_metric((), (self._now_ns() - reported_ns) / NS_PER_S)
        yield age

    def describe(self) -> Iterable[Metric]:
        """Describe nothing before the first scrape."""
        return ()

    def _counter(self, name: str, says: str, labels: tuple[str, ...], values: Iterable[tuple[str, ...]]) -> Counter:
        """Return a counter that starts with all values of its labels, at 0."""
        counter = Counter(f"millrace_centre_{name}", says, labels, registry=self.registry)
        for each in values:
            counter.labels(*each)
        return counter


def _units(now: _Standing) -> Metric:
    family = GaugeMetricFamily("millrace_centre_units", "Units by holder.", labels=("unit", "state"))
    held = dict(now.held)
    for unit in now.units:
        own = min(held.get(unit.name, 0), unit.for_tasks)
        parts = {"held": own, "free": unit.for_tasks - own, "others": unit.count - unit.for_tasks}
        for state, count in parts.items():
            family.add_metric((unit.name, state), count)
    return family


def _jobs(now: _Standing) -> Metric:
    family = GaugeMetricFamily("millrace_centre_jobs", "Jobs that the engine knows.", labels=("kind", "phase"))
    number = dict(now.jobs)
    for kind, phase in product(JobKind, JobPhase):
        family.add_metric((kind, phase), number.get((kind, phase), 0))
    return family


def kind_of(job: JobState, trials: Collection[str]) -> JobKind:
    """Return the purpose of a job."""
    if job.mark.task in trials:
        return JobKind.TRIAL
    return JobKind.PROBE if job.mark.is_probe else JobKind.TASK
