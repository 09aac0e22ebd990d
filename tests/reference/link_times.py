"""The readable twin of `sharing`, in fractions: defines fair sharing of links, flow by flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

Shares = Mapping[int, Fraction]
"""The links that a flow crosses, with the share of it on each."""


def finishing_s(
    flows: Sequence[Shares], free_bps: Mapping[int, Fraction], sizes_bits: Sequence[Fraction]
) -> list[Fraction]:
    """Return the end of each flow (s) if all begin at 0, each with its own amount to send."""
    left = {number: size for number, size in enumerate(sizes_bits) if flows[number] and size}
    ends, now_s = [Fraction(0)] * len(flows), Fraction(0)
    while left:
        rates = fair_bps({number: flows[number] for number in left}, free_bps)
        step_s = min(bits / rates[number] for number, bits in left.items())
        now_s += step_s
        left = {number: bits - rates[number] * step_s for number, bits in left.items()}
        for number in [number for number, bits in left.items() if not bits]:
            ends[number] = now_s
            del left[number]
    return ends


def fair_bps(flows: Mapping[int, Shares], free_bps: Mapping[int, Fraction]) -> dict[int, Fraction]:
    """Return each flow's max-min fair rate: all rates grow equally until a link is full, which fixes its flows."""
    rates: dict[int, Fraction] = {}
    left, level = dict(free_bps), Fraction(0)
    while len(rates) < len(flows):
        growing = [number for number in flows if number not in rates]
        demand: dict[int, Fraction] = {}
        for number in growing:
            for link, share in flows[number].items():
                demand[link] = demand.get(link, Fraction(0)) + share
        step = min(left[link] / wanted for link, wanted in demand.items())
        level += step
        left.update({link: left[link] - step * wanted for link, wanted in demand.items()})
        for number in growing:
            if any(not left[link] for link in flows[number]):
                rates[number] = level
    return rates
