"""Reference implementation of the cost map: one pair at a time, over every possible path, in fractions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from controller.cluster.cost_map.columns import AVAILABLE, LinkColumns
from controller.cluster.cost_map.routing import Routing
from controller.cluster.cost_map.values import NEVER_NS, PPB, UNLIMITED_BPS
from controller.network.algorithms.link_table import LinkTable


@dataclass(frozen=True, slots=True)
class PairFigures:
    """Exact figures of a pair's `HostCost`: delay (ns) and loss (a share) are means over paths, weighted by share.

    `measured` are the bits of figures measured on all links, `partly` those measured on any; `access` means that the
    host measured its own link.
    """

    delay_ns: Fraction
    available_bps: int
    loss: Fraction
    age_ns: int
    measured: int
    partly: int
    access: bool


def pair_figures(routing: Routing, links: LinkColumns, src: int, dst: int) -> PairFigures | None:
    """Return the figures of two different hosts by index, None if no packet arrives."""
    model = routing.model
    start, target = int(model.host_switch[src]), int(model.host_destination[dst])
    own = routing.own_paths.get((src, dst))
    paths = [(tuple(own.tolist()), Fraction(1))] if own is not None else list(_paths(routing, start, target))
    up, down = model.up.start + src, len(links.rate_bps) - len(model.hosts) + dst
    ways = [((up, *rows, down), share) for rows, share in paths]
    if not ways:
        return None
    crossed = sorted({row for rows, _ in ways for row in rows})
    telling = [row for row in crossed if row != up]
    return PairFigures(
        delay_ns=sum((share * sum(int(links.delay_ns[row]) for row in rows) for rows, share in ways), Fraction(0)),
        available_bps=min((int(links.available_bps[row]) for row in crossed), default=UNLIMITED_BPS),
        loss=1 - sum((share * _arriving(links, rows) for rows, share in ways), Fraction(0)),
        age_ns=max((int(links.age_ns[row]) for row in crossed), default=NEVER_NS),
        measured=_all_bits(links, telling),
        partly=_any_bits(links, crossed),
        access=bool(links.measured[up] & AVAILABLE),
    )


def _paths(routing: Routing, switch: int, target: int) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    """Yield every path from a switch to a destination as rows of links, with the share of flows that take it."""
    table: LinkTable = routing.model.table
    if switch == int(routing.model.destinations[target]):
        yield (), Fraction(1)
        return
    leaving = table.leaving(switch)
    weights = {row: int(routing.weights[target, row]) for row in leaving if routing.weights[target, row]}
    for row, weight in weights.items():
        for rest, share in _paths(routing, int(table.head[row]), target):
            yield (row, *rest), share * Fraction(weight, sum(weights.values()))


def _arriving(links: LinkColumns, rows: tuple[int, ...]) -> Fraction:
    share = Fraction(1)
    for row in rows:
        share *= 1 - Fraction(int(links.loss_ppb[row]), PPB)
    return share


def _all_bits(links: LinkColumns, rows: list[int]) -> int:
    bits = 7
    for row in rows:
        bits &= int(links.measured[row])
    return bits


def _any_bits(links: LinkColumns, rows: list[int]) -> int:
    bits = 0
    for row in rows:
        bits |= int(links.measured[row])
    return bits
