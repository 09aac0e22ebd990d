"""The indices in which tables look packets up: one dictionary, one per prefix length, or one per mask.

Each is tested against `reference.LinearIndex`. The mask index is tuple space search (Srinivasan, Suri, Varghese,
"Packet classification using tuple space search", SIGCOMM 1999) with the tuples ordered by their best priority.

What was inserted in bulk stays as it came (`entry.Compact`) until somebody asks for the entry. What only lookups need
is built by the first one, as compiled code has tables of its own and never looks here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, Protocol, TypeVar

from dataplane.program.objects import KeyField, MatchKind
from dataplane.switch.tables.entry import Compact, TableEntry, unpacked
from dataplane.switch.tables.match import Match, all_ones, needs_priority, prefix_mask
from dataplane.switch.tables.priorities import PriorityCount

Key = tuple[int, ...]
Addition = Callable[[int], None]
"""Inserts the first of some entries, as many as it is told."""
_Name = TypeVar("_Name")


class Index(Protocol):
    """Entries of one table by match and priority, and the one that a packet hits."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[TableEntry]:
        """Iterate over the entries of this moment, oldest first, whatever changes meanwhile."""
        ...

    def get(self, match: Match, priority: int) -> TableEntry | None:
        """Return the entry with exactly this match and priority."""
        ...

    def put(self, entry: TableEntry) -> None:
        """Insert `entry`, or replace the one with the same match and priority."""
        ...

    def addition(
        self, matches: Iterable[Match], priorities: Iterable[int], entries: Iterable[Compact]
    ) -> Addition | None:
        """Return how to insert several entries; None if two are the same, or one is present."""
        ...

    def remove(self, match: Match, priority: int) -> None:
        """Remove the entry with exactly this match and priority, which must be present."""
        ...

    def lookup(self, key: Key) -> TableEntry | None:
        """Return the entry that a packet with these key values hits, or None."""
        ...


def index_for(keys: tuple[KeyField, ...]) -> Index:
    """Return the fastest suitable index for tables over `keys`, of which at most one is lpm."""
    if needs_priority(keys):
        return MaskIndex(keys)
    if any(key.kind is MatchKind.LPM for key in keys):
        return PrefixIndex(keys)
    return ExactIndex()


class _Entries(dict[_Name, TableEntry | Compact], Generic[_Name]):
    """Entries by name, oldest first; `parts` gives a name's match and priority."""

    __slots__ = ("_parts",)

    def __init__(self, parts: Callable[[_Name], tuple[Match, int]]) -> None:
        super().__init__()
        self._parts = parts

    def entry(self, name: _Name) -> TableEntry | None:
        """Return an entry, which is the same object each time."""
        entry = self.get(name)
        if isinstance(entry, tuple):
            entry = self[name] = unpacked(*self._parts(name), entry)
        return entry

    def snapshot(self) -> Iterator[TableEntry]:
        """Return the entries of this moment; compact ones stay so, as a large table is read far more than changed."""
        parts = self._parts
        return (
            unpacked(*parts(name), entry) if isinstance(entry, tuple) else entry
            for name, entry in zip(list(self), list(self.values()), strict=True)
        )

    def addition(
        self, names: Iterable[_Name], entries: Iterable[Compact], then: Callable[[Iterable[_Name]], None]
    ) -> Addition | None:
        """Return how to insert entries, and to call `then` with the names of those inserted."""
        names = list(names)
        fresh = dict(zip(names, entries, strict=True))
        if len(fresh) < len(names) or not self.keys().isdisjoint(fresh):
            return None

        def add(count: int) -> None:
            self.update(fresh if count == len(fresh) else islice(fresh.items(), count))
            then(islice(fresh, count))

        return add


def _of_match(match: Match) -> tuple[Match, int]:
    """Return the match and the priority of an entry that is named by its match."""
    return match, 0


class ExactIndex:
    """One dictionary from key to entry, for tables whose fields are all exact (or that have none)."""

    def __init__(self) -> None:
        self._entries: _Entries[Match] = _Entries(_of_match)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TableEntry]:
        return self._entries.snapshot()

    def get(self, match: Match, priority: int) -> TableEntry | None:  # noqa: ARG002 (keys cannot overlap)
        """Return the entry with exactly this match."""
        return self._entries.entry(match)

    def put(self, entry: TableEntry) -> None:
        """Insert or replace."""
        self._entries[entry.match] = entry

    def addition(
        self,
        matches: Iterable[Match],
        priorities: Iterable[int],  # noqa: ARG002 (keys cannot overlap)
        entries: Iterable[Compact],
    ) -> Addition | None:
        """Return how to insert several entries."""
        return self._entries.addition(matches, entries, lambda _: None)

    def remove(self, match: Match, priority: int) -> None:  # noqa: ARG002 (keys cannot overlap)
        """Remove the entry with exactly this match."""
        del self._entries[match]

    def lookup(self, key: Key) -> TableEntry | None:
        """Return the entry with these values."""
        return self._entries.entry(key)


