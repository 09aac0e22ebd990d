"""Ways through code: what is read before it was written, and where ways part and meet."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Generic, TypeVar

Place = TypeVar("Place", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Use:
    """What code does to fields, as sets of bits.

    `exposed` are read where they may not have been written before, `written` are written on every way through.
    """

    exposed: int = 0
    written: int = 0

    def then(self, following: Use) -> Use:
        """Return what this code and the following do, one behind the other."""
        return Use(self.exposed | following.exposed & ~self.written, self.written | following.written)


@dataclass(frozen=True, slots=True)
class Way(Generic[Place]):
    """What may come next (None: the end), and the fields of which it is known on this way that they were written."""

    to: Place | None
    known: int = 0


def in_sequence(uses: Iterable[Use]) -> Use:
    """Return what pieces of code do, one behind the other."""
    return reduce(Use.then, uses, Use())


def in_graph(uses: Mapping[Place, Use], ways: Mapping[Place, Sequence[Way[Place]]], first: Place | None) -> Use:
    """Return what a graph of code does that begins at `first`; what follows and is not among `uses` is its end."""
    if first not in uses:
        return Use()
    assert first is not None
    order = places_in_order({place: [way.to for way in found] for place, found in ways.items()}, first)
    before: dict[Place, int] = dict.fromkeys(order, -1)
    before[first] = 0
    leaving, changed = -1, True
    while changed:
        changed = False
        for place in order:
            for way in ways[place]:
                behind = before[place] | uses[place].written | way.known
                if way.to is None or way.to not in uses:
                    leaving &= behind
                elif before[way.to] & ~behind:
                    before[way.to] &= behind
                    changed = True
    exposed = reduce(int.__or__, (uses[place].exposed & ~before[place] for place in order), 0)
    return Use(exposed, leaving)


def places_in_order(following: Mapping[Place, Sequence[Place | None]], first: Place) -> list[Place]:
    """Return all that can be reached, each in front of what follows it, as far as there are no circles."""
    done: list[Place] = []
    met: set[Place] = {first}
    stack = [(first, iter(following[first]))]
    while stack:
        place, ways = stack[-1]
        for name in ways:
            if name is not None and name in following and name not in met:
                met.add(name)
                stack.append((name, iter(following[name])))
                break
        else:
            done.append(place)
            stack.pop()
    return done[::-1]


def gates(following: Mapping[Place, Sequence[Place | None]], first: Place) -> Callable[[Place, Place], Place]:
    """Return a function to the last place that each way to either of two places leads through; no circles, please."""
    order = places_in_order(following, first)
    number = {place: position for position, place in enumerate(order)}
    above: dict[Place, Place] = {first: first}

    def common(one: Place, other: Place) -> Place:
        while one != other:
            if number[one] < number[other]:
                other = above[other]
            else:
                one = above[one]
        return one

    for place in order:
        for name in following[place]:
            if name is not None and name in number:
                above[name] = common(above[name], place) if name in above else place
    return common
