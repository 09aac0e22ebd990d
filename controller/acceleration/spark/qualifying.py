"""Decisions of the acceleration model for queries that have run, and the gain of applications."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from controller.acceleration.model import Works, times
from controller.acceleration.plans import Explained, Flip, Stated, explain, plan_of
from controller.acceleration.plans.works import CpuTimes
from controller.acceleration.spark.kinds import COMPUTED, Role
from controller.acceleration.spark.operators import Ran, ran
from controller.acceleration.spark.values import Application, Query, Stage
from controller.acceleration.values import Accelerator, Machines, Network
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator, OperatorGraph

_NETWORK: Final = Network(10.0)
"""Not used: one machine sends nothing."""
ONE: Final = Machines(_NETWORK, 1)
"""The part of one machine: rounds and shuffles of a query that ran are operators of their own."""
COMPUTES: Final = frozenset(COMPUTED.values())
_SHOWN: Final = 4
_FARTHEST: Final = 1e6
RECOMMENDED: Final = 1.3
"""Smallest gain for which devices are recommended: that of the RAPIDS qualification tool."""


class MeasuredSeconds:
    """CPU times from the seconds that operators took; unknown for what the model has no operator for."""

    def __init__(self, graph: OperatorGraph, seconds: Mapping[str, float], unknown: Mapping[str, str]) -> None:
        self._unknown = unknown
        works = plan_of(graph, 1, _OneSecond()).works
        # Times are proportional to t, so a second for 100 MB shows what t reproduces the measured time.
        unit_s = times(Works.of(works), ONE).compute_s.tolist()
        self._t = {
            work.name: seconds[work.name] / unit if unit > 0 else 0.0 for work, unit in zip(works, unit_s, strict=True)
        }

    def t_of(self, operator: Operator, /) -> Estimate:
        """Return t, CPU seconds for 100 MB of an operator's input; unknown with the reason."""
        if (reason := self._unknown.get(operator.name)) is not None:
            return Estimate.unknown(reason)
        return Estimate.exactly(self._t[operator.name], Basis.MEASURED, "from the log's seconds")


class _OneSecond:
    """Each operator takes a second for 100 MB."""

    def t_of(self, operator: Operator, /) -> Estimate:  # noqa: ARG002 - the same for all
        return Estimate.exactly(1.0, Basis.MODELLED)


@dataclass(frozen=True, slots=True)
class Settings:
    """Accelerators of every machine (M over one core of its CPU), the preset, and stated t by kind of operator.

    `notes` say where the accelerators come from, one line each.
    """

    accelerators: tuple[Accelerator, ...]
    preset: float = 1.0
    t: Mapping[str, float] | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class QualifiedQuery:
    """A query with its decisions; `explained` is None without operators. Seconds are of one machine, all its cores.

    `busy_s` is the time in which at least one of its stages ran; `saved_s` is how much of that the devices save.
    """

    ran: Ran
    explained: Explained | None
    wall_s: float | None
    busy_s: float
    machine_s: float
    saved_machine_s: float
    saved_s: float

    @property
    def gain(self) -> float | None:
        """The query's time over that with the devices, None if the log ends before the query."""
        return _gain(self.wall_s, self.saved_s)


@dataclass(frozen=True, slots=True)
class Qualified:
    """An application with its queries; `gain` is its time over that with the devices, None if its time is unknown."""

    application: Application
    queries: tuple[QualifiedQuery, ...]
    wall_s: float | None
    saved_s: float
    reasons: tuple[str, ...]

    @property
    def gain(self) -> float | None:
        """The application's time over that with the devices."""
        return _gain(self.wall_s, self.saved_s)

    @property
    def is_gaining(self) -> bool:
        """True if devices are recommended."""
        return self.gain is not None and self.gain >= RECOMMENDED


def _gain(wall_s: float | None, saved_s: float) -> float | None:
    """Return a time over what is left of it, at most a million: a device may need no time by the model."""
    return wall_s / max(wall_s - saved_s, wall_s * 1e-6) if wall_s else None


def qualify(application: Application, settings: Settings) -> Qualified:
    """Return the decisions for each query of an application that ran tasks, and what they gain.

    Raise AccelerationError as `explain` does.
    """
    cores = max(application.cores / application.machines, 1.0)
    accelerators = tuple(_beside(accelerator, cores) for accelerator in settings.accelerators)
    queries = tuple(
        _qualified(query, application, cores, replace(settings, accelerators=accelerators))
        for query in application.queries
        if query.stages
    )
    busy_s = _busy_s([stage for query in application.queries for stage in query.stages])
    apart_s = sum(query.busy_s for query in queries)
    # Queries at the same time save the same seconds only once.
    saved_s = sum(query.saved_s for query in queries) * (min(busy_s / apart_s, 1.0) if apart_s else 0.0)
    wall_s = _wall_s(application)
    saved_s = saved_s if wall_s is None else min(saved_s, wall_s)
    qualified = Qualified(application, queries, wall_s, saved_s, ())
    return replace(qualified, reasons=tuple(_reasons(qualified, settings)))


def _beside(accelerator: Accelerator, cores: float) -> Accelerator:
    """Return an accelerator relative to a machine of so many cores; without a list it runs only what computes."""
    return replace(
        accelerator,
        parallelism=accelerator.parallelism / cores,
        speed_up=tuple((kind, factor / cores) for kind, factor in accelerator.speed_up),
        runs=COMPUTES if accelerator.runs is None else accelerator.runs,
    )


