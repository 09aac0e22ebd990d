"""Estimates from probe results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from controller.apiserver.resources import ProbeResult
from controller.apiserver.resources.probe_result import ProbeRun
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.estimates.values import FIRMNESS
from controller.probing.evaluation.averages import averaged
from controller.probing.evaluation.trust import TRUSTED, Trust
from dataplane.clock import NS_PER_S

FRESH_S: Final = 86_400.0
"""A result older than this is history."""


def estimate_of(
    results: Sequence[ProbeResult], now_ns: int, *, units: int, trust: Trust = TRUSTED, fresh_s: float = FRESH_S
) -> Estimate:
    """Return how long a probe takes on this many units, by the newest result at one centre that covers them.

    `results` are of one probe at one centre. A result older than `fresh_s` is history; a centre's loss of trust lowers
    the basis, never a figure.
    """
    newest = max(
        (result for result in results if _runs(result, units)),
        key=lambda result: result.metadata.created_ns,
        default=None,
    )
    if newest is None:
        return Estimate.unknown(f"no result of this probe on {units} units")
    average = averaged([time_s for run in _runs(newest, units) for time_s in run.run_times_s])
    if average is None:
        return Estimate.unknown(f"{newest.metadata.name}: no repetition on {units} units has a time")
    estimate = Estimate.measured(average.kept, *average.reasons)
    age_s = (now_ns - newest.metadata.created_ns) / NS_PER_S
    if age_s > fresh_s:
        estimate = lowered(estimate, Trust(Basis.HISTORY, (f"{newest.metadata.name} is {age_s:.0f} s old",)))
    return lowered(estimate, trust)


def lowered(estimate: Estimate, trust: Trust) -> Estimate:
    """Return an estimate no firmer than the centre's trust allows; its times stay unless nothing is believed."""
    if trust.basis is Basis.NONE:
        return Estimate.unknown(*trust.reasons)
    if FIRMNESS.index(trust.basis) <= FIRMNESS.index(estimate.basis):
        return estimate
    return replace(estimate, basis=trust.basis, reasons=(*estimate.reasons, *trust.reasons))


def _runs(result: ProbeResult, units: int) -> list[ProbeRun]:
    """Return the successful runs on this many units that have times."""
    return [run for run in result.status.runs if run.units == units and run.run_times_s and run.outcome == "succeeded"]
