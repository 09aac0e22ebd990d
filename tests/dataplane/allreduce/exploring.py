"""Every schedule of a small job: loss, repetition, delay, reordering, deaths, newcomers, late news.

The network is the set of all packets ever sent. Any of them may be delivered at any time, any number of times, or
never: that covers loss, repetition and reordering without a bound. So sending early costs nothing:
every worker sends as soon as it may. The order of deliveries remains to be explored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dataplane.allreduce.reference.aggregator import Cell, Job, Multicast, Sent, Unicast, accept, contribute
from dataplane.allreduce.reference.lanes import int32s, of_int32s
from dataplane.wire.aggregation import Aggregation, Kind

T = TypeVar("T")
JOB = 7
ROOT = 0


@dataclass(frozen=True)
class Case:
    """Racks of workers below a root (one rack: the root itself adds up), window, items, and the worker that dies.

    Or the one that joins, and its first item: the others are held there until all switches know it, unless disabled.
    """

    racks: tuple[tuple[int, ...], ...]
    window: int
    items: int
    dies: int | None = None
    joins: int | None = None
    joins_at: int = 0
    held: bool = True
    first: int = 0

    @property
    def workers(self) -> int:
        return sum(map(len, self.racks))

    @property
    def switches(self) -> int:
        return 1 if len(self.racks) == 1 else 1 + len(self.racks)

    def switch_of(self, worker: int) -> int:
        rack = next(number for number, members in enumerate(self.racks) if worker in members)
        return ROOT if self.switches == 1 else 1 + rack

    def jobs(self, epoch: int) -> tuple[Job, ...]:
        """The job in each switch: epoch 0 has all but the newcomer, epoch 1 lacks the dead."""
        absent = self.joins if epoch == 0 else self.dies
        alive = [sum(1 << w for w in rack if w != absent) for rack in self.racks]
        cells = 2 * self.window
        if self.switches == 1:
            return (Job(epoch, alive[0], cells),)
        racks = sum(1 << number for number, members in enumerate(alive) if members)
        return Job(epoch, racks, cells), *(Job(epoch, members, cells, leaf=True) for members in alive)

    def contribution(self, worker: int, item: int, epoch: int) -> Aggregation:
        """Its digits tell which workers are in a sum, and how often; its second lane, the item."""
        values = of_int32s((16**worker, 1 + item))
        return Aggregation(Kind.CONTRIBUTION, JOB, (self.first + item) % 2**32, epoch, values=values)


@dataclass(frozen=True)
class World:
    """State at a moment; results are by worker and item, None if missing."""

    epochs: tuple[int, ...]
    cells: tuple[tuple[Cell, ...], ...]
    knows: tuple[int, ...]
    results: tuple[tuple[Aggregation | None, ...], ...]
    sent: frozenset[tuple[str, int, int, Aggregation]]
    dead: bool = False


@dataclass
class Explorer:
    """Worlds that a case can reach; `problems` are those of forbidden ones."""

    case: Case
    problems: list[str] = field(default_factory=list)
    completed: dict[int, set[bytes]] = field(default_factory=dict)

    def start(self) -> World:
        case = self.case
        cells = tuple((Cell(),) * (2 * case.window) for _ in range(case.switches))
        nothing = ((None,) * case.items,) * case.workers
        world = World((0,) * case.switches, cells, (0,) * case.workers, nothing, frozenset())
        for worker in range(case.workers):
            world = self.send(world, worker)
        return world

    def explore(self, most: int, *, to_first_problem: bool = False) -> int:
        """Visit every world, up to a limit; return their number."""
        first = self.start()
        seen, waiting = {first}, deque([first])
        while waiting:
            world = waiting.popleft()
            self.check(world)
            if to_first_problem and self.problems:
                break
            for following in self.following(world):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
            if len(seen) > most:
                raise AssertionError(f"more than {most} worlds")
        return len(seen)

    def following(self, world: World) -> Iterator[World]:
        for packet in world.sent:
            changed = self.deliver(world, packet)
            if changed != world:
                yield changed
        yield from self.news(world)

    def news(self, world: World) -> Iterator[World]:
        """Spread the controller's news of a death; switches and workers receive it in any order."""
        if self.case.joins is not None:
            yield from self.joining(world)
        if self.case.dies is None:
            return
        if not world.dead:
            yield replace(world, dead=True)
            return
        for switch, epoch in enumerate(world.epochs):
            if epoch == 0:
                yield replace(world, epochs=_with(world.epochs, switch, 1))
        for worker, epoch in enumerate(world.knows):
            if epoch == 0 and worker != self.case.dies:
                yield self.send(replace(world, knows=_with(world.knows, worker, 1)), worker)

    def joining(self, world: World) -> Iterator[World]:
        """Join once all others reach the newcomer's first item: switches change in any order, then all go on."""
        others = (mine for worker, mine in enumerate(world.results) if worker != self.case.joins)
        if self.case.held and any(None in mine[: self.case.joins_at] for mine in others):
            return
        for switch, epoch in enumerate(world.epochs):
            if epoch == 0:
                yield replace(world, epochs=_with(world.epochs, switch, 1))
        for worker, epoch in enumerate(world.knows):
            if epoch == 0 and 0 not in world.epochs:
                yield self.send(replace(world, knows=_with(world.knows, worker, 1)), worker)

    def span(self, world: World, worker: int) -> tuple[int, int]:
        """Return the worker's first item, and the first that it may not begin yet."""
        case = self.case
        first = case.joins_at if worker == case.joins else 0
        if case.joins is None or world.knows[worker] == 1:
            return first, case.items
        return first, case.joins_at if case.held and worker != case.joins else 0

    def send(self, world: World, worker: int) -> World:
        """All that the worker may send now: items whose predecessor in the cell's other half has its result."""
        case, mine = self.case, world.results[worker]
        first, end = self.span(world, worker)
        may = [item for item in range(first, end) if item - case.window < first or mine[item - case.window] is not None]
        packets = {
            ("child", case.switch_of(worker), worker, case.contribution(worker, item, world.knows[worker]))
            for item in may
            if mine[item] is None
        }
        return replace(world, sent=world.sent | packets)

    def deliver(self, world: World, packet: tuple[str, int, int, Aggregation]) -> World:
        to, switch, number, content = packet
        if to == "worker":
            return self.take(world, number, content)
        cells = world.cells[switch]
        index = content.item % len(cells)
        if to == "child":
            job = self.case.jobs(world.epochs[switch])[switch]
            if not job.children >> number & 1:
                return world  # its entry is gone
            cell, sent, _ = contribute(job, cells[index], number, content)
        else:
            cell, sent, _ = accept(self.case.jobs(world.epochs[switch])[switch], cells[index], content)
        world = replace(world, cells=_with(world.cells, switch, _with(cells, index, cell)))
        return world if sent is None else replace(world, sent=world.sent | self.packets(switch, sent))

    def packets(self, switch: int, sent: Sent) -> set[tuple[str, int, int, Aggregation]]:
        case = self.case
        below_is_switch = switch == ROOT and case.switches > 1
        match sent:
            case Unicast(child, packet):
                return {("parent", 1 + child, 0, packet) if below_is_switch else ("worker", switch, child, packet)}
            case Multicast(packet):
                if below_is_switch:
                    return {("parent", 1 + rack, 0, packet) for rack in range(len(case.racks))}
                rack = case.racks[max(0, switch - 1)]
                return {("worker", switch, worker, packet) for worker in rack}
            case _:
                return {("child", ROOT, switch - 1, sent.packet)}

    def take(self, world: World, worker: int, packet: Aggregation) -> World:
        item = (packet.item - self.case.first) % 2**32
        if packet.kind is Kind.REFUSED or (world.dead and worker == self.case.dies):
            return world
        first, end = self.span(world, worker)
        if world.results[worker][item] is not None or not first <= item < end:
            return world
        mine = _with(world.results[worker], item, replace(packet, kind=Kind.RESULT))
        return self.send(replace(world, results=_with(world.results, worker, mine)), worker)

    def check(self, world: World) -> None:
        """No sum is wrong or differs between workers, and fair delivery lets all finish."""
        for item in range(self.case.items):
            results = {mine[item].values for mine in world.results if mine[item] is not None}  # type: ignore[union-attr]
            if len(results) > 1:
                self.problems.append(f"item {item} has {len(results)} results: {world}")
            for values in results:
                digits, marks = int32s(values)
                who = {worker for worker in range(self.case.workers) if digits >> 4 * worker & 1}
                everybody = {worker for worker in range(self.case.workers) if self.is_for(worker, item)}
                right = who == everybody or (self.case.dies is not None and who == everybody - {self.case.dies})
                if not right or digits != sum(16**w for w in who) or marks != len(who) * (1 + item):
                    self.problems.append(f"item {item}: a sum of {digits:x}, {marks}")
            self.completed.setdefault(item, set()).update(results)
        if not self.ends(world):
            self.problems.append(f"nothing leads on from {world}")

    def is_for(self, worker: int, item: int) -> bool:
        """Return whether an item needs a worker's contribution, if the worker lives."""
        return worker != self.case.joins or item >= self.case.joins_at

    def ends(self, world: World) -> bool:
        """Return whether all survivors finish once all news and all pending results are delivered."""
        alive = [w for w in range(self.case.workers) if not (world.dead and w == self.case.dies)]
        for _ in range(self.case.items + 1):
            while (world.dead or self.case.joins is not None) and (news := next(self.news(world), None)) is not None:
                world = news
            for worker in alive:
                before = world.sent
                for packet in self.send(replace(world, sent=frozenset()), worker).sent:
                    world = self.through(world, packet)
                world = replace(world, sent=before)
        return all(
            result is not None
            for worker in alive
            for item, result in enumerate(world.results[worker])
            if self.is_for(worker, item)
        )

    def through(self, world: World, packet: tuple[str, int, int, Aggregation]) -> World:
        """Deliver a packet and all that it causes, once each."""
        waiting = deque([packet])
        while waiting:
            bare = self.deliver(replace(world, sent=frozenset()), waiting.popleft())
            waiting.extend(
                packet for packet in bare.sent if packet[0] != "child" or packet[1] == ROOT != self.case.switch_of(0)
            )
            world = replace(bare, sent=world.sent)
        return world


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])
