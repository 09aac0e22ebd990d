"""Events of a switch in a scenario: frames, time, port changes, and writes to each kind of its state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from dataplane.errors import EntryError
from dataplane.program.objects import ActionCall
from dataplane.switch.tables import CloneSession, ForwardingState, Group, MeterConfig, Replica, TableEntry
from dataplane.switch.tables.match import Match


@dataclass(frozen=True, slots=True)
class Arrival:
    """A frame comes in."""

    port: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Pause:
    """Time passes."""

    duration_ns: int


@dataclass(frozen=True, slots=True)
class PortChange:
    """A port goes down or comes back."""

    port: int
    up: bool


@dataclass(frozen=True, slots=True)
class Insert:
    """Insert, or else modify, a table entry; a meter configuration goes with it where the table has a meter."""

    table: str
    entry: TableEntry
    meter: MeterConfig | None

    def apply(self, state: ForwardingState) -> None:
        table, entry = state.tables[self.table], replace(self.entry)
        if table.get(entry.match, entry.priority) is None:
            table.insert(entry)
        else:
            table.modify(entry)
        if table.spec.direct_meter is not None:
            table.write_meter(entry.match, entry.priority, self.meter)


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the table entry at a place among those present."""

    table: str
    place: int

    def apply(self, state: ForwardingState) -> None:
        table = state.tables[self.table]
        entries = [entry for entry in table if not entry.is_const]
        if entries:
            entry = entries[self.place % len(entries)]
            table.delete(entry.match, entry.priority)


@dataclass(frozen=True, slots=True)
class Default:
    """Change a table's default action, None restores the program's own; and its meter if the table has one."""

    table: str
    call: ActionCall | None
    meter: MeterConfig | None = None

    def apply(self, state: ForwardingState) -> None:
        table = state.tables[self.table]
        table.set_default(self.call)
        if table.spec.direct_meter is not None:
            table.write_default_meter(self.meter)


@dataclass(frozen=True, slots=True)
class Member:
    """Insert or modify an action profile's member."""

    profile: str
    member: int
    call: ActionCall

    def apply(self, state: ForwardingState) -> None:
        profile = state.profiles[self.profile]
        change = profile.modify_member if self.member in profile.members else profile.insert_member
        change(self.member, self.call)


@dataclass(frozen=True, slots=True)
class GroupWrite:
    """Insert or modify an action profile's group."""

    profile: str
    group: Group

    def apply(self, state: ForwardingState) -> None:
        profile = state.profiles[self.profile]
        change = profile.modify_group if self.group.group_id in profile.groups else profile.insert_group
        change(self.group)


@dataclass(frozen=True, slots=True)
class Copies:
    """Set a multicast group, or with `session` a clone session."""

    number: int
    replicas: tuple[Replica, ...]
    session: CloneSession | None

    def apply(self, state: ForwardingState) -> None:
        if self.session is None:
            state.multicast_groups[self.number] = self.replicas
        else:
            state.clone_sessions[self.number] = self.session


@dataclass(frozen=True, slots=True)
class Cell:
    """Set a register cell."""

    register: str
    index: int
    value: int

    def apply(self, state: ForwardingState) -> None:
        state.write_register(self.register, self.index, self.value)


@dataclass(frozen=True, slots=True)
class Count:
    """Set a counter cell."""

    counter: str
    index: int
    packets: int

    def apply(self, state: ForwardingState) -> None:
        state.counters[self.counter].write(self.index, self.packets, 64 * self.packets)


@dataclass(frozen=True, slots=True)
class Rates:
    """Configure a meter cell."""

    meter: str
    index: int
    config: MeterConfig | None

    def apply(self, state: ForwardingState) -> None:
        state.meters[self.meter].write(self.index, self.config)


@dataclass(frozen=True, slots=True)
class Members:
    """Replace a parser value set's members."""

    value_set: str
    members: tuple[Match, ...]

    def apply(self, state: ForwardingState) -> None:
        state.value_sets[self.value_set].replace(self.members)


Write: TypeAlias = Insert | Delete | Default | Member | GroupWrite | Copies | Cell | Count | Rates | Members
Event: TypeAlias = Arrival | Pause | PortChange | Write


def refused(write: Write, state: ForwardingState) -> bool:
    """Apply a write; return whether the state refused it."""
    try:
        with state.lock:
            write.apply(state)
    except EntryError:
        return True
    return False