class PrefixIndex:
    """One dictionary per prefix length, the longest tried first; the other fields are exact."""

    def __init__(self, keys: tuple[KeyField, ...]) -> None:
        self._position = next(i for i, key in enumerate(keys) if key.kind is MatchKind.LPM)
        self._width = keys[self._position].width
        self._entries: _Entries[Match] = _Entries(_of_match)
        self._is_built = False
        self._by_length: dict[int, dict[Key, Match]] = {}
        self._search: list[tuple[int, dict[Key, Match]]] = []  # (mask, matches), longest prefix first

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TableEntry]:
        return self._entries.snapshot()

    def get(self, match: Match, priority: int) -> TableEntry | None:  # noqa: ARG002 (the length decides)
        """Return the entry with exactly this match."""
        return self._entries.entry(match)

    def put(self, entry: TableEntry) -> None:
        """Insert or replace."""
        self._entries[entry.match] = entry
        self._find_later((entry.match,))

    def addition(
        self,
        matches: Iterable[Match],
        priorities: Iterable[int],  # noqa: ARG002 (the length decides)
        entries: Iterable[Compact],
    ) -> Addition | None:
        """Return how to insert several entries."""
        return self._entries.addition(matches, entries, self._find_later)

    def remove(self, match: Match, priority: int) -> None:  # noqa: ARG002 (the length decides)
        """Remove the entry with exactly this match."""
        del self._entries[match]
        if not self._is_built:
            return
        length, key = self._split(match)
        del self._by_length[length][key]
        if not self._by_length[length]:
            del self._by_length[length]
            self._order()

    def lookup(self, key: Key) -> TableEntry | None:
        """Return the entry with the longest prefix that covers the key."""
        if not self._is_built:
            self._build()
        position = self._position
        before, value, after = key[:position], key[position], key[position + 1 :]
        for mask, matches in self._search:
            match = matches.get((*before, value & mask, *after))
            if match is not None:
                return self._entries.entry(match)
        return None

    def _build(self) -> None:
        self._is_built = True
        self._find_later(self._entries)

    def _find_later(self, matches: Iterable[Match]) -> None:
        """Have lookups find entries, once there are any lookups."""
        if not self._is_built:
            return
        for match in matches:
            length, key = self._split(match)
            if length not in self._by_length:
                self._by_length[length] = {}
                self._order()
            self._by_length[length][key] = match

    def _order(self) -> None:
        lengths = sorted(self._by_length, reverse=True)
        self._search = [(prefix_mask(self._width, length), self._by_length[length]) for length in lengths]

    def _split(self, match: Match) -> tuple[int, Key]:
        prefix = match[self._position]
        assert isinstance(prefix, tuple)
        key = (*match[: self._position], prefix[0], *match[self._position + 1 :])
        return prefix[1], key  # type: ignore[return-value]  # the other fields are exact: checked by Table


@dataclass(slots=True)
class _Ranked:
    """The name of an entry with its rank: priority, then age (the older wins); and its ranges, by key position."""

    order: tuple[int, int]  # (-priority, sequence number): smaller is better
    name: tuple[Match, int]
    ranges: tuple[tuple[int, int, int], ...]

    def __lt__(self, other: _Ranked) -> bool:
        return self.order < other.order


@dataclass(slots=True)
class _Space:
    """The entries with the same mask; `masks` holds (key position, mask) of the masked fields."""

    masks: tuple[tuple[int, int], ...]
    serial: int
    buckets: dict[Key, list[_Ranked]] = field(default_factory=dict)
    priorities: PriorityCount = field(default_factory=PriorityCount)
    best_priority: int = 0

    @property
    def order(self) -> tuple[int, int]:
        """Return the search order: the best priority, then age."""
        return -self.best_priority, self.serial

    def masked(self, key: Key) -> Key:
        """Return the bits of `key` under this space's mask."""
        return tuple([key[position] & mask for position, mask in self.masks])


def _order(space: _Space) -> tuple[int, int]:
    return space.order


