"""Estimates for tasks of a type at each offer, from the type's probe results and from past tasks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from controller.apiserver.resources import ProbeResult
from controller.apiserver.resources.probe_result import ProbeRun
from controller.cluster.estimates import Basis, Estimate, successive
from controller.probing.evaluation import TRUSTED, Threshold, Trust, lowered, threshold_of
from controller.probing.evaluation.efficiency import LEAST_COUNTS
from controller.probing.prediction import predicted
from controller.probing.values import ProbeTask
from controller.scheduling.tasks.values import Offer, Option
from dataplane.clock import NS_PER_S
from dataplane.topology.values import DeviceKind

MOST_SAMPLES: Final = 10
"""Maximum number of finished tasks considered at a place, the newest."""


@dataclass(frozen=True, slots=True)
class KnownType:
    """A task type: its probes, run one after the other, or the `problem` that prevents them.

    `counts` are the numbers of units that probes measure, if that many exist; `stated` are those that users request.
    """

    name: str
    probes: tuple[ProbeTask, ...] = ()
    counts: tuple[int, ...] = (1,)
    stated: tuple[int, ...] = ()
    problem: str = ""
    expected_s: tuple[tuple[DeviceKind, float], ...] = ()
    """Run times that a user expects, by kind of device."""

    @property
    def kernels(self) -> frozenset[str]:
        """Identifiers of all its probes' kernels."""
        return frozenset(kernel for probe in self.probes for kernel in probe.kernels)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Measurements at one offer: results by probe, and run times of tasks of the type by number of units."""

    results: Mapping[str, Sequence[ProbeResult]] = field(default_factory=dict)
    runs_s: Mapping[int, Sequence[float]] = field(default_factory=dict)
    trust: Trust = TRUSTED


def options_of(
    known_type: KnownType, offer: Offer, evidence: Evidence, now_ns: int, fresh_s: float
) -> tuple[Option, ...]:
    """Return the options of an offer for tasks of a type: each number of units that is measured or of interest.

    Numbers above the threshold of the probes' efficiency are marked; without measurements the estimate is unknown.
    """
    measured = {run.units for run in _runs(known_type, evidence) if run.units}
    counts = sorted(
        measured
        | set(evidence.runs_s)
        | set(known_type.stated)
        | {units for units in known_type.counts if units <= offer.count}
    )
    threshold = threshold_in(known_type, evidence)
    return tuple(
        Option(
            offer.key, units, _estimate(known_type, offer, evidence, units, now_ns, fresh_s), _above(threshold, units)
        )
        for units in counts or [1]
    )


def _estimate(  # noqa: PLR0917 - the estimate's inputs
    known_type: KnownType, offer: Offer, evidence: Evidence, units: int, now_ns: int, fresh_s: float
) -> Estimate:
    """Return the measured run time or, without one, the user's for the offer's fastest device."""
    estimate = estimate_in(known_type, evidence, units, now_ns, fresh_s)
    devices = {*offer.devices, DeviceKind.CPU}
    stated_s = [seconds for kind, seconds in known_type.expected_s if kind in devices]
    if estimate.is_known or not stated_s:
        return estimate
    return lowered(Estimate.exactly(min(stated_s), Basis.MODELLED, "as its user expects"), evidence.trust)


def estimate_in(known_type: KnownType, evidence: Evidence, units: int, now_ns: int, fresh_s: float) -> Estimate:
    """Return the run time of a task of a type on so many units of an offer.

    Based on tasks of the type that ran there on as many units, if any; else on the type's probes. Old results count as
    history.
    """
    if run_times_s := evidence.runs_s.get(units):
        samples = tuple(run_times_s)[-MOST_SAMPLES:]
        return lowered(Estimate.measured(samples, f"tasks of type {known_type.name} on {units} units"), evidence.trust)
    if not known_type.probes:
        return Estimate.unknown(known_type.problem or f"type {known_type.name} has no probe")
    parts = [_of_probe(probe, evidence, units, now_ns, fresh_s) for probe in known_type.probes]
    return lowered(parts[0] if len(parts) == 1 else successive(parts), evidence.trust)


def threshold_in(known_type: KnownType, evidence: Evidence) -> Threshold | None:
    """Return the number of units up to which tasks of a type benefit at an offer, by its longest-running probe."""
    by_probe: dict[str, dict[int, list[float]]] = {}
    for probe in known_type.probes:
        for run in _runs(KnownType(known_type.name, (probe,)), evidence):
            by_probe.setdefault(probe.name, {}).setdefault(run.units, []).extend(run.run_times_s)
    if max((len(times) for times in by_probe.values()), default=0) < LEAST_COUNTS:
        return None
    longest = max(by_probe, key=lambda name: (math.fsum(by_probe[name][min(by_probe[name])]), name))
    return threshold_of(by_probe[longest])


def _of_probe(probe: ProbeTask, evidence: Evidence, units: int, now_ns: int, fresh_s: float) -> Estimate:
    results = evidence.results.get(probe.name, ())
    newest = max(
        (result for result in results if _has(result, units)),
        key=lambda result: result.metadata.created_ns,
        default=None,
    )
    if newest is None:
        return Estimate.unknown(f"{probe.name} has not run there on {units} units")
    estimate = predicted(probe, [run for run in newest.status.runs if run.units == units])
    age_s = (now_ns - newest.metadata.created_ns) / NS_PER_S
    if age_s <= fresh_s:
        return estimate
    return lowered(estimate, Trust(Basis.HISTORY, (f"{newest.metadata.name} is {age_s:.0f} s old",)))


def _has(result: ProbeResult, units: int) -> bool:
    return any(run.units == units for run in result.status.runs)


def _runs(known_type: KnownType, evidence: Evidence) -> Iterable[ProbeRun]:
    """Return the good runs of a type's probes, from each probe's newest result for each number of units."""
    for probe in known_type.probes:
        seen: set[int] = set()
        ordered = sorted(evidence.results.get(probe.name, ()), key=lambda result: -result.metadata.created_ns)
        for result in ordered:
            runs = [run for run in result.status.runs if run.units not in seen]
            yield from (run for run in runs if run.outcome == "succeeded" and run.run_times_s)
            seen.update(run.units for run in runs)


def _above(threshold: Threshold | None, units: int) -> str:
    if threshold is None or threshold.units is None or units <= threshold.units:
        return ""
    return f"{units} units exceed the {threshold.units} up to which more help: {threshold.reason}"
