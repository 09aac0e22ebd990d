"""A stand-in for a switch's state: packets explained off the forwarding path read it and change nothing.

Their changes (counters, registers, meters) go to a separate layer, which is empty for the next packet, so that a packet
sees its own writes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, MutableSequence, Sequence
from dataclasses import replace
from typing import overload

from dataplane.program.objects import ActionCall, TableSpec
from dataplane.switch.tables import (
    CloneSession,
    CounterArray,
    ForwardingState,
    MeterArray,
    MeterCell,
    Profile,
    Replica,
    Table,
    TableEntry,
    Tally,
    ValueSet,
)
from dataplane.switch.tables.meters import CELL_WORDS, CONFIGURED, COUNTS_PACKETS, execute


class ShadowState:
    """The state of a running program for packets that must leave no trace in it; call `reset` before each of them."""

    def __init__(self, state: ForwardingState) -> None:
        self.value_sets: Mapping[str, ValueSet] = state.value_sets
        self.multicast_groups: Mapping[int, Sequence[Replica]] = state.multicast_groups
        self.clone_sessions: Mapping[int, CloneSession] = state.clone_sessions
        self.tables = {name: _ShadowTable(table) for name, table in state.tables.items()}
        self.counters = {name: _ShadowCounter(counter) for name, counter in state.counters.items()}
        self.registers = {name: _ShadowRegister(cells) for name, cells in state.registers.items()}
        self.meters = {name: _ShadowMeter(meter) for name, meter in state.meters.items()}

    def reset(self) -> None:
        """Forget the previous packet's changes."""
        for counter in self.counters.values():
            counter.changed.clear()
        for register in self.registers.values():
            register.changed.clear()
        for meter in self.meters.values():
            meter.changed.clear()


class _ShadowTable:
    """A table whose entries are returned with their own counters and meters."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    @property
    def spec(self) -> TableSpec:
        return self._table.spec

    @property
    def profile(self) -> Profile | None:
        return self._table.profile

    @property
    def needs_priority(self) -> bool:
        return self._table.needs_priority

    @property
    def default(self) -> ActionCall | None:
        return self._table.default

    @property
    def default_entry(self) -> TableEntry:
        return _copy(self._table.default_entry)

    @property
    def lookup(self) -> Callable[[tuple[int, ...]], TableEntry | None]:
        look_up = self._table.lookup

        def look_up_copy(key: tuple[int, ...]) -> TableEntry | None:
            entry = look_up(key)
            return None if entry is None else _copy(entry)

        return look_up_copy


def _copy(entry: TableEntry) -> TableEntry:
    cell = entry.meter_cell
    if cell is not None:
        fresh = MeterCell(cell.unit, cell.config)
        fresh.words = _unlocked(cell.words)
        cell = fresh
    return replace(entry, tally=Tally(entry.packets, entry.bytes, entry.last_hit_us), meter_cell=cell)


def _unlocked(words: array[int]) -> array[int]:
    copied = words[:]
    copied[0] &= CONFIGURED | COUNTS_PACKETS  # not the lock
    return copied


class _ShadowCounter:
    def __init__(self, counter: CounterArray) -> None:
        self._counter = counter
        self.changed: dict[int, tuple[int, int]] = {}

    def count(self, index: int, nbytes: int) -> None:
        if 0 <= index < self._counter.spec.size:
            packets, counted = self.read(index)
            self.changed[index] = packets + 1, counted + nbytes

    def read(self, index: int) -> tuple[int, int]:
        return self.changed.get(index) or self._counter.read(index)


class _ShadowRegister(MutableSequence[int]):
    def __init__(self, cells: MutableSequence[int]) -> None:
        self._cells = cells
        self.changed: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._cells)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        return self.changed[index] if index in self.changed else self._cells[index]

    @overload
    def __setitem__(self, index: int, value: int) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[int]) -> None: ...
    def __setitem__(self, index: int | slice, value: int | Iterable[int]) -> None:
        if isinstance(index, slice) or not isinstance(value, int):
            raise TypeError("a packet writes one cell at a time")
        self.changed[index] = value

    def __delitem__(self, index: int | slice) -> None:
        raise TypeError("a register's size is fixed")

    def insert(self, index: int, value: int) -> None:  # noqa: ARG002 (the protocol's)
        raise TypeError("a register's size is fixed")


class _ShadowMeter:
    def __init__(self, meter: MeterArray) -> None:
        self._meter = meter
        self.changed: dict[int, array[int]] = {}

    def execute(self, index: int, nbytes: int, now_us: int) -> int | None:
        if not 0 <= index < self._meter.spec.size:
            return None
        start = index * CELL_WORDS
        words = self.changed.setdefault(index, _unlocked(self._meter.cells[start : start + CELL_WORDS]))
        return execute(words, 0, nbytes, now_us)
