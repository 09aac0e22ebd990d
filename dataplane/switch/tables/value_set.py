"""Parser value sets: members that a select compares a key with, set as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import MatchKind, ValueSetSpec
from dataplane.switch.tables.match import Match, check_match, field_matches


class ValueSet:
    """The members of one value set; each is a match over the set's key fields, like a table entry's."""

    def __init__(self, spec: ValueSetSpec) -> None:
        self.spec = spec
        self.members: tuple[Match, ...] = ()
        self.observers: tuple[Callable[[tuple[Match, ...]], None], ...] = ()
        self._exact: frozenset[Match] | None = None
        self._index()

    def replace(self, members: Iterable[Match]) -> None:
        """Replace the present members by `members`; raise EntryError if one is malformed or they do not fit."""
        fresh = tuple(members)
        for member in fresh:
            check_match(self.spec.keys, member, self.spec.name)
        if len(set(fresh)) != len(fresh):
            raise EntryError(EntryFault.INVALID, "a member appears twice", where=self.spec.name)
        if len(fresh) > self.spec.size:
            raise EntryError(EntryFault.FULL, f"{len(fresh)} members of {self.spec.size}", where=self.spec.name)
        for observe in self.observers:
            observe(fresh)
        self.members = fresh
        self._index()

    def contains(self, key: tuple[int, ...]) -> bool:
        """Return whether a key, one value per field, satisfies a member."""
        if self._exact is not None:
            return key in self._exact
        keys = self.spec.keys
        return any(all(map(field_matches, keys, member, key)) for member in self.members)

    def _index(self) -> None:
        exact = all(key.kind is MatchKind.EXACT for key in self.spec.keys)
        self._exact = frozenset(self.members) if exact else None