def _as_named(name: tuple[Match, int]) -> tuple[Match, int]:
    return name


class MaskIndex:
    """Tuple space search: a dictionary for each combination of masks; ranges are compared inside the bucket."""

    def __init__(self, keys: tuple[KeyField, ...]) -> None:
        self._keys = keys
        self._entries: _Entries[tuple[Match, int]] = _Entries(_as_named)
        self._is_built = False
        self._ranked: dict[tuple[Match, int], _Ranked] = {}
        self._spaces: dict[tuple[tuple[int, int], ...], _Space] = {}
        self._search: list[_Space] = []  # best priority first
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TableEntry]:
        return self._entries.snapshot()

    def get(self, match: Match, priority: int) -> TableEntry | None:
        """Return the entry with exactly this match and priority."""
        return self._entries.entry((match, priority))

    def put(self, entry: TableEntry) -> None:
        """Insert or replace; a replaced entry keeps its age."""
        name = entry.match, entry.priority
        is_new = name not in self._entries
        self._entries[name] = entry
        if is_new:
            self._find_later((name,))

    def addition(
        self, matches: Iterable[Match], priorities: Iterable[int], entries: Iterable[Compact]
    ) -> Addition | None:
        """Return how to insert several entries."""
        return self._entries.addition(zip(matches, priorities, strict=True), entries, self._find_later)

    def remove(self, match: Match, priority: int) -> None:
        """Remove the entry with exactly this match and priority."""
        del self._entries[match, priority]
        if not self._is_built:
            return
        ranked = self._ranked.pop((match, priority))
        masks, values, _ = self._split(match)
        space = self._spaces[masks]
        bucket = space.buckets[values]
        del bucket[bisect_left(bucket, ranked)]
        if not bucket:
            del space.buckets[values]
        space.priorities.remove(priority)
        if space.buckets:
            self._order(space)
        else:
            del self._spaces[masks]
            del self._search[bisect_left(self._search, space.order, key=_order)]

    def lookup(self, key: Key) -> TableEntry | None:
        """Return the highest-priority entry that covers the key; among equals, the oldest."""
        if not self._is_built:
            self._build()
        best: _Ranked | None = None
        for space in self._search:
            if best is not None and -best.order[0] > space.best_priority:
                break
            for ranked in space.buckets.get(space.masked(key), ()):
                if all(low <= key[position] <= high for position, low, high in ranked.ranges):
                    if best is None or ranked < best:
                        best = ranked
                    break
        return None if best is None else self._entries.entry(best.name)

    def _build(self) -> None:
        self._is_built = True
        self._find_later(self._entries)

    def _find_later(self, names: Iterable[tuple[Match, int]]) -> None:
        """Have lookups find entries, once there are any lookups."""
        if not self._is_built:
            return
        for match, priority in names:
            masks, values, ranges = self._split(match)
            self._sequence += 1
            ranked = _Ranked((-priority, self._sequence), (match, priority), ranges)
            self._ranked[match, priority] = ranked
            space = self._spaces.get(masks)
            if space is None:
                space = self._spaces[masks] = _Space(masks, self._sequence)
            insort(space.buckets.setdefault(values, []), ranked)
            space.priorities.add(priority)
            self._order(space)

    def _order(self, changed: _Space) -> None:
        """Bring the search order up to date after a change in one space, which may be new."""
        best, position = changed.priorities.best, bisect_left(self._search, changed.order, key=_order)
        present = position < len(self._search) and self._search[position] is changed
        if present and best == changed.best_priority:
            return
        if present:
            del self._search[position]
        changed.best_priority = best
        insort(self._search, changed, key=_order)

    def _split(self, match: Match) -> tuple[tuple[tuple[int, int], ...], Key, tuple[tuple[int, int, int], ...]]:
        """Split a match into masks by position, the masked values, and ranges by position."""
        masks: list[tuple[int, int]] = []
        values: list[int] = []
        ranges: list[tuple[int, int, int]] = []
        for position, (key, part) in enumerate(zip(self._keys, match, strict=True)):
            ones = all_ones(key.width)
            if part is None:
                continue
            if isinstance(part, int):
                value, mask = part, ones
            elif key.kind is MatchKind.RANGE:
                if part != (0, ones):
                    ranges.append((position, *part))
                continue
            else:
                value, mask = part[0], prefix_mask(key.width, part[1]) if key.kind is MatchKind.LPM else part[1]
            if mask:
                masks.append((position, mask))
                values.append(value)
        return tuple(masks), tuple(values), tuple(ranges)
