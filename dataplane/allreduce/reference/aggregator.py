"""A switch's part of the slot protocol.

A job has 2 W cells, a power of two; item i lives in cell i mod 2 W. A worker sends item i only once it has the result
of i - W. So each contributor to i has the result of i - W, to which all have contributed, who therefore had that of i -
2 W: the cell's content for i - 2 W is no longer needed, and the first contribution to i overwrites it. The two halves
are SwitchML's shadow sets; with the item's number in the cell nothing has to be cleared, and packets that the network
delayed for long are recognised by their number.

Membership changes by epoch: the controller writes a job's children and epoch at once. A contribution of another epoch
is refused; incomplete items are overwritten by contributions of the new epoch; but a complete result stays the result
of its item, so that workers with and without it agree, whenever the change comes.

No answer is longer than its request: no sender can make the switch flood another host, and bmv2, which has 512 bytes of
room for a packet to grow, is safe. A request for a result without a contribution carries as many zeros.

A packet without the job's nonce changes nothing and gets no answer. Checks of contributions are added up modulo 2^64;
interpreting them is up to the workers.

With two levels a leaf sends its rack's sum to its parent as one contribution, and keeps the parent's result.

The main server's DISTRIBUTE completes an item at once, without contributions: its value is the result. It may begin
once all workers have contributed to an item with CALL, which shows that nobody needs older ones, and ends each window
with an item to which all contribute. Its acknowledgement is its copy of the result. A leaf keeps the value as it does
any result, and asks its parent for one that a child requests (PULL) and it lacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dataplane.allreduce.reference.lanes import combine
from dataplane.wire.aggregation import NO_FLAGS, Aggregation, Flags, Kind, Reason, age

MOST_WORKERS = 0xFFFF
"""Maximum of the header's field; further workers are not counted."""


@dataclass(frozen=True, slots=True)
class Job:
    """A job in one switch: `children` is the mask of required contributors; a leaf has a parent."""

    epoch: int
    children: int
    cells: int
    leaf: bool = False
    nonce: int = 0


@dataclass(frozen=True, slots=True)
class Cell:
    """Contents of a cell; `done`: the value is the item's result; `seen` are the children that have contributed."""

    job: int = 0
    epoch: int = 0
    item: int = 0
    seen: int = 0
    done: bool = False
    value: Aggregation | None = None


@dataclass(frozen=True, slots=True)
class Unicast:
    """To one child."""

    child: int
    packet: Aggregation


@dataclass(frozen=True, slots=True)
class Multicast:
    """To all children of the job, and to the main server if the packet is FINAL."""

    packet: Aggregation


@dataclass(frozen=True, slots=True)
class Up:
    """To the parent."""

    packet: Aggregation


Sent = Unicast | Multicast | Up


def contribute(job: Job, cell: Cell, child: int, packet: Aggregation) -> tuple[Cell, Sent | None, str]:
    """Process a CONTRIBUTION or PULL of a child, given by number; return the cell, the packet sent, and the outcome.

    Outcomes are the names of the switch's counters: stale, again, epoch, mismatch, repeated, opened, added, complete,
    forged.
    """
    if packet.nonce != job.nonce:
        return cell, None, "forged"
    if packet.kind is Kind.CONTRIBUTION:
        packet = replace(packet, flags=packet.flags & ~Flags.DISTRIBUTED)
    is_filled = cell.value is not None and cell.job == packet.job
    if (answer := _answer(job, cell, child, packet)) is not None:
        return cell, *answer
    if packet.kind is not Kind.CONTRIBUTION or (is_filled and age(packet.item, than=cell.item) < 0):
        return cell, None, "stale"
    if packet.epoch != job.epoch:
        refused = replace(packet, kind=Kind.REFUSED, epoch=job.epoch, reason=Reason.EPOCH, values=b"")
        return cell, Unicast(child, refused), "epoch"
    bit = 1 << child
    if not bit & job.children:
        return cell, None, "stale"
    if not (is_filled and cell.item == packet.item and cell.epoch == job.epoch and cell.value is not None):
        opened = Cell(packet.job, job.epoch, packet.item, bit, done=False, value=packet)
        return _counted(job, opened, "opened")
    value = cell.value
    if (value.operation, len(value.values)) != (packet.operation, len(packet.values)):
        return cell, Unicast(child, _mismatch(packet)), "mismatch"
    if cell.seen & bit:
        upwards = Up(value) if job.leaf and cell.seen == job.children else None
        return cell, upwards, "repeated"
    values, saturated = combine(value.operation, value.values, packet.values)
    flags = value.flags | packet.flags | (Flags.SATURATED if saturated else NO_FLAGS)
    workers, check = min(value.workers + packet.workers, MOST_WORKERS), (value.check + packet.check) % 2**64
    added = replace(value, values=values, flags=flags, workers=workers, check=check)
    return _counted(job, replace(cell, seen=cell.seen | bit, value=added), "added")


