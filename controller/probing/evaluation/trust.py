"""Trust in a centre's figures: the firmest basis that estimates from them may have, and why.

Nothing here alters a figure. These count against a centre, and lower the basis to:

- a result that cannot be true (`checks`): nominal, which is compared with no measured figure; three of them: none;
- a result that contradicts earlier ones of the same probe on as many units of the same type by more than a factor of
  1.5, where these agreed: history;
- its newest result failed (a kernel crashed, hung or gave a wrong value): history; three in a row: nominal;
- real tasks took more than 1.5 times as long as expected, by the median of the last five: modelled; 3 times: nominal;
- a result came later than twice its own run times and two minutes: history;
- it has been silent for its lease: history; for ten: none.

Trust recovers without intervention: a fault counts until three later results of the centre in a row are free of it (a
contradiction: until the next result agrees with the new figure); tasks by the newest five; silence by the next report.
Results older than the window count neither way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from controller.apiserver.resources import Centre, ProbeResult, Task
from controller.apiserver.resources.task import TaskPhase
from controller.cluster.estimates import Basis
from controller.cluster.estimates.values import FIRMNESS
from controller.probing.evaluation.averages import averaged
from controller.probing.evaluation.checks import Limits, UseWork, impossible
from dataplane.clock import NS_PER_S
from dataplane.config import Settings

_LIES_TO_NONE: Final = 3
_LEASES_TO_NONE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Trust:
    """The firmest basis that estimates from a centre's figures may have, and why."""

    basis: Basis = Basis.MEASURED
    reasons: tuple[str, ...] = ()


TRUSTED = Trust()


class TrustSettings(Settings, frozen=True):
    """Thresholds that lower the trust in a centre's figures."""

    window_s: float = 7 * 86_400.0
    """Ignore older results and tasks."""
    clean_results: int = 3
    """Forgive earlier faults after this many results in a row without one."""
    contradiction: float = 1.5
    """Factor, up or down, from earlier results beyond which a result contradicts them."""
    tasks: int = 5
    """Number of latest real tasks whose median counts; fewer than 3 count for nothing."""
    exceeded: float = 1.5
    """Factor over the expected time from which tasks show that the expectation was no measurement."""
    far_exceeded: float = 3.0
    """Factor from which only a nominal figure remains."""
    late_s: float = 120.0
    """Time within which, plus twice its run times, a result must follow its task's dispatch."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence about one centre: all its results, tasks that have ended there, and how it reports.

    `limits` are the upper bounds of one unit, by unit type.
    """

    results: Sequence[ProbeResult]
    centre: Centre | None = None
    tasks: Sequence[Task] = ()
    limits: Mapping[str, Limits] = field(default_factory=dict)
    work: Mapping[str, Mapping[str, UseWork]] = field(default_factory=dict)
    """By probe, then by use (`checks.work_by_use`); anything missing is not checked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault held against a centre."""

    basis: Basis
    reason: str


def trust_of(evidence: Evidence, now_ns: int, settings: TrustSettings | None = None) -> Trust:
    """Return the current trust in a centre's figures."""
    chosen = settings or TrustSettings()
    since_ns = now_ns - int(chosen.window_s * NS_PER_S)
    results = sorted(
        (result for result in evidence.results if result.metadata.created_ns >= since_ns and result.status.runs),
        key=lambda result: result.metadata.created_ns,
    )
    findings = [
        *_lies(results, evidence, chosen),
        *_failures(results, chosen),
        *_contradictions(results, chosen),
        *_late(results, evidence.tasks, chosen),
        *_exceeded(evidence.tasks, since_ns, chosen),
        *_silence(evidence.centre, now_ns),
    ]
    if not findings:
        return TRUSTED
    weakest = max((finding.basis for finding in findings), key=FIRMNESS.index)
    return Trust(weakest, tuple(dict.fromkeys(finding.reason for finding in findings)))


def _lies(results: Sequence[ProbeResult], evidence: Evidence, settings: TrustSettings) -> Iterator[Finding]:
    """Yield results that cannot be true, unless enough good ones have followed."""

    def fault(result: ProbeResult) -> str | None:
        unit = result.status.unit or result.spec.unit or ""
        return impossible(result, evidence.limits.get(unit), evidence.work.get(result.spec.probe, {}))

    held = _since_clean(results, fault, settings.clean_results)
    basis = Basis.NONE if len(held) >= _LIES_TO_NONE else Basis.NOMINAL
    yield from (Finding(basis, f"{name}: {reason}") for name, reason in held.items())


def _since_clean(
    results: Sequence[ProbeResult], fault: Callable[[ProbeResult], str | None], clean: int
) -> dict[str, str]:
    """Return the faults, by the result's name, since the last long enough row of results without one."""
    held: dict[str, str] = {}
    free = 0
    for result in results:
        reason = fault(result)
        free = 0 if reason is not None else free + 1
        if reason is not None:
            held[result.metadata.name] = reason
        if free >= clean:
            held.clear()
    return held


