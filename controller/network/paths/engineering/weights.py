"""Shares of next hops as the small whole weights that an action selector takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from controller.network.paths.engineering.values import FloatArray, IntArray, Splits, SwitchGraph
from controller.network.tables.routing import MAX_GROUP_SIZE

TOLERANCE = 1 / 64
"""A smaller total is taken if it puts no share off by more than this."""

_SAME = 1e-12
"""Tolerance for rounding errors of shares."""


def quantise(shares: Sequence[float], max_total: int = MAX_GROUP_SIZE, tolerance: float = TOLERANCE) -> tuple[int, ...]:
    """Return whole weights in proportion to shares (not all 0): the smallest total that keeps within `tolerance`.

    Shares that weights produce exactly give these weights again, so that the weights in force do not drift from round
    to round. If no total is close enough, `max_total` is taken; then every share is off by less than 1 / `max_total`
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
    """Return the splits that whole weights produce; links whose weight is 0 carry nothing."""
    return Splits(splits.graph, rounded_shares(splits.graph, splits.shares, max_total, tolerance))


def rounded_shares(
    graph: SwitchGraph, shares: FloatArray, max_total: int = MAX_GROUP_SIZE, tolerance: float = TOLERANCE
) -> FloatArray:
    """Return the shares, by (destination, link), that whole weights make: those of `quantise` in each group."""
    padded = np.concatenate([shares, np.zeros((len(shares), 1))], axis=1)
    groups = padded[:, graph.leaving_padded]
    members = np.count_nonzero(groups > 0, axis=2)
    groups[members == 1] = groups[members == 1] > 0
    weights = quantise_rows(groups[members > 1], max_total, tolerance)
    groups[members > 1] = weights / weights.sum(axis=1, keepdims=True)
    padded[:, graph.leaving_padded] = groups
    return np.ascontiguousarray(padded[:, :-1])


def quantise_rows(shares: FloatArray, max_total: int = MAX_GROUP_SIZE, tolerance: float = TOLERANCE) -> IntArray:
    """Return the weights of many groups at once, one per row; `quantise` is the readable twin.

    Weights keep the total that was chosen: they are not divided by common factors.
    """
    exact = shares / shares.sum(axis=1, keepdims=True)
    rounded = _largest_remainders(exact, max_total)
    is_near = np.zeros(len(exact), dtype=bool)
    rows = np.arange(len(exact))
    for parts in range(1, max_total + 1):
        weights = _largest_remainders(exact[rows], parts)
        errors = np.abs(weights / parts - exact[rows]).max(axis=1, initial=0.0)
        # The first total that is near is taken, unless a later one is exact.
        first = (errors <= tolerance) & ~is_near[rows]
        is_exact = errors <= _SAME
        taken = first | is_exact
        rounded[rows[taken]] = weights[taken]
        is_near[rows[first]] = True
        rows = rows[~is_exact]
    return rounded


def _largest_remainders(exact: FloatArray, parts: int) -> IntArray:
    """Return `largest_remainder` of each row."""
    weights = np.floor(exact * parts).astype(np.int64)
    order = np.argsort(weights - exact * parts, axis=1, kind="stable")
    rank = np.empty_like(order)
    np.put_along_axis(rank, order, np.arange(exact.shape[1])[None, :], axis=1)
    return np.asarray(weights + (rank < (parts - weights.sum(axis=1))[:, None]))


def _smallest(exact: Sequence[float], max_total: int, tolerance: float) -> list[int] | None:
    candidates = (largest_remainder(exact, parts) for parts in range(1, max_total + 1))
    return next((weights for weights in candidates if _error(weights, exact) <= tolerance), None)


def largest_remainder(exact: Sequence[float], parts: int) -> list[int]:
    """Return whole numbers that add up to `parts`, in proportion to shares that add up to 1."""
    weights = [math.floor(share * parts) for share in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: (weights[index] - exact[index] * parts, index))
    for index in by_remainder[: parts - sum(weights)]:
        weights[index] += 1
    return weights


def _error(weights: Sequence[int], exact: Sequence[float]) -> float:
    total = sum(weights)
    return max(abs(weight / total - share) for weight, share in zip(weights, exact, strict=True))
