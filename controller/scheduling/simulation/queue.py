"""Waiting units, grouped by request: units with the same request are refused together.

A refused unit can only be placed once a node has more free than before, so after a release only units that might fit on
that node are tried again. That is valid if each filter considers only the node itself (`is_local`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from heapq import heapify, heappop, heappush

from controller.cluster.hardware import Request
from controller.scheduling.simulation.workload import Unit

Key = tuple[int, int, int]
"""Priority (negative), waiting since, number: the order in which units are placed."""


class Order(StrEnum):
    """Rule for units behind one in the queue that does not fit yet: they wait, or overtake it."""

    STRICT = "strict"
    OVERTAKING = "overtaking"


@dataclass(frozen=True, slots=True)
class Free:
    """Free resources of a node after a release; for devices, thousandths over all of them."""

    cpu_milli: int
    memory_bytes: int
    device_milli: int

    def may_fit(self, needs: Free) -> bool:
        """Return whether a request might fit there."""
        return (
            needs.cpu_milli <= self.cpu_milli
            and needs.memory_bytes <= self.memory_bytes
            and needs.device_milli <= self.device_milli
        )


@dataclass(slots=True)
class Shape:
    """Units with the same request; `needs` is the minimum over members and variants, resource by resource."""

    asks: object
    needs: Free
    waiting: list[tuple[Key, Unit]] = field(default_factory=list)
    is_refused: bool = False

    @property
    def key(self) -> Key:
        """The position of its first unit."""
        return self.waiting[0][0]


class Queue:
    """Waiting units; `distinct` means that equal requests may get different answers."""

    def __init__(self, order: Order, *, distinct: bool = False) -> None:
        self._order, self._distinct = order, distinct
        self._shapes: dict[object, Shape] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, unit: Unit, since_ns: int) -> None:
        """Add a unit."""
        asks = unit.number if self._distinct else tuple(variant.requests for variant in unit.variants)
        if (shape := self._shapes.get(asks)) is None:
            shape = self._shapes[asks] = Shape(asks, _needs(unit))
        heappush(shape.waiting, ((-unit.priority, since_ns, unit.number), unit))
        self._length += 1

    def to_try(self, freed: Iterable[Free], *, all_shapes: bool = False) -> Iterator[tuple[Shape, Unit]]:
        """Yield units that may be placed now, in order; the caller answers each with `placed`, `refused` or `drop`."""
        nodes = list(freed)
        for shape in self._shapes.values():
            if shape.is_refused and (all_shapes or any(node.may_fit(shape.needs) for node in nodes)):
                shape.is_refused = False
        if self._order is Order.STRICT:
            yield from self._in_strict_order()
            return
        shapes = self._shapes.values()
        ready = [(shape.key, position, shape) for position, shape in enumerate(shapes) if not shape.is_refused]
        heapify(ready)
        while ready:
            _, position, shape = heappop(ready)
            yield shape, shape.waiting[0][1]
            if _is_ready(shape):
                heappush(ready, (shape.key, position, shape))

    def placed(self, shape: Shape) -> None:
        """Remove a shape's first unit."""
        heappop(shape.waiting)
        self._length -= 1
        if not shape.waiting:
            del self._shapes[shape.asks]

    def refused(self, shape: Shape) -> None:
        """Record that no unit of a shape can be placed until more is free."""
        shape.is_refused = True

    def drop(self, shape: Shape) -> list[Unit]:
        """Remove and return all units of a shape."""
        units = [unit for _, unit in sorted(shape.waiting, key=lambda entry: entry[0])]
        self._length -= len(units)
        shape.waiting.clear()
        del self._shapes[shape.asks]
        return units

    def __iter__(self) -> Iterator[Unit]:
        return (unit for shape in self._shapes.values() for _, unit in shape.waiting)

    def _in_strict_order(self) -> Iterator[tuple[Shape, Unit]]:
        while shape := min(self._shapes.values(), key=lambda shape: shape.key, default=None):
            if shape.is_refused:
                return
            yield shape, shape.waiting[0][1]


def _is_ready(shape: Shape) -> bool:
    return bool(shape.waiting) and not shape.is_refused


def _needs(unit: Unit) -> Free:
    requests = [request for variant in unit.variants for request in variant.requests]
    return Free(
        min(request.cpu_milli for request in requests),
        min(request.memory_bytes for request in requests),
        min(_device_milli(request) for request in requests),
    )


def _device_milli(request: Request) -> int:
    return sum(device.count * device.thousandths for device in request.devices)
