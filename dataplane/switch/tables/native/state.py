"""A forwarding state in memory that compiled code reads without locks, kept in sync with the Python state."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from functools import partial

from dataplane.errors import EntryError, EntryFault
from dataplane.switch.abi import MAX_CLONE_SESSIONS, MAX_MULTICAST_GROUPS, Machine
from dataplane.switch.tables.match import Match
from dataplane.switch.tables.native import meters, publish
from dataplane.switch.tables.native.heap import Heap
from dataplane.switch.tables.native.kernel_calls import check, function
from dataplane.switch.tables.native.mirrors import MaskSpaces, TableMirror, mirror_kind
from dataplane.switch.tables.native.profile import ProfileMirror
from dataplane.switch.tables.native.requests import ActionTable, Request
from dataplane.switch.tables.replication import CloneSession, Replica
from dataplane.switch.tables.state import ForwardingState
from dataplane.switch.tables.table import Table
from dataplane.switch.tables.value_set import ValueSet
from dataplane.switch.tables.words import Words, address_of, zeroed_words


class NativeState:
    """The native side of one `ForwardingState`, from now until `release`.

    What packets change (counters, registers, meters, tallies) is the state's own memory. Everything else is copied, and
    changed whenever the state is, by the same thread, under the state's lock. It must outlive every machine that it
    filled; each must be registered before its first burst.
    """

    def __init__(self, state: ForwardingState) -> None:
        self._state = state
        self._heap = Heap()
        self._request = Request("replication")
        with state.lock:
            actions = ActionTable(state.program.actions)
            self._profiles = {
                name: ProfileMirror(profile, actions, self._heap) for name, profile in state.profiles.items()
            }
            self._value_set_observers: list[Callable[[tuple[Match, ...]], None]] = []
            self._tables = [self._mirror(table, actions) for table in state.tables.values()]
            self._value_sets = [
                self._value_set(value_set, value_set.members) for value_set in state.value_sets.values()
            ]
            self._lay_out()
            self._follow()

    def _mirror(self, table: Table, actions: ActionTable) -> TableMirror:
        profile = None if table.spec.profile is None else self._profiles[table.spec.profile]
        mirror = mirror_kind(table.spec.keys)(table, profile, actions, self._heap)
        mirror.follow()
        return mirror

    def _value_set(self, value_set: ValueSet, members: tuple[Match, ...]) -> MaskSpaces:
        spaces = MaskSpaces(value_set.spec.keys, self._heap, value_set.spec.name)
        for member in members:
            spaces.put(member, 1, (0, 0, 0, 0), (), is_new=True)
        return spaces

    def _lay_out(self) -> None:
        """Create the arrays of addresses that all machines share."""
        state = self._state
        self._table_addresses = array("Q", [mirror.head.address for mirror in self._tables])
        self._counter_addresses = _addresses([counter.cells for counter in state.counters.values()])
        self._register_addresses = _addresses([cells.words for cells in state.registers.values()])
        self._register_locks = array("Q", bytes(8 * len(state.registers)))
        meters = [state.meters.get(name) for name in state.program.meters]
        self._meter_addresses = array("Q", [0 if item is None else address_of(item.cells) for item in meters])
        self._value_set_addresses = array("Q", [spaces.address for spaces in self._value_sets])
        self._group_addresses = zeroed_words(MAX_MULTICAST_GROUPS)
        self._session_addresses = zeroed_words(MAX_CLONE_SESSIONS)

    def _follow(self) -> None:
        """Copy the present state, and follow every change from now on."""
        state = self._state
        for index, value_set in enumerate(state.value_sets.values()):
            observer = partial(self._value_set_changed, index, value_set)
            self._value_set_observers.append(observer)
            value_set.observers += (observer,)
        for group_id, replicas in state.multicast_groups.items():
            self._group_changed(group_id, replicas)
        for session_id, session in state.clone_sessions.items():
            self._session_changed(session_id, session)
        state.multicast_groups.observers += (self._group_changed,)
        state.clone_sessions.observers += (self._session_changed,)
        for meter in state.meters.values():
            meter.writer = self._write_meter
        for table in state.tables.values():
            table.meter_writer = self._write_meter

    def fill(self, machine: Machine) -> None:
        """Point a machine to everything of the state; its other fields are the caller's."""
        self.fill_tables(machine)
        for name, addresses in (
            ("counters", self._counter_addresses),
            ("registers", self._register_addresses),
            ("register_locks", self._register_locks),
            ("meters", self._meter_addresses),
        ):
            setattr(machine, name, address_of(addresses))

    def fill_tables(self, machine: Machine) -> None:
        """Point a machine to what a controller writes, and not to what packets change."""
        for name, addresses in (
            ("tables", self._table_addresses),
            ("value_sets", self._value_set_addresses),
            ("sessions", self._session_addresses),
            ("groups", self._group_addresses),
        ):
            setattr(machine, name, address_of(addresses))

    def register_machine(self, machine: Machine) -> None:
        """Prevent freeing of anything that a burst of this machine may see."""
        with self._state.lock:
            self._heap.add_machine(machine)

    def unregister_machine(self, machine: Machine) -> None:
        """Forget a machine that processes no more bursts on this state."""
        with self._state.lock:
            self._heap.remove_machine(machine)

    def table_address(self, name: str) -> int:
        """Return the address of a table's struct."""
        return self._table_addresses[list(self._state.tables).index(name)]

    @property
    def blocks(self) -> int:
        """Blocks of memory that are allocated and not freed yet."""
        return self._heap.blocks

    def collect(self) -> int:
        """Free what no packet can see any more; return how many blocks still wait. Writes also do so occasionally."""
        with self._state.lock:
            return self._heap.collect()

    def release(self) -> None:
        """Stop following the state and free everything; no machine may use it any more. A second call does nothing."""
        with self._state.lock:
            self._stop_following()
            for mirror in self._tables:
                mirror.free()
            for profile in self._profiles.values():
                profile.free()
            for spaces in self._value_sets:
                spaces.drop(later=False)
            for group_id in self._state.multicast_groups:
                self._group_changed(group_id, None)
            for session_id in self._state.clone_sessions:
                self._session_changed(session_id, None)
            self._tables, self._value_sets, self._profiles = [], [], {}
            self._heap.free()

    def _stop_following(self) -> None:
        state = self._state
        groups, sessions = state.multicast_groups, state.clone_sessions
        groups.observers = tuple(item for item in groups.observers if item != self._group_changed)
        sessions.observers = tuple(item for item in sessions.observers if item != self._session_changed)
        for value_set in state.value_sets.values():
            value_set.observers = tuple(item for item in value_set.observers if item not in self._value_set_observers)
        for meter in state.meters.values():
            if meter.writer == self._write_meter:
                meter.writer = None
        for table in state.tables.values():
            if table.meter_writer == self._write_meter:
                table.meter_writer = None

    def _value_set_changed(self, index: int, value_set: ValueSet, members: tuple[Match, ...]) -> None:
        """Replace the members that packets see, all at once."""
        old, new = self._value_sets[index], self._value_set(value_set, members)
        self._value_sets[index] = new
        function(publish.store_word)(address_of(self._value_set_addresses) + 8 * index, new.address)
        old.drop(later=True)
        self._heap.keep(old)

    def _group_changed(self, group_id: int, replicas: tuple[Replica, ...] | None) -> None:
        words = None if replicas is None else (len(replicas), 0, 0, *_replica_words(replicas))
        self._put_replicas(self._group_addresses, group_id, words)

    def _session_changed(self, session_id: int, session: CloneSession | None) -> None:
        words = None
        if session is not None:
            head = (len(session.replicas), session.class_of_service, session.packet_length_bytes)
            words = (*head, *_replica_words(session.replicas))
        self._put_replicas(self._session_addresses, session_id, words)

    def _put_replicas(self, addresses: Words, index: int, words: Sequence[int] | None) -> None:
        if not 0 <= index < len(addresses):
            raise EntryError(EntryFault.OUT_OF_RANGE, f"number {index} of {len(addresses)}", where="replication")
        cell = address_of(addresses) + 8 * index
        if words is None:
            check(function(publish.publish)(self._heap.address, cell, 0), "replication")
        else:
            request = self._request.write(*words)
            check(function(publish.put_replicas)(self._heap.address, cell, request), "replication")

    def _write_meter(self, address: int, words: tuple[int, ...]) -> None:
        function(meters.write_meter)(address, self._request.write(*words))


def _addresses(arrays: Sequence[Words]) -> array[int]:
    return array("Q", map(address_of, arrays))


def _replica_words(replicas: tuple[Replica, ...]) -> list[int]:
    return [word for replica in replicas for word in (replica.port, replica.instance)]
