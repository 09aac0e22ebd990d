"""Score of a probe: weighted points of each figure, added up for each number of units that it ran on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from controller.apiserver.resources.probe_result import ProbeResultStatus, ProbeRun
from controller.apiserver.resources.scoring_policy import ACCURACY, RUN_TIME
from controller.probing.evaluation.averages import Averaged, averaged
from controller.probing.evaluation.policy import Policy


@dataclass(frozen=True, slots=True)
class RunScore:
    """Score of a probe on this many units; comparable with that of the same probe on as many units elsewhere.

    `score` is None if a figure that the policy weighs was not measured; `reasons` name it, and anything left out.
    `points` are by figure, before weighting.
    """

    units: int
    score: float | None
    points: dict[str, float]
    run_time_s: Averaged | None
    accuracy: Averaged | None
    reasons: tuple[str, ...] = ()


def score(policy: Policy, runs: Sequence[ProbeRun]) -> tuple[RunScore, ...]:
    """Return a score for each number of units, the fewest first; runs on as many units count as repetitions of one."""
    by_units: dict[int, list[ProbeRun]] = {}
    for run in runs:
        by_units.setdefault(run.units, []).append(run)
    return tuple(_score(policy, units, by_units[units]) for units in sorted(by_units))


def scored(policy: Policy, status: ProbeResultStatus) -> ProbeResultStatus:
    """Return a result with its scores added; its figures stay as they are.

    Each run has its own score; the result's is that on the fewest units, and `score_units` gives their number.
    """
    scores = {run_score.units: run_score for run_score in score(policy, status.runs)}
    runs = tuple(_with_score(run, scores[run.units]) for run in status.runs)
    first = next(iter(scores.values()), None)
    return msgspec.structs.replace(
        status,
        runs=runs,
        score=first and first.score,
        score_units=first and first.units,
        points=first.points if first is not None else {},
        policy=policy.name,
        policy_digest=policy.digest,
    )


def _with_score(run: ProbeRun, run_score: RunScore) -> ProbeRun:
    return msgspec.structs.replace(run, score=run_score.score, points=run_score.points, notes=run_score.reasons)


def _score(policy: Policy, units: int, runs: Sequence[ProbeRun]) -> RunScore:
    good = [run for run in runs if run.outcome == "succeeded"]
    run_time_s = averaged([time_s for run in good for time_s in run.run_times_s])
    accuracy = averaged([error for run in good for error in run.accuracies])
    figures = {RUN_TIME: run_time_s, ACCURACY: accuracy} | {
        name: averaged([run.figures[name] for run in good if name in run.figures]) for name in policy.figures
    }
    points = {
        name: scale.points(figure.mean)
        for name, scale in policy.scales.items()
        if (figure := figures[name]) is not None
    }
    missing = [name for name in policy.scales if name not in points]
    total = None if missing else sum(scale.weight * points[name] for name, scale in policy.scales.items())
    failed = (f"run left out: {run.outcome}: {run.problem}" for run in runs if run.outcome != "succeeded")
    reasons = (*failed, *_left_out(figures), *(f"no score: {name} was not measured" for name in missing))
    return RunScore(units, total, points, run_time_s, accuracy, reasons)


def _left_out(figures: dict[str, Averaged | None]) -> Iterator[str]:
    for name, figure in figures.items():
        yield from (f"{name}: {reason}" for reason in (figure.reasons if figure is not None else ()))
