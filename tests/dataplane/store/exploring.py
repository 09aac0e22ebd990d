"""Every order in which writes, answers and the controller's changes of one name can come to a switch and its producer.

The network is the set of all packets ever sent; any of them may come at any time, any number of times, or never. What
readers and writers send changes no cell, so it is taken to be under way at every moment, and all that can be told from
an answer is taken to be known to everybody as soon as it has left the switch: nothing worse can happen.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from dataplane.store.reference.holder import Back, Cached, Cell, ahead, receive
from dataplane.wire.store import Kind, Message

NAME, PRODUCER, CLIENT = 1, 100, 200
FRESH_MS = 1000
ROOM = bytes(256)


@dataclass(frozen=True)
class Case:
    """How many writes there are, how often the name gets a cell, and whether acknowledgements have the content."""

    writes: int = 2
    insertions: int = 2
    full_acks: bool = False
    first: int = 1

    def version(self, writes: int) -> int:
        """Return the version after so many writes; 0 is none."""
        number = self.first + writes
        return number if number < 2**32 else number - 2**32 + 1


@dataclass(frozen=True)
class World:
    """All that matters of a moment; `made` is the number of each applied write's version, None where not applied."""

    made: tuple[int | None, ...]
    insertions: int = 0
    held: bool = False
    cell: Cell = Cell()  # noqa: RUF009 - it is frozen
    asked: frozenset[Message] = frozenset()
    answered: frozenset[Message] = frozenset()
    known: int = 0
    """The number of the newest version that anybody has heard of."""

    @property
    def applied(self) -> int:
        return sum(one is not None for one in self.made)


@dataclass
class Explorer:
    """Worlds that a case can come to; `problems` are of those that must not be, `hits` counts answers of the switch."""

    case: Case
    problems: list[str] = field(default_factory=list)
    hits: int = 0

    def explore(self, most: int) -> int:
        """Visit every world, at most so many; return how many there were."""
        first = self.closed(World(made=(None,) * self.case.writes))
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
                changed = (*world.made[:write], world.applied + 1, *world.made[write + 1 :])
                yield replace(world, made=changed)
        if world.held:
            yield replace(world, held=False)
        elif world.insertions < self.case.insertions:
            yield replace(world, held=True, insertions=world.insertions + 1)
        for message in world.answered:
            yield self.passing(world, message)

    def passing(self, world: World, message: Message) -> World:
        """Let an answer of the producer go by."""
        number = next(one for one in range(self.case.writes + 1) if self.case.version(one) == message.version)
        world = replace(world, known=max(world.known, number))
        if not world.held:
            return world
        cell, _, _ = receive(self.place(world), world.cell, PRODUCER, message, 0)
        return replace(world, cell=cell)

    def closed(self, world: World) -> World:
        """Return the world with everything under way that clients and the producer may send in it."""
        asked = set(world.asked)
        for message in self.questions():
            if not world.held:
                asked.add(message)
                continue
            _, sent, _ = receive(self.place(world), world.cell, CLIENT, message, 0)
            if not isinstance(sent, Back):
                asked.add(sent.message)
        answered = {answer for message in asked for answer in self.answers(world, message)}
        return replace(world, asked=frozenset(asked), answered=world.answered | answered)

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
        """The switch gives out nothing older than what is known, and asking leads to its giving out what is there."""
        if not world.held:
            return
        interest = next(self.questions())
        _, sent, _ = receive(self.place(world), world.cell, CLIENT, interest, 0)
        if isinstance(sent, Back):
            self.hits += 1
            if ahead(sent.message.version, of=self.case.version(world.known)) < 0:
                self.problems.append(f"version {sent.message.version}, but {world.known} writes are known: {world}")
            return
        for answer in self.answers(world, sent.message):
            world = self.passing(world, answer)
        _, sent, _ = receive(self.place(world), world.cell, CLIENT, interest, 0)
        if not isinstance(sent, Back) or sent.message.version != self.case.version(world.applied):
            self.problems.append(f"asking leads nowhere: {world}")

    @staticmethod
    def place(world: World) -> Cached:
        return Cached(generation=world.insertions, producer=PRODUCER)
