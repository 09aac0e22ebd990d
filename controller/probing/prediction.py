"""Predicts a target task's run time where a probe of it ran: the probe's times scaled to the target's executions.

Each use of a kernel stands for an operator of the target: seconds of one execution, times the executions in the target,
times the ratio of their work to that of the kernel's. Unmatched operators are assumed to cost what the matched share
costs; the start of a process counts once. With a reference, a real run of the target and the probe's runs in one place,
only the ratio of the probe's times is used: an error that the kernels make everywhere then cancels, as in Habitat (Yu
et al., ATC 2021), which scales operators' times between GPUs. A probe task built from a traced program carries such a
reference: what both took where it was built.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from controller.apiserver.resources.probe_result import ProbeRun
from controller.cluster.estimates import Basis, Estimate
from controller.probing.values import ProbeTask, TargetRun

FIRM_SHARE: Final = 0.9
"""Matched part of a target from which its time counts as measured; below, the rest is modelled."""
LEAST_SHARE: Final = 0.5
"""Least matched part for a prediction: with less, most of the time would be a guess."""
_SUCCEEDED: Final = frozenset({"", "succeeded"})
_DEVIATIONS: Final = 2.0
"""Standard errors on either side of a mean: 95 % of a normal distribution."""
_FAR: Final = 3.0
"""Factor between a target's time and its kernels', either way, from which the kernels no longer measure it."""
_STEADY_ERROR: Final = 0.05
"""Least relative error of a quarter of a second against minutes: 19 of 20 windows kept it, with or without quota."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A place with known times of both: the target's run time, and the probe's runs, on the same units."""

    run_time_s: float
    runs: tuple[ProbeRun, ...]
    place: str = "the reference"


@dataclass(frozen=True, slots=True)
class _Work:
    """The matched operators' work by the probe: seconds, those of each repetition, and the start."""

    seconds: float
    samples: tuple[float, ...]
    start_s: float

    @property
    def error_s(self) -> float:
        """Bound on the distance to the true mean."""
        least = self.seconds * _STEADY_ERROR
        if len(self.samples) < 2:
            return least
        mean = math.fsum(self.samples) / len(self.samples)
        variance = math.fsum((sample - mean) ** 2 for sample in self.samples) / (len(self.samples) - 1)
        return max(least, _DEVIATIONS * math.sqrt(variance / len(self.samples)))


def predicted(probe: ProbeTask, runs: Sequence[ProbeRun], *, reference: Reference | None = None) -> Estimate:
    """Return how long the probe's target takes on the units that the runs were on, between bounds.

    Ignores, with a reason, runs that failed, that lack a use, or whose figures are no times or wrong values. The
    estimate is unknown if no run is left, if runs are on different numbers of units, and if less than LEAST_SHARE of
    the target is matched.
    """
    refusals = [(run, _refusal(probe, run)) for run in runs]
    good = [run for run, refusal in refusals if refusal is None]
    left_out = tuple(dict.fromkeys(f"left out: {refusal}" for _, refusal in refusals if refusal is not None))
    if not good:
        return Estimate.unknown(f"{probe.name}: no usable run of the probe", *left_out)
    if len(units := {run.units for run in good}) > 1:
        return Estimate.unknown(f"{probe.name}: runs on {', '.join(map(str, sorted(units)))} units are different work")
    if probe.share_matched is not None and probe.share_matched < LEAST_SHARE:
        return Estimate.unknown(f"{probe.name}: only {probe.share_matched:.0%} of the target's time has a kernel")
    work = _work(probe, good)
    if reference is not None:
        return _scaled(probe, work, reference, left_out)
    if probe.reference is not None:
        return _by_building(probe, work, probe.reference, left_out)
    return _summed(probe, work, left_out)


def _summed(probe: ProbeTask, work: _Work, left_out: tuple[str, ...]) -> Estimate:
    share = probe.share_matched
    rest = 1.0 if share is None else 1 / share
    reasons = [f"{len(work.samples)} repetitions of {probe.name}, 1:{probe.ratio}"]
    if work.start_s:
        reasons.append(f"start {work.start_s:.3g} s")
    reasons.append(_share_line(probe))
    seconds, error_s = work.seconds * rest + work.start_s, work.error_s * rest
    return _estimate(seconds, error_s, _basis(probe), (*reasons, *left_out))


