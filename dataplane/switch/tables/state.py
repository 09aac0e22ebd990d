"""Everything that P4Runtime can write and a pipeline reads, for one loaded program."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import ActionCall, ActionSpec, CounterSpec, ProfileSpec, RegisterSpec, TableSpec
from dataplane.switch.tables.match import all_ones
from dataplane.switch.tables.profile import Profile
from dataplane.switch.tables.table import Table, check_call


class ProgramObjects(Protocol):
    """What a program declares, by fully qualified name: the part of a `Program` that its state is made from."""

    @property
    def tables(self) -> Mapping[str, TableSpec]:
        """Return the match-action tables."""
        ...

    @property
    def actions(self) -> Mapping[str, ActionSpec]:
        """Return the actions."""
        ...

    @property
    def profiles(self) -> Mapping[str, ProfileSpec]:
        """Return the action profiles and selectors."""
        ...

    @property
    def counters(self) -> Mapping[str, CounterSpec]:
        """Return the indirect counters."""
        ...

    @property
    def registers(self) -> Mapping[str, RegisterSpec]:
        """Return the registers."""
        ...


@dataclass(frozen=True, slots=True)
class Replica:
    """One copy of a packet: the port it leaves by and the instance number that egress sees (egress_rid)."""

    port: int
    instance: int = 0


@dataclass(frozen=True, slots=True)
class CloneSession:
    """Where clones go; `packet_length_bytes` 0 leaves them whole."""

    replicas: tuple[Replica, ...]
    class_of_service: int = 0
    packet_length_bytes: int = 0


class CounterArray:
    """An indirect counter: packets and bytes for each index."""

    def __init__(self, spec: CounterSpec) -> None:
        self.spec = spec
        self.packets = [0] * spec.size
        self.bytes = [0] * spec.size

    def count(self, index: int, nbytes: int) -> None:
        """Count one packet of `nbytes` bytes at `index`; as in bmv2, an index out of range counts nothing."""
        if 0 <= index < len(self.packets):
            self.packets[index] += 1
            self.bytes[index] += nbytes

    def write(self, index: int, packets: int, nbytes: int) -> None:
        """Set both values at `index`; raise EntryError if it is out of range."""
        if not 0 <= index < len(self.packets):
            raise EntryError(EntryFault.OUT_OF_RANGE, f"index {index} of {len(self.packets)}", where=self.spec.name)
        self.packets[index], self.bytes[index] = packets, nbytes


class ForwardingState:
    """Tables, profiles, counters, registers, groups and clone sessions of one program, all fresh.

    `lock` is held by a writer for each batch and by the switch for each burst, so that a burst sees a batch whole or
    not at all. Values here are replaced, never changed in place, except counters and registers. `replication_notes`
    keeps what a controller must read back of its groups and sessions and no packet needs.
    """

    def __init__(self, program: ProgramObjects) -> None:
        self.lock = threading.RLock()
        self.profiles = {spec.name: _profile(spec, program) for spec in program.profiles.values()}
        self.tables = {
            spec.name: Table(spec, program.actions, None if spec.profile is None else self.profiles[spec.profile])
            for spec in program.tables.values()
        }
        self.counters = {spec.name: CounterArray(spec) for spec in program.counters.values()}
        self.registers = {spec.name: [0] * spec.size for spec in program.registers.values()}
        self.replication_notes: dict[tuple[str, int], bytes] = {}
        self.multicast_groups: dict[int, tuple[Replica, ...]] = {}
        self.clone_sessions: dict[int, CloneSession] = {}
        self._register_specs = {spec.name: spec for spec in program.registers.values()}

    def register_spec(self, name: str) -> RegisterSpec | None:
        """Return what the program declares about a register, or None if it has none of that name."""
        return self._register_specs.get(name)

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell; raise EntryError if the index is out of range or the value too wide."""
        spec = self._register_specs[name]
        if not 0 <= index < spec.size:
            raise EntryError(EntryFault.OUT_OF_RANGE, f"index {index} of {spec.size}", where=name)
        if not 0 <= value <= all_ones(spec.width):
            raise EntryError(EntryFault.INVALID, f"{value:#x} does not fit {spec.width} bits", where=name)
        self.registers[name][index] = value


def _profile(spec: ProfileSpec, program: ProgramObjects) -> Profile:
    """Make a profile whose members may be any action of the tables that use it."""
    allowed = tuple({name for table in program.tables.values() if table.profile == spec.name for name in table.actions})
    return Profile(spec, partial(_check_call, program.actions, allowed, spec.name))


def _check_call(actions: Mapping[str, ActionSpec], allowed: tuple[str, ...], where: str, call: ActionCall) -> None:
    check_call(call, actions, allowed, where=where)
