"""Every order in which writes, answers and the controller's changes of one name can come to switches and the producer.

The network is the set of all packets ever sent; any of them may come at any time, any number of times, or never. What
readers and writers send changes no cell, so it is taken to be under way at every moment, and all that can be told from
an answer counts as known to all once it has left the switch: nothing worse can happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from dataplane.store.reference.holder import Back, Cached, Cell, On, Sender, Sent, ahead, receive
from dataplane.wire.store import Kind, Message

T = TypeVar("T")
NAME, PRODUCER, CLIENT = 1, Sender(100, 1), Sender(200, 2)
FRESH_MS = 1000
ROOM = bytes(256)


@dataclass(frozen=True)
class Case:
    """Numbers of writes, of times the name gets cells, and of switches; whether acknowledgements carry the content."""

    writes: int = 2
    insertions: int = 2
    full_acks: bool = False
    first: int = 1
    switches: int = 1

    def version(self, writes: int) -> int:
        """Return the version after this many writes; 0 means none."""
        number = self.first + writes
        return number if number < 2**32 else number - 2**32 + 1


@dataclass(frozen=True)
class SwitchEntry:
    """A switch's entry and cell of the name."""

    insertions: int = 0
    held: bool = False
    cell: Cell = Cell()  # noqa: RUF009 - it is frozen


@dataclass(frozen=True)
class World:
    """All that matters of a moment; `made` is the number of each applied write's version, None where not applied.

    Switches stand in a row, the last before the producer. `asked` is what may come to each from the clients' side, and
    at its end to the producer; `answered` what may come to each from the producer's side.
    """

    made: tuple[int | None, ...]
    places: tuple[SwitchEntry, ...]
    asked: tuple[frozenset[Message], ...]
    answered: tuple[frozenset[Message], ...]
    known: int = 0
    """The number of the newest version that any client has heard of."""

    @property
    def applied(self) -> int:
        return sum(version is not None for version in self.made)


@dataclass
class Explorer:
    """Worlds that a case can reach; `problems` are those of forbidden ones, `hits` counts answers of switches."""

    case: Case
    problems: list[str] = field(default_factory=list)
    hits: int = 0

    def explore(self, most: int) -> int:
        """Visit every world, up to a limit; return their number."""
        case, none = self.case, frozenset[Message]()
        nothing = (none,) * case.switches
        start = World((None,) * case.writes, (SwitchEntry(),) * case.switches, (*nothing, none), nothing)
        first = self.closed(start)
        seen, waiting = {first}, deque([first])
        while waiting:
            world = waiting.popleft()
            self.check(world)
            for following in map(self.closed, self.following(world)):
                if following not in seen:
                    seen.add(following)
                    waiting.append(following)
            if len(seen) > most:
                raise AssertionError(f"more than {most} worlds")
        return len(seen)

    def following(self, world: World) -> Iterator[World]:
        for write, made in enumerate(world.made):
            if made is None:
                yield replace(world, made=_with(world.made, write, world.applied + 1))
        for switch, store in enumerate(world.places):
            if store.held:
                yield replace(world, places=_with(world.places, switch, replace(store, held=False)))
            elif store.insertions < self.case.insertions:
                placed = replace(store, held=True, insertions=store.insertions + 1)
                yield replace(world, places=_with(world.places, switch, placed))
            for message in world.answered[switch]:
                yield self.passing(world, switch, message)

    def passing(self, world: World, switch: int, message: Message) -> World:
        """Pass an answer through a switch, towards the clients."""
        store = world.places[switch]
        if store.held:
            cell, _, _ = receive(self.held(world, switch), store.cell, PRODUCER, message, 0)
            world = replace(world, places=_with(world.places, switch, replace(store, cell=cell)))
        if switch:
            further = world.answered[switch - 1] | {message}
            return replace(world, answered=_with(world.answered, switch - 1, further))
        number = next(write for write in range(self.case.writes + 1) if self.case.version(write) == message.version)
        return replace(world, known=max(world.known, number))

    def closed(self, world: World) -> World:
        """Return the world with all packets in flight that clients, switches and the producer may send."""
        asked, answered = [set(there) for there in world.asked], [set(there) for there in world.answered]
        asked[0] = set(self.questions())
        for switch in range(self.case.switches):
            for message in asked[switch]:
                sent = self.sent(world, switch, message)
                if isinstance(sent, On):
                    asked[switch + 1].add(sent.message)
                elif switch:
                    answered[switch - 1].add(sent.message)
        answered[-1].update(answer for message in asked[-1] for answer in self.answers(world, message))
        return replace(world, asked=tuple(map(frozenset, asked)), answered=tuple(map(frozenset, answered)))

    def sent(self, world: World, switch: int, message: Message) -> Sent:
        """Return a switch's handling of a client's message."""
        store = world.places[switch]
        if not store.held:
            return On(message)
        _, sent, _ = receive(self.held(world, switch), store.cell, CLIENT, message, 0)
        return sent

    def questions(self) -> Iterator[Message]:
        yield Message(Kind.INTEREST, NAME, content=ROOM)
        for write in range(self.case.writes):
            yield Message(Kind.PUT, NAME, content=ROOM, number=write)

    def answers(self, world: World, message: Message) -> Iterator[Message]:
        if message.kind is Kind.INTEREST:
            version = self.case.version(world.applied)
            yield Message(Kind.DATA, NAME, version=version, freshness_ms=FRESH_MS, content=ROOM, tag=message.tag)
        elif (made := world.made[message.number]) is not None:
            content = ROOM if self.case.full_acks else b""
            version = self.case.version(made)
            yield Message(Kind.PUT_ACK, NAME, version=version, freshness_ms=FRESH_MS, content=content, tag=message.tag)

    def check(self, world: World) -> None:
        """No switch answers with anything older than known versions, and repeated requests get the content."""
        interest, copies = next(self.questions()), False
        for switch in range(self.case.switches):
            sent = self.sent(world, switch, interest)
            copies |= isinstance(sent, Back)
            if isinstance(sent, Back):
                self.hits += 1
                if ahead(sent.message.version, of=self.case.version(world.known)) < 0:
                    self.problems.append(f"version {sent.message.version}, but {world.known} writes are known: {world}")
        for _ in world.places:
            world = self.through(world, interest)
        sent = self.sent(world, 0, interest)
        if world.places[0].held and not isinstance(sent, Back):
            self.problems.append(f"requests leads nowhere: {world}")
        elif not copies and isinstance(sent, Back) and sent.message.version != self.case.version(world.applied):
            self.problems.append(f"requests leads to version {sent.message.version}: {world}")

    def through(self, world: World, message: Message) -> World:
        """Forward a request as far as it goes, and return its answer."""
        switch = 0
        sent = self.sent(world, switch, message)
        while isinstance(sent, On) and switch + 1 < self.case.switches:
            switch += 1
            sent = self.sent(world, switch, sent.message)
        if isinstance(sent, On):
            (answer,), switch = self.answers(world, sent.message), switch + 1
        else:
            answer = sent.message
        for below in reversed(range(switch)):
            world = self.passing(world, below, answer)
        return world

    @staticmethod
    def held(world: World, switch: int) -> Cached:
        return Cached(generation=10 * switch + world.places[switch].insertions, producer=PRODUCER)


def _with(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    return (*values[:at], value, *values[at + 1 :])
