"""Execution of a test file's commands that change or show a switch's tables: p4c's syntax, our state."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dataplane.errors import EntryError, EntryFault
from dataplane.program.model import Program
from dataplane.stf.names import find_call, find_match, find_name
from dataplane.stf.statements import (
    Add,
    CheckCounter,
    Command,
    CounterRead,
    CounterWrite,
    CountUnit,
    GroupCreate,
    MeterGet,
    MeterSet,
    Mirror,
    MirrorDelete,
    MirrorGet,
    NodeAssociate,
    NodeCreate,
    NodeUpdate,
    Rate,
    RegisterRead,
    RegisterReset,
    RegisterWrite,
    RemoveAll,
    SetDefault,
)
from dataplane.switch.tables import (
    ActionSet,
    CloneSession,
    CounterArray,
    ForwardingState,
    MeterConfig,
    Replica,
    Table,
    TableEntry,
    WeightedAction,
)
from dataplane.switch.tables.match import Match

_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Label:
    """An entry that a test has named."""

    table: str
    match: Match
    priority: int


@dataclass(frozen=True, slots=True)
class Answer:
    """Response of a command that shows or checks something; `holds` is False if a check fails."""

    text: str
    holds: bool = True


@dataclass(slots=True)
class _Node:
    replication_id: int
    ports: tuple[int, ...]


@dataclass(slots=True)
class _Copies:
    """bmv2's multicast nodes, groups and clone sessions, which our state keeps as lists of replicas."""

    nodes: list[_Node] = field(default_factory=list)
    groups: dict[int, list[int]] = field(default_factory=dict)
    mirrors: dict[int, Mirror] = field(default_factory=dict)

    def replicas(self, group: int) -> tuple[Replica, ...]:
        """Return the copies that a group makes, in the order in which its nodes joined."""
        nodes = [self.nodes[number] for number in self.groups.get(group, ())]
        return tuple(Replica(port, node.replication_id) for node in nodes for port in sorted(node.ports))


