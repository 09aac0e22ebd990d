"""The reference index: a list, searched from end to end. Slow, and correct by inspection."""

from __future__ import annotations

from collections.abc import Iterator

from dataplane.program.objects import KeyField, MatchKind
from dataplane.switch.tables.entry import TableEntry
from dataplane.switch.tables.match import Match, field_matches, needs_priority


class LinearIndex:
    """Every entry in one list; the best matching one wins.

    Best: the largest priority if keys can overlap arbitrarily, else the longest prefix; among equals the oldest.
    """

    def __init__(self, keys: tuple[KeyField, ...]) -> None:
        self._keys = keys
        self._by_priority = needs_priority(keys)
        self._entries: list[TableEntry] = []

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TableEntry]:
        return iter(self._entries)

    def get(self, match: Match, priority: int) -> TableEntry | None:
        """Return the entry with exactly this match and priority."""
        for entry in self._entries:
            if entry.match == match and entry.priority == priority:
                return entry
        return None

    def put(self, entry: TableEntry) -> None:
        """Insert `entry`, or replace the one with the same match and priority."""
        for position, present in enumerate(self._entries):
            if present.match == entry.match and present.priority == entry.priority:
                self._entries[position] = entry
                return
        self._entries.append(entry)

    def remove(self, match: Match, priority: int) -> None:
        """Remove the entry with exactly this match and priority."""
        self._entries = [entry for entry in self._entries if (entry.match, entry.priority) != (match, priority)]

    def lookup(self, key: tuple[int, ...]) -> TableEntry | None:
        """Return the entry that a packet with these key values hits, or None."""
        best: TableEntry | None = None
        for entry in self._entries:
            if self._matches(entry, key) and (best is None or self._rank(entry) > self._rank(best)):
                best = entry
        return best

    def _matches(self, entry: TableEntry, key: tuple[int, ...]) -> bool:
        return all(
            field_matches(field, match, value) for field, match, value in zip(self._keys, entry.match, key, strict=True)
        )

    def _rank(self, entry: TableEntry) -> int:
        if self._by_priority:
            return entry.priority
        lengths = [
            match[1]
            for field, match in zip(self._keys, entry.match, strict=True)
            if field.kind is MatchKind.LPM and isinstance(match, tuple)
        ]
        return sum(lengths)
