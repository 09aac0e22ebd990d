"""Estimates of work that is made of parts.

What is combined is as firm as its weakest part, and unknown if any part is. Bounds add as bounds do: the longest of
the sum is the sum of the longest, which is wider than independent parts would make it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from controller.cluster.estimates.errors import EstimateError
from controller.cluster.estimates.values import FIRMNESS, Baseline, Basis, Estimate


def successive(parts: Sequence[Estimate]) -> Estimate:
    """Return the estimate of parts one after the other; its baseline is the sum of theirs if all name the same way."""
    if (unknown := _unknown(parts)) is not None:
        return unknown
    low, seconds, high = (math.fsum(figures) for figures in zip(*(part.times for part in parts), strict=True))
    return Estimate(seconds, low, high, _weakest(parts), _added_baseline(parts), _reasons(parts))


def together(parts: Sequence[Estimate]) -> Estimate:
    """Return the estimate of parts that begin together and do not disturb one another: until the last one ends.

    It has no baseline, as the plain way need not run parts together.
    """
    if (unknown := _unknown(parts)) is not None:
        return unknown
    low, seconds, high = (max(figures) for figures in zip(*(part.times for part in parts), strict=True))
    return Estimate(seconds, low, high, _weakest(parts), None, _reasons(parts))


def scaled(estimate: Estimate, factor: float, reason: str) -> Estimate:
    """Return the same work done so many times as slowly, say by a share of the device; the baseline stays."""
    return _scaled(estimate, factor, reason, estimate.baseline)


def repeated(estimate: Estimate, count: int) -> Estimate:
    """Return the same work done so many times, one after the other, and its baseline too."""
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
    """Return all reasons, each once, in order."""
    return tuple(dict.fromkeys(reason for part in parts for reason in part.reasons))


def _added_baseline(parts: Sequence[Estimate]) -> Baseline | None:
    found = [part.baseline for part in parts if part.baseline is not None]
    if len(found) < len(parts) or len({base.name for base in found}) > 1:
        return None
    return Baseline(found[0].name, math.fsum(base.seconds for base in found))