def _failures(results: Sequence[ProbeResult], settings: TrustSettings) -> Iterator[Finding]:
    """Yield findings from the newest results, as many as failed in a row."""
    failed: list[str] = []
    for result in reversed(results):
        run = next((run for run in result.status.runs if run.outcome != "succeeded"), None)
        if run is None:
            break
        problem = f": {run.problem}" if run.problem else ""
        failed.append(f"{result.metadata.name} failed on {run.units} units: {run.outcome}{problem}")
    if failed:
        yield Finding(Basis.NOMINAL if len(failed) >= settings.clean_results else Basis.HISTORY, failed[0])


def _contradictions(results: Sequence[ProbeResult], settings: TrustSettings) -> Iterator[Finding]:
    """Yield newest figures that contradict earlier ones, until a second one confirms them."""
    series: dict[tuple[str, str, int], list[float]] = {}
    for result in results:
        unit = result.status.unit or result.spec.unit or ""
        for run in result.status.runs:
            mean = averaged(run.run_times_s)
            if run.outcome == "succeeded" and mean is not None and mean.mean > 0:
                series.setdefault((result.spec.probe, unit, run.units), []).append(mean.mean)
    for (probe, unit, units), means in series.items():
        *earlier, newest = means
        # Earlier figures may have changed level, too: the level that stands is the last that two agreed on.
        stands = _agreed(earlier, settings.contradiction)
        borne_out = not earlier or _agree(newest, earlier[-1], settings.contradiction)
        if stands is not None and not borne_out and not _agree(newest, stands, settings.contradiction):
            of_type = f" of {unit}" if unit else ""
            yield Finding(
                Basis.HISTORY,
                f"{probe} on {units} units{of_type} took {newest:.4g} s, before {stands:.4g} s: not yet confirmed",
            )


def _agreed(means: Sequence[float], factor: float) -> float | None:
    """Return the latest figure that the one before it confirms; None if no two in a row agree."""
    for index in range(len(means) - 1, 0, -1):
        if _agree(means[index], means[index - 1], factor):
            return means[index]
    return None


def _agree(first: float, other: float, factor: float) -> bool:
    return max(first, other) <= factor * min(first, other)


def _late(results: Sequence[ProbeResult], tasks: Sequence[Task], settings: TrustSettings) -> Iterator[Finding]:
    """Yield a finding if the newest result came long after it could have."""
    if not results:
        return
    newest = results[-1]
    task = next((task for task in tasks if task.status.result == newest.metadata.name), None)
    if task is None or task.status.dispatched_ns is None or task.status.finished_ns is None:
        return
    took_s = (task.status.finished_ns - task.status.dispatched_ns) / NS_PER_S
    ran_s = sum(sum(run.run_times_s) for run in newest.status.runs)
    if took_s > settings.late_s + 2 * ran_s:
        reason = f"{newest.metadata.name} came {took_s:.0f} s after its dispatch but ran only {ran_s:.3g} s: late"
        yield Finding(Basis.HISTORY, reason)


def _exceeded(tasks: Sequence[Task], since_ns: int, settings: TrustSettings) -> Iterator[Finding]:
    """Yield findings from real tasks that took longer than expected."""
    ended = sorted(
        (task for task in tasks if _counts(task) and (task.status.finished_ns or 0) >= since_ns),
        key=lambda task: task.status.finished_ns or 0,
    )[-settings.tasks :]
    if len(ended) < 3:
        return
    ratio = median(_took_s(task) / (task.status.expected_s or 1.0) for task in ended)
    if ratio > settings.exceeded:
        basis = Basis.NOMINAL if ratio > settings.far_exceeded else Basis.MODELLED
        yield Finding(basis, f"real tasks took {ratio:.2f} times the expected time (median of {len(ended)})")


def _counts(task: Task) -> bool:
    status = task.status
    has_times = status.started_ns is not None and status.finished_ns is not None
    return not task.spec.is_probe and status.phase is TaskPhase.SUCCEEDED and bool(status.expected_s) and has_times


def _took_s(task: Task) -> float:
    return ((task.status.finished_ns or 0) - (task.status.started_ns or 0)) / NS_PER_S


def _silence(centre: Centre | None, now_ns: int) -> Iterator[Finding]:
    if centre is None:
        return
    if centre.status.heartbeat_ns is None:
        yield Finding(Basis.NONE, f"{centre.metadata.name} has not reported yet")
        return
    silent_s = (now_ns - centre.status.heartbeat_ns) / NS_PER_S
    if silent_s > centre.spec.lease_s:
        is_gone = silent_s > _LEASES_TO_NONE * centre.spec.lease_s
        yield Finding(
            Basis.NONE if is_gone else Basis.HISTORY, f"{centre.metadata.name} has been silent for {silent_s:.0f} s"
        )