def _answer(job: Job, cell: Cell, child: int, packet: Aggregation) -> tuple[Sent, str] | None:
    """Return the answer to a packet of a finished item, or to a request for one that the parent has."""
    is_filled = cell.value is not None and cell.job == packet.job
    if is_filled and cell.item == packet.item and cell.done and cell.value is not None:
        if len(packet.values) < len(cell.value.values):
            return Unicast(child, _mismatch(packet)), "mismatch"
        return Unicast(child, replace(cell.value, kind=Kind.AGAIN)), "again"
    is_late = is_filled and age(packet.item, than=cell.item) < 0
    if packet.kind is Kind.PULL and job.leaf and Flags.DISTRIBUTED in packet.flags and not is_late:
        return Up(packet), "stale"
    return None


def distribute(job: Job, cell: Cell, server: int, packet: Aggregation) -> tuple[Cell, Sent | None, str]:
    """Process a DISTRIBUTE of the main server, given by its number; return as `contribute` does."""
    if packet.nonce != job.nonce:
        return cell, None, "forged"
    if (answer := _answer(job, cell, server, packet)) is not None:
        return cell, *answer
    if cell.value is not None and cell.job == packet.job:
        if age(packet.item, than=cell.item) < 0:
            return cell, None, "stale"
        if cell.item == packet.item:
            return cell, Unicast(server, _mismatch(packet)), "mismatch"
    flags = packet.flags | Flags.DISTRIBUTED
    result = replace(packet, kind=Kind.RESULT, flags=flags, epoch=job.epoch)
    return Cell(packet.job, job.epoch, packet.item, job.children, True, result), Multicast(result), "complete"


def accept(job: Job, cell: Cell, packet: Aggregation) -> tuple[Cell, Sent | None, str]:
    """Process a packet of the parent; return the cell, the packet sent, and the outcome: complete, stale or forged."""
    if packet.nonce != job.nonce:
        return cell, None, "forged"
    is_filled = cell.value is not None and cell.job == packet.job
    is_current = is_filled and cell.item == packet.item
    result = replace(packet, kind=Kind.RESULT)
    if packet.kind in (Kind.RESULT, Kind.AGAIN) and Flags.DISTRIBUTED in packet.flags and not is_current:
        if is_filled and age(packet.item, than=cell.item) < 0:
            return cell, None, "stale"
        new = Cell(packet.job, packet.epoch, packet.item, job.children, True, result)
        return new, Multicast(result), "complete"
    if not is_current or cell.done or packet.kind not in (Kind.RESULT, Kind.AGAIN):
        return cell, None, "stale"
    return replace(cell, done=True, value=result), Multicast(result), "complete"


def _mismatch(packet: Aggregation) -> Aggregation:
    return replace(packet, kind=Kind.REFUSED, reason=Reason.MISMATCH, values=b"")


def _counted(job: Job, cell: Cell, what: str) -> tuple[Cell, Sent | None, str]:
    if cell.seen != job.children or cell.value is None:
        return cell, None, what
    if job.leaf:
        return cell, Up(cell.value), what
    result = replace(cell.value, kind=Kind.RESULT)
    return replace(cell, done=True, value=result), Multicast(result), "complete"


class Aggregator:
    """Jobs and cells of one switch, and its counters."""

    def __init__(self, jobs: Mapping[int, Job]) -> None:
        self.jobs = dict(jobs)
        self.counts: dict[str, int] = {}
        self._cells: dict[tuple[int, int], Cell] = {}
        self._newest: dict[int, int] = {}

    def from_child(self, child: int, packet: Aggregation) -> Sent | None:
        """Process a child's packet; raise KeyError for an unknown job."""
        job = self.jobs[packet.job]
        return self._keep(packet, *contribute(job, self._cell(packet), child, packet))

    def from_server(self, server: int, packet: Aggregation) -> Sent | None:
        """Process a packet of the main server, a child without a bit; raise KeyError for an unknown job."""
        job = self.jobs[packet.job]
        if Flags.CALL in packet.flags:
            packet = replace(packet, item=self._newest.get(packet.job, 0))
        process = distribute if packet.kind is Kind.DISTRIBUTE else contribute
        return self._keep(packet, *process(job, self._cell(packet), server, packet))

    def from_parent(self, packet: Aggregation) -> Sent | None:
        """Process a parent's packet; raise KeyError for an unknown job."""
        return self._keep(packet, *accept(self.jobs[packet.job], self._cell(packet), packet))

    def _place(self, packet: Aggregation) -> tuple[int, int]:
        return packet.job, packet.item % self.jobs[packet.job].cells

    def _cell(self, packet: Aggregation) -> Cell:
        return self._cells.get(self._place(packet), Cell())

    def _keep(self, packet: Aggregation, cell: Cell, sent: Sent | None, what: str) -> Sent | None:
        before = self._cells.get(self._place(packet))
        if cell.value is not None and (before is None or before.item != cell.item):
            newest = self._newest.get(packet.job, 0)
            is_behind = (newest - cell.item) % 2**32 >= self.jobs[packet.job].cells
            self._newest[packet.job] = cell.item if is_behind else newest
        self._cells[self._place(packet)] = cell
        self.counts[what] = self.counts.get(what, 0) + 1
        return sent
