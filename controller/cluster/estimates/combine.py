"""Estimates of work that consists of parts.

A combination is as firm as its weakest part, and unknown if any part is. Bounds add: the longest sum is the sum
of the longest parts, which is wider than for independent parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.cluster.estimates.errors import EstimateError
from controller.cluster.estimates.values import FIRMNESS, Baseline, Basis, Estimate


def successive(parts: Sequence[Estimate]) -> Estimate:
    """Return the estimate of consecutive parts; its baseline is the sum of theirs if all are of the same kind."""
    if (unknown := _unknown(parts)) is not None:
        return unknown
    low, seconds, high = (math.fsum(figures) for figures in zip(*(part.times for part in parts), strict=True))
    return Estimate(seconds, low, high, _weakest(parts), _added_baseline(parts), _reasons(parts))


def together(parts: Sequence[Estimate]) -> Estimate:
    """Return the estimate of parts that start together and do not interfere: the time until the last one ends.

    It has no baseline, because the plain way need not run parts together.
    """
    if (unknown := _unknown(parts)) is not None:
        return unknown
    low, seconds, high = (max(figures) for figures in zip(*(part.times for part in parts), strict=True))
    return Estimate(seconds, low, high, _weakest(parts), None, _reasons(parts))


def scaled(estimate: Estimate, factor: float, reason: str) -> Estimate:
    """Return the estimate slowed down by a factor, for example by a share of the device; the baseline stays."""
    return _scaled(estimate, factor, reason, estimate.baseline)


def repeated(estimate: Estimate, count: int) -> Estimate:
    """Return the estimate of `count` repetitions, one after the other, including the baseline."""
    if count < 0:
        raise EstimateError(f"work cannot be repeated {count} times")
    base = estimate.baseline
    return _scaled(estimate, count, f"{count} times", base and Baseline(base.name, base.seconds * count))


def _scaled(estimate: Estimate, factor: float, reason: str, baseline: Baseline | None) -> Estimate:
    if not (math.isfinite(factor) and factor >= 0):
        raise EstimateError(f"an estimate cannot be scaled by {factor}")
    if not estimate.is_known:
        return estimate
    low, seconds, high = (figure * factor for figure in estimate.times)
    return Estimate(seconds, low, high, estimate.basis, baseline, (*estimate.reasons, reason))


def _unknown(parts: Sequence[Estimate]) -> Estimate | None:
    if not parts:
        raise EstimateError("no part to combine")
    unknown = [part for part in parts if not part.is_known]
    return Estimate.unknown(*_reasons(unknown)) if unknown else None


def _weakest(parts: Sequence[Estimate]) -> Basis:
    return max((part.basis for part in parts), key=FIRMNESS.index)


def _reasons(parts: Sequence[Estimate]) -> tuple[str, ...]:
    """Return all distinct reasons, in order."""
    return tuple(dict.fromkeys(reason for part in parts for reason in part.reasons))


def _added_baseline(parts: Sequence[Estimate]) -> Baseline | None:
    baselines = [part.baseline for part in parts if part.baseline is not None]
    if len(baselines) < len(parts) or len({base.name for base in baselines}) > 1:
        return None
    return Baseline(baselines[0].name, math.fsum(base.seconds for base in baselines))
