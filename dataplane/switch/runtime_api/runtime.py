"""Shared state of all runtime API methods: the switch, its present state, and the clients' handles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from dataplane.switch.runtime_api.calls import UnsupportedCallError
from dataplane.switch.runtime_api.control import RuntimeControl
from dataplane.switch.tables import ForwardingState, Table
from dataplane.switch.tables.match import Match

Key = tuple[Match, int]


class Numbers:
    """Allocates the smallest free number first, as bmv2 allocates handles."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._next = 0

    def take(self) -> int:
        """Return a free number."""
        if self._free:
            return heappop(self._free)
        self._next += 1
        return self._next - 1

    def give(self, number: int) -> None:
        """Free a number."""
        heappush(self._free, number)

    def keep(self, used: set[int]) -> None:
        """Free every number but these."""
        self._free = [number for number in range(self._next) if number not in used]
        heapify(self._free)


class EntryHandles:
    """The handles of a table's entries, regardless of their writer; the state's lock is held."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._numbers = Numbers()
        self._handles: dict[Key, int] = {}
        self._keys: dict[int, Key] = {}
        self.follow()

    def of(self, match: Match, priority: int) -> int:
        """Return an entry's handle, a new one if it has none."""
        key = (match, priority)
        if key not in self._handles:
            self._handles[key] = handle = self._numbers.take()
            self._keys[handle] = key
        return self._handles[key]

    def key(self, handle: int) -> Key | None:
        """Return the key of a handle, None if no entry has it."""
        key = self._keys.get(handle)
        return None if key is None or self._table.get(*key) is None else key

    def forget(self, handle: int) -> None:
        """Free a handle whose entry is gone."""
        del self._handles[self._keys.pop(handle)]
        self._numbers.give(handle)

    def follow(self) -> None:
        """Assign handles to entries that others have written, free those of entries that others have deleted."""
        for handle, key in list(self._keys.items()):
            if self._table.get(*key) is None:
                self.forget(handle)
        for entry in self._table:
            self.of(entry.match, entry.priority)


@dataclass(slots=True)
class Node:
    """A multicast node: an instance number, its ports, the groups that contain it."""

    rid: int
    ports: tuple[int, ...]
    groups: set[int] = field(default_factory=set)


@dataclass(slots=True)
class Books:
    """State of one program that the runtime API has and P4Runtime does not."""

    state: ForwardingState
    entries: dict[str, EntryHandles] = field(default_factory=dict)
    nodes: dict[int, Node] = field(default_factory=dict)
    node_numbers: Numbers = field(default_factory=Numbers)
    groups: set[int] = field(default_factory=set)
    mirrored_groups: dict[int, int] = field(default_factory=dict)
    """Clone session -> multicast group."""
    mirrored_ports: dict[int, int] = field(default_factory=dict)

    def handles(self, table: Table) -> EntryHandles:
        """Return the handles of a table's entries."""
        name = table.spec.name
        if name not in self.entries:
            self.entries[name] = EntryHandles(table)
        return self.entries[name]


class Runtime:
    """One switch, as the methods of the runtime API see it; `port` is the one it listens on."""

    def __init__(self, control: RuntimeControl) -> None:
        self.control = control
        self.port = 0
        self.started_ns = control.now_ns()
        self._books: Books | None = None

    @contextmanager
    def books(self) -> Iterator[Books]:
        """Hold the present state's lock; raise UnsupportedCallError without a program."""
        state = self.control.state
        if state is None:
            raise UnsupportedCallError("the switch has no program yet")
        with state.lock:
            if self._books is None or self._books.state is not state:
                self._books = Books(state)
            yield self._books