def _qualified(query: Query, application: Application, cores: float, settings: Settings) -> QualifiedQuery:
    of_query = ran(query, application.machines)
    slots = application.machines * cores
    explained = _explained(of_query, slots, settings) if of_query.operators else None
    saved = max(explained.cpu_s - explained.placed_s, 0.0) if explained else 0.0
    machine_s, busy_s = query.run_s / slots, _busy_s(query.stages)
    wall_s = max(query.end_ms - query.start_ms, 0) / 1e3 if query.end_ms is not None else None
    share = min(saved / machine_s, 1.0) if machine_s else 0.0
    within_s = busy_s if wall_s is None else min(busy_s, wall_s)
    return QualifiedQuery(of_query, explained, wall_s, busy_s, machine_s, saved, within_s * share)


def _explained(of_query: Ran, slots: float, settings: Settings) -> Explained:
    seconds = {operator.name: operator.seconds / slots for operator in of_query.operators}
    unknown = {
        operator.name: f"{operator.spark_name}: the model has no such operator"
        for operator in of_query.operators
        if operator.role is Role.UNKNOWN
    }
    measured: CpuTimes = MeasuredSeconds(of_query.graph, seconds, unknown)
    if settings.t:
        measured = Stated(settings.t, measured)
    explained = explain(plan_of(of_query.graph, 1, measured), ONE, settings.accelerators, preset=settings.preset)
    operators = tuple(replace(one, flips=tuple(_meaningful(flip) for flip in one.flips)) for one in explained.operators)
    return replace(explained, operators=operators)


def _meaningful(flip: Flip) -> Flip:
    """Return a break-even; beyond any figure that is met, roundings decide about it, so that there is none."""
    is_met = flip.factor is not None and 1 / _FARTHEST < flip.factor < _FARTHEST
    return flip if is_met else replace(flip, value=None, factor=None)


def _wall_s(application: Application) -> float | None:
    """Return an application's time; of a log that ends in the middle until its last stage's end."""
    if application.start_ms is None:
        return None
    stages = [*application.others, *(stage for query in application.queries for stage in query.stages)]
    end_ms = application.end_ms or max((stage.end_ms for stage in stages if stage.end_ms), default=None)
    return None if end_ms is None else max(end_ms - application.start_ms, 0) / 1e3


def _busy_s(stages: Sequence[Stage]) -> float:
    """Return the seconds in which at least one of some stages ran."""
    spans = sorted((stage.start_ms, stage.end_ms) for stage in stages if stage.start_ms and stage.end_ms)
    busy, until = 0, 0
    for start, end in spans:
        busy += max(end - max(start, until), 0)
        until = max(until, end)
    return busy / 1e3


def _reasons(qualified: Qualified, settings: Settings) -> list[str]:
    """Return why an application does not gain more, the greatest reason first; shares are of all its task seconds."""
    total_s = qualified.application.run_s
    if not total_s:
        return ["no task ended"]
    if not qualified.queries:
        return ["no query of SQL: only operators of SQL are known"]
    if not settings.accelerators:
        return ["no machine has an accelerator"]
    shares = _shares(qualified)
    wall_s, busy_s = qualified.wall_s, sum(query.busy_s for query in qualified.queries)
    texts = [
        f"{100 * seconds / total_s:.0f}% {what}"
        for what, seconds in sorted(shares.items(), key=lambda pair: -pair[1])
        if seconds >= 0.005 * total_s
    ]
    reasons = [f"of {total_s:.4g} s of tasks {', '.join(texts)}"] if texts else []
    if wall_s and busy_s < 0.9 * wall_s:
        reasons.append(f"no query has tasks for {100 * (1 - busy_s / wall_s):.0f}% of its {wall_s:.4g} s")
    return reasons


def _shares(qualified: Qualified) -> dict[str, float]:
    shares: dict[str, float] = {}

    def add(what: str, seconds: float) -> None:
        shares[what] = shares.get(what, 0.0) + seconds

    unknown: dict[str, float] = {}
    for query in qualified.queries:
        devices = _devices(query)
        for operator in query.ran.operators:
            if devices.get(operator.name, "cpu") != "cpu":
                add(f"on the {devices[operator.name]}", operator.seconds)
            elif operator.role is Role.UNKNOWN:
                unknown[operator.spark_name] = unknown.get(operator.spark_name, 0.0) + operator.seconds
            else:
                add(_ON_CPU[operator.role], operator.seconds)
        failed_s = min(sum(stage.failed_s for stage in query.ran.query.stages), sum(query.ran.rest_s))
        add("in failed tasks", failed_s)
        add("in no operator (waiting, starting tasks)", sum(query.ran.rest_s) - failed_s)
    if unknown:
        names = sorted(unknown, key=lambda name: -unknown[name])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        add(f"in operators that are unknown, so on the CPU ({', '.join(names[:_SHOWN])}{more})", sum(unknown.values()))
    if others := sum(stage.run_s for stage in qualified.application.others):
        add("outside of SQL", others)
    return shares


_ON_CPU: Final = {
    Role.COMPUTES: "in operators that no device runs faster",
    Role.SCANS: "in scans, which no device is stated to run",
    Role.MOVES: "in shuffles and conversions",
}


def _devices(query: QualifiedQuery) -> dict[str, str]:
    return {} if query.explained is None else {one.decision.work.name: one.device for one in query.explained.operators}