class Controls:
    """The control side of one test: `carry_out` raises EntryError for objects that the program lacks."""

    def __init__(self, program: Program, state: ForwardingState) -> None:
        self._program, self._state = program, state
        self._labels: dict[str, Label] = {}
        self._copies = _Copies()

    def carry_out(self, command: Command) -> Answer | None:
        """Execute `command`; return its response, if any."""
        with self._state.lock:
            match command:
                case Add() | RemoveAll() | SetDefault():
                    self._change_table(command)
                case CheckCounter() | CounterRead() | CounterWrite():
                    return self._counter(command)
                case RegisterRead() | RegisterWrite() | RegisterReset():
                    return self._register(command)
                case MeterGet() | MeterSet():
                    return self._meter(command)
                case MirrorGet(session):
                    return Answer(f"clone session {session}: {self._state.clone_sessions.get(session)}")
                case _:
                    self._change_copies(command)
        return None

    # ---- tables

    def _change_table(self, command: Add | RemoveAll | SetDefault) -> None:
        match command:
            case Add():
                self._add(command)
            case SetDefault():
                table = self._table(command.table)
                table.set_default(find_call(table.spec, self._program.actions, command.call))
            case RemoveAll():
                for table in self._state.tables.values():
                    for entry in [entry for entry in table if not entry.is_const]:
                        table.delete(entry.match, entry.priority)

    def _add(self, command: Add) -> None:
        table = self._table(command.table)
        match = find_match(table.spec, command.matches)
        # The framework's priorities start at 0, P4Runtime's at 1.
        priority = (command.priority or 0) + 1 if table.needs_priority else 0
        call = find_call(table.spec, self._program.actions, command.call)
        if table.profile is None:
            entry = TableEntry(match, priority, call=call)
        else:
            entry = TableEntry(match, priority, action_set=ActionSet((WeightedAction(call),)))
        table.insert(entry)
        if command.label is not None:
            self._labels[command.label] = Label(table.spec.name, match, priority)

    def _table(self, written: str) -> Table:
        return self._state.tables[find_name(self._state.tables, written, "table")]

    # ---- counters

    def _counter(self, command: CheckCounter | CounterRead | CounterWrite) -> Answer | None:
        if isinstance(command, CounterWrite):
            self._counters(command.counter).write(command.index, command.packets, command.nbytes)
            return None
        cell = command.index if isinstance(command, CounterRead) else command.place
        packets, nbytes = self._count(command.counter, cell)
        text = f"counter {command.counter}[{cell}]: {packets} packets, {nbytes} bytes"
        if isinstance(command, CounterRead) or command.comparison is None:
            return Answer(text)
        unit, sign, wanted = command.comparison
        holds = _COMPARE[sign](packets if unit is CountUnit.PACKETS else nbytes, wanted)
        return Answer(text if holds else f"{text}, expected {unit} {sign} {wanted}", holds)

    def _count(self, written: str, cell: int | str) -> tuple[int, int]:
        if isinstance(cell, int):
            return self._counters(written).read(cell)
        label = self._labels.get(cell)
        if label is None:
            raise EntryError(EntryFault.NOT_FOUND, "no entry has this label", where=f"${cell}")
        table = self._state.tables[label.table]
        find_name([table.spec.direct_counter or ""], written, f"{label.table}: direct counter")
        entry = table.get(label.match, label.priority)
        if entry is None:
            raise EntryError(EntryFault.NOT_FOUND, "the entry is gone", where=f"${cell}")
        return entry.packets, entry.bytes

    def _counters(self, written: str) -> CounterArray:
        return self._state.counters[find_name(self._state.counters, written, "counter")]

    # ---- registers and meters

    def _register(self, command: RegisterRead | RegisterWrite | RegisterReset) -> Answer | None:
        name = find_name(self._state.registers, command.register, "register")
        match command:
            case RegisterWrite(_, index, value):
                self._state.write_register(name, index, value)
            case RegisterReset():
                for index in range(len(self._state.registers[name])):
                    self._state.write_register(name, index, 0)
            case RegisterRead(_, index):
                cells = self._state.registers[name]
                if index >= len(cells):
                    raise EntryError(EntryFault.OUT_OF_RANGE, f"index {index} of {len(cells)}", where=name)
                return Answer(f"register {name}[{index}]: {cells[index]}")
        return None

    def _meter(self, command: MeterGet | MeterSet) -> Answer | None:
        name = find_name(self._state.meters, command.meter, "meter")
        meter = self._state.meters[name]
        if isinstance(command, MeterGet):
            return Answer(f"meter {name}[{command.index}]: {meter.read(command.index)}")
        committed, peak = command.rates
        config = MeterConfig(_per_second(committed), committed.burst, _per_second(peak), peak.burst)
        for index in range(meter.spec.size) if command.index is None else (command.index,):
            meter.write(index, config)
        return None

    # ---- copies

    def _change_copies(self, command: Command) -> None:
        copies = self._copies
        match command:
            case GroupCreate(group):
                copies.groups[group] = []
            case NodeCreate(replication_id, ports):
                copies.nodes.append(_Node(replication_id, ports))
            case NodeUpdate(node, ports):
                self._node(node).ports = ports
            case NodeAssociate(group, node):
                self._node(node)
                if group not in copies.groups:
                    raise EntryError(EntryFault.NOT_FOUND, "has not been created", where=f"multicast group {group}")
                copies.groups[group].append(node)
            case Mirror(session):
                copies.mirrors[session] = command
            case MirrorDelete(session):
                copies.mirrors.pop(session, None)
                self._state.clone_sessions.pop(session, None)
        self._publish()

    def _node(self, number: int) -> _Node:
        if number >= len(self._copies.nodes):
            raise EntryError(EntryFault.NOT_FOUND, "has not been created", where=f"multicast node {number}")
        return self._copies.nodes[number]

    def _publish(self) -> None:
        for group in self._copies.groups:
            self._state.multicast_groups[group] = self._copies.replicas(group)
        for session, mirror in self._copies.mirrors.items():
            to_port = () if mirror.port is None else (Replica(mirror.port),)
            to_group = () if mirror.group is None else self._copies.replicas(mirror.group)
            self._state.clone_sessions[session] = CloneSession((*to_port, *to_group))


def _per_second(rate: Rate) -> int:
    return round(rate.per_us * 1_000_000)
