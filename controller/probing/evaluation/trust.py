"""How firmly a centre's figures are to be taken: the firmest basis that estimates by them may have, and why.

Nothing here alters a figure. What counts against a centre, and down to which basis:

- a result that cannot be true (`checks`): nominal, which is compared with no measured figure; three of them: none;
- a result that contradicts earlier ones of the same probe on as many units of the same type by more than a factor of
  1.5, where these agreed: history;
- its newest result failed (a kernel crashed, hung or gave a wrong value): history; three in a row: nominal;
- real tasks took more than 1.5 times as long as was expected, the middle one of the last five: modelled; 3 times:
  nominal;
- a result came later than twice its own run times and two minutes: history;
- it has been silent for its lease: history; for ten: none.

It recovers by itself: what a result is held against counts until three later results of the centre in a row are free
of it (a contradiction: until the next result agrees with the new figure); tasks by the newest five; silence by its next
report. Results older than the window count neither way.
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
from dataplane.config import Strict

_NS_PER_S: Final = 1_000_000_000
_LIES_TO_NONE: Final = 3
_LEASES_TO_NONE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Trust:
    """The firmest basis that estimates by a centre's figures may have, and why."""

    basis: Basis = Basis.MEASURED
    reasons: tuple[str, ...] = ()


TRUSTED = Trust()


class TrustSettings(Strict, frozen=True):
    """When a centre's figures are taken less firmly."""

    window_s: float = 7 * 86_400.0
    """Older results and tasks do not count."""
    clean_results: int = 3
    """So many results in a row without a fault, and what was before is forgiven."""
    contradiction: float = 1.5
    """So many times as long, or as short, as before contradicts what was."""
    tasks: int = 5
    """Of so many real tasks, the last, the middle one counts; of fewer than 3 none."""
    exceeded: float = 1.5
    """Tasks that take so many times as long as was expected make an expectation no measurement."""
    far_exceeded: float = 3.0
    """So many times: nothing but a nominal figure."""
    late_s: float = 120.0
    """A result comes within so long, and twice its run times, after its task was dispatched."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of one centre: all its results, tasks that have ended there, and how it reports.

    `limits` are what one unit can do at most, by type of units.
    """

    results: Sequence[ProbeResult]
    centre: Centre | None = None
    tasks: Sequence[Task] = ()
    limits: Mapping[str, Limits] = field(default_factory=dict)
    work: Mapping[str, Mapping[str, UseWork]] = field(default_factory=dict)
    """By probe, then by use (`checks.work_by_use`); what is not there is not checked."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What counts against a centre."""

    basis: Basis
    reason: str


def trust_of(evidence: Evidence, now_ns: int, settings: TrustSettings | None = None) -> Trust:
    """Return how firmly a centre's figures are to be taken now."""
    chosen = settings or TrustSettings()
    since_ns = now_ns - int(chosen.window_s * _NS_PER_S)
    results = sorted(
        (one for one in evidence.results if one.metadata.created_ns >= since_ns and one.status.runs),
        key=lambda one: one.metadata.created_ns,
    )
    found = [
        *_lies(results, evidence, chosen),
        *_failures(results, chosen),
        *_contradictions(results, chosen),
        *_late(results, evidence.tasks, chosen),
        *_exceeded(evidence.tasks, since_ns, chosen),
        *_silence(evidence.centre, now_ns),
    ]
    if not found:
        return TRUSTED
    weakest = max((one.basis for one in found), key=FIRMNESS.index)
    return Trust(weakest, tuple(dict.fromkeys(one.reason for one in found)))


def _lies(results: Sequence[ProbeResult], evidence: Evidence, settings: TrustSettings) -> Iterator[Finding]:
    """Yield results that cannot be true, unless enough good ones have come since."""

    def fault(result: ProbeResult) -> str | None:
        unit = result.status.unit or result.spec.unit or ""
        return impossible(result, evidence.limits.get(unit), evidence.work.get(result.spec.probe, {}))

    held = _since_clean(results, fault, settings.clean_results)
    basis = Basis.NONE if len(held) >= _LIES_TO_NONE else Basis.NOMINAL
    yield from (Finding(basis, f"{name}: {reason}") for name, reason in held.items())