def _scaled(probe: ProbeTask, work: _Work, reference: Reference, left_out: tuple[str, ...]) -> Estimate:
    good = [run for run in reference.runs if _refusal(probe, run) is None]
    if not good or not _is_time(reference.run_time_s):
        return Estimate.unknown(f"{probe.name}: {reference.place} has no good run of target and probe", *left_out)
    there = _work(probe, good)
    factor = reference.run_time_s / (there.seconds + there.start_s)
    probe_s = reference.run_time_s / factor
    reason = f"{reference.run_time_s:.3g} s at {reference.place}, where the probe predicts {probe_s:.3g} s"
    seconds = (work.seconds + work.start_s) * factor
    error_s = seconds * math.hypot(work.error_s / work.seconds, there.error_s / there.seconds)
    return _estimate(seconds, error_s, _basis(probe), (reason, _share_line(probe), *left_out))


def _by_building(probe: ProbeTask, work: _Work, reference: TargetRun, left_out: tuple[str, ...]) -> Estimate:
    """Return the estimate from the times of target and kernels where the probe was built; start times are local."""
    there_s = _seconds(probe, dict(reference.kernels_s))
    factor = reference.cpu_time_s / there_s
    reasons = [
        f"{len(work.samples)} repetitions of {probe.name}, 1:{probe.ratio}",
        f"where it was built the target takes {factor:.2f} of its kernels' time",
        _share_line(probe),
    ]
    basis = _basis(probe)
    if not 1 / _FAR <= factor <= _FAR:
        basis = Basis.MODELLED
        reasons.append("so its kernels resemble it only in part")
    seconds, error_s = work.seconds * factor + work.start_s, work.error_s * factor
    return _estimate(seconds, math.hypot(error_s, seconds * _STEADY_ERROR), basis, (*reasons, *left_out))


def _estimate(seconds: float, error_s: float, basis: Basis, reasons: tuple[str, ...]) -> Estimate:
    return Estimate(seconds, max(0.0, seconds - error_s), seconds + error_s, basis, None, reasons)


def _basis(probe: ProbeTask) -> Basis:
    return Basis.MEASURED if (probe.share_matched or 0.0) >= FIRM_SHARE else Basis.MODELLED


def _share_line(probe: ProbeTask) -> str:
    if probe.share_matched is None:
        return "the part of the target's time that kernels stand for is unknown"
    unmatched = f", not {', '.join(probe.unmatched[:3])}" if probe.unmatched else ""
    return f"kernels stand for {probe.share_matched:.1%} of the target's time{unmatched}"


def _work(probe: ProbeTask, runs: Sequence[ProbeRun]) -> _Work:
    seconds = [_seconds(probe, _execution_s(probe, run)) for run in runs]
    samples = [sample for run in runs for sample in _samples(probe, run)]
    starts = [run.start_s for run in runs if run.start_s is not None]
    return _Work(math.fsum(seconds) / len(seconds), tuple(samples), math.fsum(starts) / len(starts) if starts else 0.0)


def _seconds(probe: ProbeTask, execution_s: Mapping[str, float]) -> float:
    """Return the time that all uses together take in the target, from the seconds of one execution of each."""
    return math.fsum(execution_s[use.name] * use.executions * use.scale for use in probe.uses)


def _execution_s(probe: ProbeTask, run: ProbeRun) -> dict[str, float]:
    means = {name: math.fsum(times) / len(times) for name, times in run.kernels_s.items() if times}
    return {use.name: run.steady_s.get(use.name, means[use.name]) for use in probe.uses}


def _samples(probe: ProbeTask, run: ProbeRun) -> list[float]:
    repetitions = min(len(run.kernels_s[use.name]) for use in probe.uses)
    return [
        _seconds(probe, {use.name: run.kernels_s[use.name][index] for use in probe.uses})
        for index in range(repetitions)
    ]


def _refusal(probe: ProbeTask, run: ProbeRun) -> str | None:
    """Return in one line why a run is ignored, None if it counts."""
    if run.outcome not in _SUCCEEDED:
        return f"a run with outcome {run.outcome}{': ' if run.problem else ''}{run.problem}"
    for use in probe.uses:
        times = run.kernels_s.get(use.name, ())
        if not times:
            return f"a run without times of {use.name}"
        figures = (*times, *([run.steady_s[use.name]] if use.name in run.steady_s else ()))
        if not all(_is_time(figure) for figure in figures):
            return f"a run with invalid times of {use.name}"
        error = run.kernel_accuracies.get(use.name)
        if error is None:
            return f"a run without the accuracy of {use.name}"
        if not error <= use.tolerance:
            return f"a run in which {use.name} is wrong by {error:.3g}, more than {use.tolerance:.3g}"
    return None


def _is_time(figure: float) -> bool:
    return math.isfinite(figure) and figure > 0
