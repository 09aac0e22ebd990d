"""Everything that P4Runtime can write and a pipeline reads, for one loaded program."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import (
    ActionCall,
    ActionSpec,
    CounterSpec,
    MeterSpec,
    ProfileSpec,
    RegisterSpec,
    TableSpec,
    ValueSetSpec,
)
from dataplane.switch.tables.arrays import CounterArray, register_cells
from dataplane.switch.tables.match import all_ones
from dataplane.switch.tables.meters import MeterArray
from dataplane.switch.tables.profile import Profile
from dataplane.switch.tables.replication import CloneSession, ObservedDict, Replica, check_group, check_session
from dataplane.switch.tables.table import Table, check_call
from dataplane.switch.tables.value_set import ValueSet

LOGGER = logging.getLogger("millrace.switch")


class ProgramObjects(Protocol):
    """A program's declarations by fully qualified name: the part of a `Program` that its state is made from."""

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

    @property
    def meters(self) -> Mapping[str, MeterSpec]:
        """Return the meters, direct ones included."""
        ...

    @property
    def value_sets(self) -> Mapping[str, ValueSetSpec]:
        """Return the parser value sets."""
        ...


class ForwardingState:
    """Tables, profiles, counters, registers, meters, value sets, groups and clone sessions of one program, all fresh.

    `lock` is held by a writer for each batch, and for each burst by a switch whose pipeline runs in Python, so that
    such a burst sees a batch whole or not at all. Values here are replaced, never changed in place, except what packets
    change: counters, registers and meters. `replication_notes` keeps what a controller must read back of its groups and
    sessions and no packet needs. `meters` are the indirect ones; the direct ones belong to their tables.
    """

    def __init__(self, program: ProgramObjects) -> None:
        self.program = program
        self.lock = threading.RLock()
        self.profiles = {spec.name: _profile(spec, program) for spec in program.profiles.values()}
        self.tables = {spec.name: self._table(spec, program) for spec in program.tables.values()}
        self.counters = {spec.name: CounterArray(spec) for spec in program.counters.values()}
        self.registers = {spec.name: register_cells(spec) for spec in program.registers.values()}
        self.meters = {spec.name: MeterArray(spec) for spec in program.meters.values() if spec.table is None}
        self.value_sets = {spec.name: ValueSet(spec) for spec in program.value_sets.values()}
        self.replication_notes: dict[tuple[str, int], bytes] = {}
        self.multicast_groups: ObservedDict[tuple[Replica, ...]] = ObservedDict(check_group)
        self.clone_sessions: ObservedDict[CloneSession] = ObservedDict(check_session)
        self.ports_down: frozenset[int] = frozenset()
        self._due_ports: dict[int, bool] = {}
        self._register_specs = {spec.name: spec for spec in program.registers.values()}

    def set_port_status(self, port: int, up: bool) -> None:
        """Exclude actions that watch `port` from their groups and action sets while it is down; ports start as up.

        Raises EntryError, and changes nothing, if there is no memory for the new choices.
        """
        with self.lock:
            before = self.ports_down
            down = before - {port} if up else before | {port}
            if down == before:
                return
            changed: list[Profile] = []
            try:
                for profile in self.profiles.values():
                    changed.append(profile)
                    profile.set_ports_down(down)
            except EntryError:
                for profile in changed:
                    profile.set_ports_down(before)
                raise
            self.ports_down = down

    def follow_port(self, port: int, up: bool) -> None:
        """Call `set_port_status`; if there is no memory for it, log that, and try again with the next change."""
        with self.lock:
            self._due_ports[port] = up
            for due, is_up in tuple(self._due_ports.items()):
                try:
                    self.set_port_status(due, is_up)
                except EntryError as error:
                    LOGGER.warning("port %d: groups that watch it stay as they are for now: %s", due, error)
                else:
                    del self._due_ports[due]

    def register_spec(self, name: str) -> RegisterSpec | None:
        """Return the declaration of a register, or None if there is none of that name."""
        return self._register_specs.get(name)

    def write_register(self, name: str, index: int, value: int) -> None:
        """Set one cell; raise EntryError if the index is out of range or the value too wide."""
        spec = self._register_specs[name]
        if not 0 <= index < spec.size:
            raise EntryError(EntryFault.OUT_OF_RANGE, f"index {index} of {spec.size}", where=name)
        if not 0 <= value <= all_ones(spec.width):
            raise EntryError(EntryFault.INVALID, f"{value:#x} does not fit {spec.width} bits", where=name)
        self.registers[name][index] = value

    def _table(self, spec: TableSpec, program: ProgramObjects) -> Table:
        profile = None if spec.profile is None else self.profiles[spec.profile]
        meter = None if spec.direct_meter is None else program.meters[spec.direct_meter]
        return Table(spec, program.actions, profile, meter)


def _profile(spec: ProfileSpec, program: ProgramObjects) -> Profile:
    """Make a profile whose members may be any action of the tables that use it."""
    allowed = tuple({name for table in program.tables.values() if table.profile == spec.name for name in table.actions})
    return Profile(spec, partial(_check_call, program.actions, allowed, spec.name))


def _check_call(actions: Mapping[str, ActionSpec], allowed: tuple[str, ...], where: str, call: ActionCall) -> None:
    check_call(call, actions, allowed, where=where)
