"""A worker's part of the slot protocol, and of an all-reduce of floats: what the packet engine is compared with."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce import formats
from dataplane.allreduce.formats import BLOCK, Floats, Lanes
from dataplane.allreduce.schedule import GROUP, ItemKind, Part, Schedule
from dataplane.wire.aggregation import QUARTER_BYTES, QUARTERS, Aggregation, Kind, Operation, Reason


@dataclass(frozen=True, slots=True)
class Membership:
    """A worker's settings: the job, its window (half of its cells), how many may join, the epoch."""

    job: int
    window: int
    capacity: int
    epoch: int


class Worker:
    """One all-reduce: `outstanding()` are the packets to send (again), `receive` takes answers until `is_done`."""

    def __init__(self, membership: Membership, values: Floats, first_item: int = 0, *, mean: bool = False) -> None:
        self.epoch = membership.epoch
        self._membership, self._first, self._mean = membership, first_item, mean
        blocks = -(-values.size // BLOCK)
        self._size = values.size
        self._blocks = np.zeros((blocks, BLOCK), np.float32)
        self._blocks.reshape(-1)[: values.size] = values
        self._sums = np.zeros((blocks, BLOCK), np.float32)
        self._agreed = np.zeros(-(-blocks // GROUP) * GROUP, np.uint16)
        self._schedule = Schedule(blocks)
        self._received: set[int] = set()
        self._counts: dict[int, Lanes] = {}
        self.malformed = 0
        """Results that no switch can have sent; they were not taken."""

    @property
    def is_done(self) -> bool:
        """Whether every item has its result."""
        return self._schedule.is_known and len(self._received) == len(self._schedule.parts)

    @property
    def next_item(self) -> int:
        """The number that the next all-reduce begins with; of use once this one is done."""
        return (self._first + len(self._schedule.parts)) % 2**32

    @property
    def result(self) -> Floats:
        """Sums, or means over the workers whose values are in them, as many as there were values."""
        return self._sums.reshape(-1)[: self._size]

    def outstanding(self, sent: Container[tuple[int, int]] = ()) -> Iterator[Aggregation]:
        """Yield a contribution for each item that may be sent and has no result, but for those sent: (item, epoch)."""
        for number, part in enumerate(self._schedule.parts):
            before = number - self._membership.window
            may_go = number not in self._received and (before < 0 or before in self._received)
            if may_go and (self._item(number), self.epoch) not in sent:
                yield self._contribution(number, part)

    def receive(self, packet: Aggregation) -> None:
        """Take a result, or the news that membership has changed; repeated ones do nothing."""
        if packet.kind is Kind.REFUSED:
            self.epoch = packet.epoch if packet.reason is Reason.EPOCH else self.epoch
            return
        number = (packet.item - self._first) % 2**32
        if number in self._received or number >= len(self._schedule.parts):
            return
        part = self._schedule.parts[number]
        if not self._is_sound(part, packet):
            self.malformed += 1
            return
        self._received.add(number)
        if part.what is ItemKind.EXPONENTS:
            agreed, marks = np.frombuffer(packet.values, ">u2").astype(np.uint16).reshape(2, GROUP)
            self._agreed[part.at * GROUP :][:GROUP] = agreed
            self._schedule.settle(part.at, agreed, marks)
            return
        lanes = np.frombuffer(packet.values, ">i4").astype(np.int32)
        row = self._sums[part.at]
        if part.what is ItemKind.CLASSES:
            self._counts[part.at] = lanes
        else:
            row[:] = self._sum(part, lanes, packet.workers if self._mean else 1)
        if part.at in self._counts:  # which may come before the sum or behind it
            row[:] = formats.with_classes(row, self._counts[part.at])

    def _is_sound(self, part: Part, packet: Aggregation) -> bool:
        operation = Operation.SUM if part.what is ItemKind.BLOCK else Operation.MAX
        is_whole = packet.operation is operation and len(packet.values) == QUARTERS * QUARTER_BYTES
        return is_whole and 0 < packet.workers <= self._membership.capacity

    def _sum(self, part: Part, lanes: Lanes, divisor: int) -> Floats:
        agreed = self._agreed[part.at : part.at + 1]
        return formats.from_lanes(lanes[None], agreed, self._membership.capacity, divisor).reshape(-1)

    def _item(self, number: int) -> int:
        return (self._first + number) % 2**32

    def _contribution(self, number: int, part: Part) -> Aggregation:
        operation, lanes = self._lanes(part)
        return Aggregation(
            Kind.CONTRIBUTION,
            self._membership.job,
            self._item(number),
            self.epoch,
            operation=operation,
            values=lanes.tobytes(),
        )

    def _lanes(self, part: Part) -> tuple[Operation, NDArray[np.generic]]:
        if part.what is ItemKind.EXPONENTS:
            exponents, marks = formats.exponents(self._blocks[part.at * GROUP :][:GROUP])
            lanes = np.zeros((2, GROUP), ">u2")
            lanes[0, : exponents.size], lanes[1, : marks.size] = exponents, marks
            return Operation.MAX, lanes
        block = self._blocks[part.at : part.at + 1]
        if part.what is ItemKind.CLASSES:
            return Operation.MAX, formats.classes(block).astype(">i4")
        agreed = self._agreed[part.at : part.at + 1]
        return Operation.SUM, formats.to_lanes(block, agreed, self._membership.capacity).astype(">i4")
