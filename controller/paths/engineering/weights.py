"""Shares of next hops as the small whole weights that an action selector takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from controller.paths.engineering.values import Splits
from controller.tables.routing import MAX_GROUP_SIZE

TOLERANCE = 1 / 64
"""A smaller total is taken if it puts no share off by more than this."""

_SAME = 1e-12
"""What the arithmetic of shares may be off by."""


def quantise(shares: Sequence[float], max_total: int = MAX_GROUP_SIZE, tolerance: float = TOLERANCE) -> tuple[int, ...]:
    """Return whole weights in proportion to shares (not all 0): the smallest total that keeps within `tolerance`.

    Shares that weights make exactly give these weights again, so that what is in force does not drift from round to
    round. Where no total is near enough, `max_total` is taken; then every share is off by less than 1 / `max_total`
    (largest remainder).
    """
    return _quantise(tuple(shares), max_total, tolerance)


@lru_cache(maxsize=65_536)
def _quantise(shares: tuple[float, ...], max_total: int, tolerance: float) -> tuple[int, ...]:
    total = sum(shares)
    exact = [share / total for share in shares]
    weights = (
        _smallest(exact, max_total, _SAME)
        or _smallest(exact, max_total, tolerance)
        or largest_remainder(exact, max_total)
    )
    common = math.gcd(*weights)
    return tuple(weight // common for weight in weights)


def rounded(splits: Splits, max_total: int = MAX_GROUP_SIZE, tolerance: float = TOLERANCE) -> Splits:
    """Return the splits that whole weights make; links whose weight is 0 carry nothing."""
    graph, shares = splits.graph, np.zeros_like(splits.shares)
    for destination in range(len(graph.switches)):
        for leaving in graph.leaving:
            wanted = splits.shares[destination, leaving]
            if wanted.any():
                weights = np.array(quantise(wanted.tolist(), max_total, tolerance), dtype=np.float64)
                shares[destination, leaving] = weights / weights.sum()
    return Splits(graph, shares)


def _smallest(exact: Sequence[float], max_total: int, tolerance: float) -> list[int] | None:
    candidates = (largest_remainder(exact, parts) for parts in range(1, max_total + 1))
    return next((weights for weights in candidates if _error(weights, exact) <= tolerance), None)


def largest_remainder(exact: Sequence[float], parts: int) -> list[int]:
    """Return whole numbers that add up to `parts`, in proportion to shares that add up to 1."""
    weights = [math.floor(share * parts) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda place: (weights[place] - exact[place] * parts, place))
    for place in by_remainder[: parts - sum(weights)]:
        weights[place] += 1
    return weights


def _error(weights: Sequence[int], exact: Sequence[float]) -> float:
    total = sum(weights)
    return max(abs(weight / total - share) for weight, share in zip(weights, exact, strict=True))
