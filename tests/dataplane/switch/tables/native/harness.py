"""A program of one table with a native side, and lookups through the kernels."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dataplane.native import kernel_library
from dataplane.program.objects import (
    ActionCall,
    ActionSpec,
    CounterSpec,
    KeyField,
    MeterSpec,
    ProfileSpec,
    RegisterSpec,
    TableSpec,
    ValueSetSpec,
)
from dataplane.switch.abi import Entry, Machine
from dataplane.switch.tables import ForwardingState, Table, TableEntry
from dataplane.switch.tables.native import NativeState, execute_meter, lookup_kernel, lookup_mask, select_member
from dataplane.switch.tables.native.requests import words_of

ACTIONS = {
    "drop": ActionSpec("drop", ()),
    "send": ActionSpec("send", (("port", 32), ("wide", 100))),
}
DROP = ActionCall("drop")


def send(port: int) -> ActionCall:
    """Return an action whose two arguments belong together, so that a torn one shows."""
    return ActionCall("send", (port, port << 64 | port))


@dataclass(frozen=True)
class Program:
    """Specifications that a state is built from."""

    tables: Mapping[str, TableSpec]
    profiles: Mapping[str, ProfileSpec] = field(default_factory=dict)
    counters: Mapping[str, CounterSpec] = field(default_factory=dict)
    registers: Mapping[str, RegisterSpec] = field(default_factory=dict)
    meters: Mapping[str, MeterSpec] = field(default_factory=dict)
    value_sets: Mapping[str, ValueSetSpec] = field(default_factory=dict)
    actions: Mapping[str, ActionSpec] = field(default_factory=lambda: dict(ACTIONS))


def table_spec(keys: tuple[KeyField, ...], **options: Any) -> TableSpec:
    return TableSpec("t", keys, ("drop", "send"), DROP, False, 0, **options)


def one_table(keys: tuple[KeyField, ...], **options: Any) -> Program:
    return Program({"t": table_spec(keys, **options)})


def bound(keys: tuple[KeyField, ...]) -> Callable[..., int]:
    kernel = lookup_kernel(keys)
    return kernel_library(kernel).bind(kernel)


class NativeBench:
    """A state with its native side and one machine; lookups give what compiled code would see."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.state = ForwardingState(program)
        self.attach()
        self._lookups = {name: bound(spec.keys) for name, spec in program.tables.items()}
        library = kernel_library(select_member, execute_meter, lookup_mask)
        self.select: Callable[..., int] = library.bind(select_member)
        self.charge: Callable[..., int] = library.bind(execute_meter)
        self.member_of: Callable[..., int] = library.bind(lookup_mask)

    def attach(self) -> None:
        """Make a native side and a machine."""
        self.native = NativeState(self.state)
        self.machine = Machine()
        self.native.fill(self.machine)
        self.native.register_machine(self.machine)

    @property
    def table(self) -> Table:
        return self.state.tables["t"]

    def table_address(self, name: str = "t") -> int:
        address: int = self.machine.tables[list(self.program.tables).index(name)]
        return address

    def find(self, *key: int, table: str = "t") -> Entry | None:
        words = words_of(key, [field.width for field in self.program.tables[table].keys])
        address = self._lookups[table](self.table_address(table), (ctypes.c_uint64 * max(1, len(words)))(*words))
        return Entry.from_address(address) if address else None

    def call(self, entry: Entry | None) -> ActionCall | None:
        """Return the action that a native entry stands for."""
        if entry is None:
            return None
        name, spec = list(ACTIONS.items())[entry.action]
        if not spec.parameters:
            return ActionCall(name)
        port, low, high = (entry.arguments[index] for index in range(3))
        return ActionCall(name, (port, high << 64 | low))

    def hit(self, *key: int, table: str = "t") -> ActionCall | None:
        return self.call(self.find(*key, table=table))

    def default(self, table: str = "t") -> ActionCall | None:
        return self.call(Entry.from_address(ctypes.c_uint64.from_address(self.table_address(table)).value))

    def insert(self, *match: Any, port: int = 1, priority: int = 0) -> None:
        self.table.insert(TableEntry(match, priority, call=send(port)))

    def release(self) -> None:
        """Release everything; nothing may stay allocated."""
        self.native.release()
        assert self.native.blocks == 0


MakeBench = Callable[[Program], NativeBench]
