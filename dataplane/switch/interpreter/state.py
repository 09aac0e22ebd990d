"""The part of a switch's state that a program reads and changes while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableSequence, Sequence
from typing import Protocol

from dataplane.program.objects import ActionCall, TableSpec
from dataplane.switch.tables import CloneSession, Profile, Replica, TableEntry


class CounterCells(Protocol):
    """An indirect counter."""

    def count(self, index: int, nbytes: int) -> None:
        """Count one packet of `nbytes` bytes at `index`; an index out of range counts nothing."""
        ...

    def read(self, index: int) -> tuple[int, int]:
        """Return packets and bytes at an index in range."""
        ...


class MeterCells(Protocol):
    """An indirect meter."""

    def execute(self, index: int, nbytes: int, now_us: int) -> int | None:
        """Charge one packet of `nbytes` bytes to a cell and return its colour; None if the index is out of range."""
        ...


class SharedArrays(Protocol):
    """The arrays that primitives change."""

    @property
    def counters(self) -> Mapping[str, CounterCells]:
        """Return the indirect counters."""
        ...

    @property
    def registers(self) -> Mapping[str, MutableSequence[int]]:
        """Return the registers' cells."""
        ...

    @property
    def meters(self) -> Mapping[str, MeterCells]:
        """Return the indirect meters."""
        ...


class MatchTable(Protocol):
    """A table as packets see it."""

    @property
    def spec(self) -> TableSpec:
        """Return the program's declaration."""
        ...

    @property
    def profile(self) -> Profile | None:
        """Return the action profile that entries point into, if the table has one."""
        ...

    @property
    def needs_priority(self) -> bool:
        """Return whether entries can overlap, so that each needs a priority."""
        ...

    def __len__(self) -> int: ...

    @property
    def default(self) -> ActionCall | None:
        """Return the current default action, if there is one."""
        ...

    @property
    def default_entry(self) -> TableEntry:
        """Return the same as an entry, with the counter and the meter of packets that match nothing."""
        ...

    @property
    def lookup(self) -> Callable[[tuple[int, ...]], TableEntry | None]:
        """Return a function that finds the entry a key hits; called once, when the program is bound."""
        ...


class Members(Protocol):
    """A parser value set."""

    def contains(self, key: tuple[int, ...], /) -> bool:
        """Return whether a key, one value per field, satisfies a member."""
        ...


class PipelineState(SharedArrays, Protocol):
    """The complete state: a `ForwardingState`, or a substitute for one."""

    @property
    def tables(self) -> Mapping[str, MatchTable]:
        """Return the tables."""
        ...

    @property
    def value_sets(self) -> Mapping[str, Members]:
        """Return the parser value sets."""
        ...

    @property
    def multicast_groups(self) -> Mapping[int, Sequence[Replica]]:
        """Return the replicas of each group."""
        ...

    @property
    def clone_sessions(self) -> Mapping[int, CloneSession]:
        """Return the clone sessions."""
        ...