def _since_clean(
    results: Sequence[ProbeResult], fault: Callable[[ProbeResult], str | None], clean: int
) -> dict[str, str]:
    """Return the faults, by the result's name, since so many results in a row were without one."""
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
    """Yield what the newest results say, as many of them as failed in a row."""
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
    """Yield newest figures that earlier ones contradict, as long as no second one bears them out."""
    series: dict[tuple[str, str, int], list[float]] = {}
    for result in results:
        unit = result.status.unit or result.spec.unit or ""
        for run in result.status.runs:
            mean = averaged(run.run_times_s)
            if run.outcome == "succeeded" and mean is not None and mean.mean > 0:
                series.setdefault((result.spec.probe, unit, run.units), []).append(mean.mean)
    for (probe, unit, units), means in series.items():
        *earlier, newest = means
        # Those before may have changed level, too: what was last agreed on by two is what stands.
        stands = _agreed(earlier, settings.contradiction)
        borne_out = not earlier or _agree(newest, earlier[-1], settings.contradiction)
        if stands is not None and not borne_out and not _agree(newest, stands, settings.contradiction):
            of_type = f" of {unit}" if unit else ""
            yield Finding(
                Basis.HISTORY,
                f"{probe} on {units} units{of_type} took {newest:.4g} s, before {stands:.4g} s: not yet borne out",
            )


def _agreed(means: Sequence[float], factor: float) -> float | None:
    """Return the latest figure that another one before it bears out; None if no two in a row agree."""
    for place in range(len(means) - 1, 0, -1):
        if _agree(means[place], means[place - 1], factor):
            return means[place]
    return None


def _agree(one: float, other: float, factor: float) -> bool:
    return max(one, other) <= factor * min(one, other)


def _late(results: Sequence[ProbeResult], tasks: Sequence[Task], settings: TrustSettings) -> Iterator[Finding]:
    """Yield what the newest result says if it came long after it could have."""
    if not results:
        return
    newest = results[-1]
    task = next((one for one in tasks if one.status.result == newest.metadata.name), None)
    if task is None or task.status.dispatched_ns is None or task.status.finished_ns is None:
        return
    took_s = (task.status.finished_ns - task.status.dispatched_ns) / _NS_PER_S
    ran_s = sum(sum(run.run_times_s) for run in newest.status.runs)
    if took_s > settings.late_s + 2 * ran_s:
        reason = f"{newest.metadata.name} came {took_s:.0f} s after its dispatch, of which it ran {ran_s:.3g} s: slow"
        yield Finding(Basis.HISTORY, reason)


def _exceeded(tasks: Sequence[Task], since_ns: int, settings: TrustSettings) -> Iterator[Finding]:
    """Yield what real tasks say that took longer than was expected of them."""
    ended = sorted(
        (one for one in tasks if _is_told(one) and (one.status.finished_ns or 0) >= since_ns),
        key=lambda one: one.status.finished_ns or 0,
    )[-settings.tasks :]
    if len(ended) < 3:
        return
    ratio = median(_took_s(one) / (one.status.expected_s or 1.0) for one in ended)
    if ratio > settings.exceeded:
        basis = Basis.NOMINAL if ratio > settings.far_exceeded else Basis.MODELLED
        yield Finding(basis, f"real tasks took {ratio:.2f} times what was expected (the middle one of {len(ended)})")


def _is_told(task: Task) -> bool:
    status = task.status
    has_times = status.started_ns is not None and status.finished_ns is not None
    return not task.spec.is_probe and status.phase is TaskPhase.SUCCEEDED and bool(status.expected_s) and has_times


def _took_s(task: Task) -> float:
    return ((task.status.finished_ns or 0) - (task.status.started_ns or 0)) / _NS_PER_S


def _silence(centre: Centre | None, now_ns: int) -> Iterator[Finding]:
    if centre is None:
        return
    if centre.status.heartbeat_ns is None:
        yield Finding(Basis.NONE, f"{centre.metadata.name} has not reported yet")
        return
    silent_s = (now_ns - centre.status.heartbeat_ns) / _NS_PER_S
    if silent_s > centre.spec.lease_s:
        is_gone = silent_s > _LEASES_TO_NONE * centre.spec.lease_s
        yield Finding(
            Basis.NONE if is_gone else Basis.HISTORY, f"{centre.metadata.name} has been silent for {silent_s:.0f} s"
        )
