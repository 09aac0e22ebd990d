"""Allocates units by their worth: the k-th unit is worth weight / k to a holder that wants that many, else nothing.

That is the marginal worth of a concave utility (about weight x ln k), so giving each unit to the holder with the
highest worth is optimal, and in the end all holders that want more value one at about the same: the shadow price.
Minimum claims come first, then higher priority, then price. Wanted units without work are worth less than any with
work; units that no holder wants are freed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from controller.balance.allocation.values import Allocation, Claimant, Limits, Move


class _Class(IntEnum):
    SURPLUS = 0
    SPARE = 1
    WANTED = 2
    LEAST = 3


_Worth = tuple[int, int, float]
"""Class, priority, price: higher values are served first."""


def worth(claimant: Claimant, position: int) -> _Worth:
    """Return the worth of the unit at a position, from 1, to a holder."""
    price = claimant.weight / position
    if position > claimant.ceiling:
        return (_Class.SURPLUS, 0, 0.0)
    if position <= claimant.least:
        return (_Class.LEAST, claimant.priority, price)
    if claimant.busy is not None and position > claimant.busy:
        return (_Class.SPARE, claimant.priority, price)
    return (_Class.WANTED, claimant.priority, price)


def allocate(units: int, claimants: Sequence[Claimant], limits: Limits) -> Allocation:
    """Return the allocation of a pool's units, starting from the current one."""
    table = _Table(units, claimants, limits)
    table.free_surplus()
    table.give_free()
    table.exchange()
    return table.allocation()


@dataclass(slots=True)
class _Table:
    """The state of one allocation."""

    total: int
    claimants: Sequence[Claimant]
    limits: Limits
    now: dict[str, int] = field(init=False)
    free: int = field(init=False)
    left: int = field(init=False)
    moved: dict[tuple[str | None, str | None], int] = field(default_factory=dict[tuple[str | None, str | None], int])

    def __post_init__(self) -> None:
        self.now = {claimant.holder: claimant.units for claimant in self.claimants}
        self.free = self.total - sum(self.now.values())
        self.left = self.limits.moves

    def free_surplus(self) -> None:
        """Take back units that their holder does not want or may not have; more if fewer exist than are held."""
        for claimant in self.claimants:
            surplus = self.now[claimant.holder] - claimant.ceiling
            if surplus > 0 and claimant.may_give and not claimant.is_fixed:
                self._move(claimant.holder, None, min(surplus, self.left))
        losers = self._losers()
        while self.free < 0 and self.left and losers:
            loser = self._pop(losers, gains=False)
            if loser is not None:
                self._move(loser.holder, None, 1)
                self._push(losers, loser, gains=False)

    def give_free(self) -> None:
        """Give free units to the holders that value them most."""
        gainers = self._gainers()
        while self.free > 0 and self.left and gainers:
            gainer = self._pop(gainers, gains=True)
            if gainer is not None:
                self._move(None, gainer.holder, 1)
                self._push(gainers, gainer, gains=True)

    def exchange(self) -> None:
        """Take units from holders to which they are worth clearly less than to others."""
        gainers, losers = self._gainers(), self._losers()
        while self.left and gainers and losers:
            to, of = self._pop(gainers, gains=True), self._pop(losers, gains=False)
            if to is None or of is None:
                # One of them was stale: requeue the other one.
                if to is not None:
                    self._push(gainers, to, gains=True)
                if of is not None:
                    self._push(losers, of, gains=False)
                continue
            if to is of or not self._pays(to, of):
                return
            self._move(of.holder, to.holder, 1)
            self._push(gainers, to, gains=True)
            self._push(losers, of, gains=False)

    def allocation(self) -> Allocation:
        worths = {claimant.holder: worth(claimant, self.now[claimant.holder] + 1) for claimant in self.claimants}
        first = sorted(self.claimants, key=lambda claimant: (worths[claimant.holder], claimant.holder), reverse=True)
        wanting = [worths[claimant.holder] for claimant in self.claimants if not claimant.is_fixed]
        return Allocation(
            units={claimant.holder: self.now[claimant.holder] for claimant in first},
            moves=tuple(Move(source, target, units) for (source, target), units in self.moved.items()),
            prices={holder: price for holder, (_, _, price) in worths.items()},
            shadow_price=max(wanting, default=(0, 0, 0.0))[2],
        )

    def _pays(self, to: Claimant, of: Claimant) -> bool:
        gained, lost = worth(to, self.now[to.holder] + 1), worth(of, self.now[of.holder])
        if gained[:2] != lost[:2]:
            return gained[:2] > lost[:2]
        return gained[2] > lost[2] * (1.0 + self.limits.margin)

    def _move(self, source: str | None, target: str | None, units: int) -> None:
        if source is None:
            self.free -= units
        else:
            self.now[source] -= units
        if target is None:
            self.free += units
        else:
            self.now[target] += units
        self.left -= units
        if units:
            self.moved[source, target] = self.moved.get((source, target), 0) + units

    def _gainers(self) -> _Heap:
        return self._heap((claimant for claimant in self.claimants if not claimant.is_fixed), gains=True)

    def _losers(self) -> _Heap:
        return self._heap(
            (claimant for claimant in self.claimants if claimant.may_give and not claimant.is_fixed), gains=False
        )

    def _heap(self, claimants: Iterable[Claimant], *, gains: bool) -> _Heap:
        heap: _Heap = []
        for claimant in claimants:
            self._push(heap, claimant, gains=gains)
        return heap

    def _push(self, heap: _Heap, claimant: Claimant, *, gains: bool) -> None:
        """Put a holder into its queue, unless it wants no more, or has no more to give."""
        units = self.now[claimant.holder]
        rank = worth(claimant, units + 1 if gains else units) if units or gains else (_Class.LEAST, 0, 0.0)
        if (gains and rank[0] == _Class.SURPLUS) or (not gains and rank[0] == _Class.LEAST):
            return
        order = (-rank[0], -rank[1], -rank[2]) if gains else rank
        heapq.heappush(heap, (order, claimant.holder, units, claimant))

    def _pop(self, heap: _Heap, *, gains: bool) -> Claimant | None:
        """Remove the first holder; return None, after requeueing it, if its units have changed since."""
        _, holder, units, claimant = heapq.heappop(heap)
        if self.now[holder] == units:
            return claimant
        self._push(heap, claimant, gains=gains)
        return None


_Heap = list[tuple[_Worth | tuple[int, int, float], str, int, Claimant]]
