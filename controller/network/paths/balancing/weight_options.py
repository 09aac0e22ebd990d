"""The weights that a group may be given: whole numbers, at most 32 in all, nearest to the wanted shares first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import permutations

from controller.network.paths.engineering.weights import largest_remainder
from controller.network.tables.routing import MAX_GROUP_SIZE

Weights = tuple[int, ...]


def weight_options(wanted: Sequence[float], *, by_ratio: bool, limit: int) -> list[Weights]:
    """Return up to `limit` ways of giving each of a group's next hops a weight of 0 or more, in order of preference.

    `wanted` are shares, not all 0. Weights of one ratio but different sums spread the hash values differently;
    `by_ratio` counts them as one, for traffic whose values are unknown.
    """
    total = sum(wanted)
    shares = [share / total for share in wanted]
    found = dict.fromkeys(_all_pairs() if len(wanted) == 2 else _near(shares))
    if by_ratio:
        found = dict.fromkeys(_reduced(weights) for weights in found)
    return sorted(found, key=lambda weights: (_distance(weights, shares), sum(weights), weights))[:limit]


def _all_pairs() -> Iterator[Weights]:
    for total in range(1, MAX_GROUP_SIZE + 1):
        yield from ((weight, total - weight) for weight in range(total + 1))


def _near(shares: Sequence[float]) -> Iterator[Weights]:
    """Yield for every sum the weights nearest to shares, and those that differ from them by one unit."""
    for total in range(1, MAX_GROUP_SIZE + 1):
        nearest = largest_remainder(shares, total)
        yield tuple(nearest)
        for giver, taker in permutations(range(len(shares)), 2):
            if nearest[giver]:
                other = list(nearest)
                other[giver] -= 1
                other[taker] += 1
                yield tuple(other)


def _reduced(weights: Weights) -> Weights:
    common = math.gcd(*weights)
    return tuple(weight // common for weight in weights)


def _distance(weights: Weights, shares: Iterable[float]) -> float:
    total = sum(weights)
    return round(max(abs(weight / total - share) for weight, share in zip(weights, shares, strict=True)), 6)
