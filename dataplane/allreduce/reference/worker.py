"""A worker's part of the slot protocol and of an all-reduce of floats: the reference for the packet engine."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce import formats
from dataplane.allreduce.checks import CODE, check_of_one, is_maximum, weighted
from dataplane.allreduce.formats import BLOCK, Floats, Lanes
from dataplane.allreduce.schedule import GROUP, ItemKind, Part, Schedule
from dataplane.wire.aggregation import QUARTER_BYTES, QUARTERS, Aggregation, Flags, Kind, Operation, Reason


@dataclass(frozen=True, slots=True)
class Membership:
    """A worker's settings: the job, its window (half of its cells), its capacity, the epoch."""

    job: int
    window: int
    capacity: int
    epoch: int
    nonce: int = 0
    contributors: int | None = None
    """Number of workers that results cover; None: unknown."""


class Worker:
    """One all-reduce: `outstanding()` yields the packets to (re)send, `receive` takes answers until `is_done`."""

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
        self._begun: dict[int, int] = {}
        """The epoch in which an item was first sent, by its index among the parts."""
        self.malformed = self.forged = self.corrupt = 0
        """Rejected results: impossible for a switch, with another nonce, or failing their check."""

    @property
    def is_done(self) -> bool:
        """True if every item has its result."""
        return self._schedule.is_known and len(self._received) == len(self._schedule.parts)

    @property
    def next_item(self) -> int:
        """The number that the next all-reduce begins with; meaningful once this one is done."""
        return (self._first + len(self._schedule.parts)) % 2**32

    @property
    def result(self) -> Floats:
        """Sums, or means over the contributing workers, as many as there were values."""
        return self._sums.reshape(-1)[: self._size]

    def outstanding(self, sent: Container[tuple[int, int]] = ()) -> Iterator[Aggregation]:
        """Yield a contribution for each sendable item without a result, except those in `sent`: (item, epoch)."""
        for number, part in enumerate(self._schedule.parts):
            before = number - self._membership.window
            may_go = number not in self._received and (before < 0 or before in self._received)
            if may_go and (self._item(number), self.epoch) not in sent:
                self._begun.setdefault(number, self.epoch)
                yield self._contribution(number, part)

    def receive(self, packet: Aggregation) -> None:
        """Process a result or a membership change; duplicates have no effect."""
        if packet.nonce != self._membership.nonce:
            self.forged += 1
            return
        if packet.kind is Kind.REFUSED:
            self.epoch = packet.epoch if packet.reason is Reason.EPOCH else self.epoch
            return
        number = (packet.item - self._first) % 2**32
        if number in self._received or number >= len(self._schedule.parts):
            return
        part = self._schedule.parts[number]
        if not self._is_sound(number, packet):
            self.malformed += 1
            return
        if not self._is_intact(number, packet):
            self.corrupt += 1
            return
        self._received.add(number)
        if part.what is ItemKind.EXPONENTS:
            agreed, marks = (np.frombuffer(packet.values, ">u2") // CODE).astype(np.uint16).reshape(2, GROUP)
            self._agreed[part.at * GROUP :][:GROUP] = agreed
            self._schedule.settle(part.at, agreed, marks)
            return
        lanes = np.frombuffer(packet.values, ">i4").astype(np.int32)
        row = self._sums[part.at]
        if part.what is ItemKind.CLASSES:
            self._counts[part.at] = lanes
        else:
            row[:] = self._sum(part, lanes, packet.workers if self._mean else 1)
        if part.at in self._counts:  # which may arrive before or after the sum
            row[:] = formats.with_classes(row, self._counts[part.at])

    def _is_sound(self, number: int, packet: Aggregation) -> bool:
        operation = Operation.SUM if self._schedule.parts[number].what is ItemKind.BLOCK else Operation.MAX
        is_whole = packet.operation is operation and len(packet.values) == QUARTERS * QUARTER_BYTES
        begun = self._begun.get(number, self.epoch)
        is_of_its_time = (packet.epoch - begun) % 2**16 <= (self.epoch - begun) % 2**16
        return is_whole and is_of_its_time

    def _is_intact(self, number: int, packet: Aggregation) -> bool:
        """Return whether a result matches, by its check, what all workers sent."""
        part, contributors = self._schedule.parts[number], self._membership.contributors
        if not 0 < packet.workers <= self._membership.capacity or Flags.SATURATED in packet.flags:
            return False
        if contributors is not None and packet.workers != contributors:
            return False
        check = (packet.check - packet.workers * self._check_of_one(number, part)) % 2**64
        if part.what is ItemKind.BLOCK:
            return check == weighted(np.frombuffer(packet.values, ">i4"))
        lanes = np.frombuffer(packet.values, ">u2").reshape(2, GROUP)
        own = np.frombuffer(self._lanes(part)[1].tobytes(), ">u2").reshape(2, GROUP)
        most = formats.MOST_EXPONENT if part.what is ItemKind.EXPONENTS else 1
        return check == 0 and is_maximum(lanes[0], own[0], most) and is_maximum(lanes[1], own[1], 1)

    def _check_of_one(self, number: int, part: Part) -> int:
        shift = self._shift(part) if part.what is ItemKind.BLOCK else 0
        return check_of_one(self._membership.nonce, self._item(number), shift)

    def _shift(self, part: Part) -> int:
        return 30 - formats.headroom(self._membership.capacity) - (int(self._agreed[part.at]) - formats.BIAS)

    def _sum(self, part: Part, lanes: Lanes, divisor: int) -> Floats:
        agreed = self._agreed[part.at : part.at + 1]
        return formats.from_lanes(lanes[None], agreed, self._membership.capacity, divisor).reshape(-1)

    def _item(self, number: int) -> int:
        return (self._first + number) % 2**32

    def _contribution(self, number: int, part: Part) -> Aggregation:
        operation, lanes = self._lanes(part)
        check = self._check_of_one(number, part) + (weighted(lanes) if operation is Operation.SUM else 0)
        return Aggregation(
            Kind.CONTRIBUTION,
            self._membership.job,
            self._item(number),
            self.epoch,
            operation=operation,
            values=lanes.tobytes(),
            nonce=self._membership.nonce,
            check=check % 2**64,
        )

    def _lanes(self, part: Part) -> tuple[Operation, NDArray[np.generic]]:
        if part.what is ItemKind.EXPONENTS:
            exponents, marks = formats.exponents(self._blocks[part.at * GROUP :][:GROUP])
            lanes = np.zeros((2, GROUP), ">u2")
            lanes[0, : exponents.size], lanes[1, : marks.size] = exponents * CODE, marks * CODE
            return Operation.MAX, lanes
        block = self._blocks[part.at : part.at + 1]
        if part.what is ItemKind.CLASSES:
            return Operation.MAX, formats.classes(block).astype(">i4")
        agreed = self._agreed[part.at : part.at + 1]
        return Operation.SUM, formats.to_lanes(block, agreed, self._membership.capacity).astype(">i4")
