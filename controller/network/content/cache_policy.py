"""Choice of the names that a switch caches: those requested most in the last interval."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from dataplane.store.names import HotName, Segment

ADVANTAGE: Final = 1.25
"""Factor by which a name must be more popular than a held one to take its cell; keeps equals from alternating."""


@dataclass(frozen=True, slots=True)
class HeldName:
    """A name that the switch holds, its cell, and its packets in the last interval."""

    segment: Segment
    cell: int
    packets: int


@dataclass(frozen=True, slots=True)
class Insertion:
    """A name's new cell and its generation."""

    segment: Segment
    cell: int
    generation: int


@dataclass(frozen=True, slots=True)
class Choice:
    """Changes to make; evictions precede insertions, which may reuse their cells."""

    evicted: tuple[HeldName, ...] = ()
    inserted: tuple[Insertion, ...] = ()


def choose(held: Collection[HeldName], hot: Collection[HotName], *, cells: Sequence[int], generation: int) -> Choice:
    """Return the insertions and evictions, the hottest names first into free cells, then in place of the least popular.

    `cells` are those that copies may have; `generation` is the first unused one: each insertion takes one.
    """
    there = {one.segment for one in held}
    wanted: dict[Segment, int] = {}
    for one in hot:
        if one.segment not in there:
            wanted[one.segment] = max(one.requests, wanted.get(one.segment, 0))
    taken = {one.cell for one in held}
    free = [cell for cell in cells if cell not in taken]
    coldest = sorted(held, key=lambda one: (one.packets, one.cell))
    evicted, inserted = [], []
    hottest = sorted(wanted.items(), key=lambda one: (-one[1], one[0].name, one[0].number))
    for number, (segment, requests) in enumerate(hottest):
        if number < len(free):
            cell = free[number]
        else:
            rank = number - len(free)
            if rank >= len(coldest) or requests <= ADVANTAGE * coldest[rank].packets:
                break
            evicted.append(coldest[rank])
            cell = coldest[rank].cell
        inserted.append(Insertion(segment, cell, generation + number))
    return Choice(tuple(evicted), tuple(inserted))
