"""Comparison and ranking of estimates, and which of them are comparable.

Estimates to compare are times of the same work. Not comparable are an unknown estimate; a nominal one with any other,
because no measurement reaches what data sheets promise; and two with different baselines, because then the work, or its
reference, differed.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from controller.cluster.estimates.errors import EstimateError
from controller.cluster.estimates.values import FIRMNESS, Basis, Estimate

K = TypeVar("K", bound=Hashable)


class Comparison(StrEnum):
    """Result of a comparison; undecided if the bounds meet."""

    SHORTER = "shorter"
    LONGER = "longer"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Ranking(Generic[K]):
    """Choices from the shortest time to the longest, and those that could not be ranked, each with the reason.

    `is_sure` means that the first choice's bounds end before those of all others begin.
    """

    order: tuple[K, ...]
    left_out: Mapping[K, str]
    is_sure: bool


def compare(one: Estimate, other: Estimate) -> Comparison:
    """Return whether one is certainly shorter or longer than the other; raise EstimateError if not comparable."""
    if (problem := _incomparable(one, other)) is not None:
        raise EstimateError(problem)
    if one.times[2] < other.times[0]:
        return Comparison.SHORTER
    return Comparison.LONGER if one.times[0] > other.times[2] else Comparison.UNDECIDED


def rank(choices: Mapping[K, Estimate]) -> Ranking[K]:
    """Rank choices by seconds; ties go to the firmer one, then to the given order.

    If there are several groups that are not comparable, the largest is ranked, the firmer one on a tie.
    """
    group = _largest_group(list(choices.values()))
    ranked = [key for key, estimate in choices.items() if group is not None and _incomparable(group, estimate) is None]
    ranked.sort(key=lambda key: (choices[key].times[1], FIRMNESS.index(choices[key].basis)))
    left_out = {
        key: "; ".join(estimate.reasons) if group is None else str(_incomparable(group, estimate))
        for key, estimate in choices.items()
        if key not in set(ranked)
    }
    sure = bool(ranked) and all(compare(choices[ranked[0]], choices[key]) is Comparison.SHORTER for key in ranked[1:])
    return Ranking(tuple(ranked), left_out, sure)


def _largest_group(estimates: list[Estimate]) -> Estimate | None:
    """Return an estimate from the largest group of comparable ones.

    An estimate without baseline is comparable with any, so it leads only if none has one.
    """
    known = [estimate for estimate in estimates if estimate.is_known]
    with_baseline = {_is_nominal(estimate) for estimate in known if estimate.baseline is not None}
    return max(
        (estimate for estimate in known if estimate.baseline is not None or _is_nominal(estimate) not in with_baseline),
        key=lambda estimate: (
            sum(_incomparable(estimate, other) is None for other in known),
            -FIRMNESS.index(estimate.basis),
        ),
        default=None,
    )


def _is_nominal(estimate: Estimate) -> bool:
    return estimate.basis is Basis.NOMINAL


def _incomparable(one: Estimate, other: Estimate) -> str | None:
    for estimate in (one, other):
        if not estimate.is_known:
            return f"the time is unknown: {'; '.join(estimate.reasons)}"
    if _is_nominal(one) is not _is_nominal(other):
        return f"a {other.basis} time cannot be compared with a {one.basis} one"
    if one.baseline is not None and other.baseline is not None and one.baseline != other.baseline:
        return f"baselines differ: {_named(one)} and {_named(other)}"
    return None


def _named(estimate: Estimate) -> str:
    base = estimate.baseline
    return "" if base is None else f"{base.name} ({base.seconds:.4g} s)"
