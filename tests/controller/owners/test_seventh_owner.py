"""An owner of tables that the core has never heard of, under both drivers and over real switches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol

import pytest
from finsy import P4RegisterEntry, P4Schema, P4TableAction, P4TableEntry, P4TableMatch

from controller.errors import ControllerError
from controller.features import Features
from controller.intents import RouteSet
from controller.owners.base import Known, TableOwner, own_batches
from controller.p4runtime.in_process import InProcessSession
from controller.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema
from controller.reconcile import diff
from controller.tables.base import base_entities
from controller.tables.entities import Batch, Entities, Entity, EntityKey, Kind, Update, Verb, index, key_of
from controller.tables.store import WRITERS, Writer, writer_entity
from controller.virtual import VirtualController, WriteDelays
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.values import Topology
from tests.controller.test_daemon import Lab, Running, play, running


class GuestsOwner(TableOwner):
    """Owns who may write into a store that nobody has here: the same hosts at every switch."""

    name = "guests"
    tables = frozenset({WRITERS})
    fill_order = (WRITERS,)

    def __init__(self, addresses: Iterable[int]) -> None:
        super().__init__()
        self.addresses = set(addresses)
        self.more: tuple[Entity, ...] = ()

    def wanted(self, switch: str) -> Entities:
        return index((*(writer_entity(1, Writer(address)) for address in sorted(self.addresses)), *self.more))


class Field(Protocol):
    """A fabric under one of the drivers."""

    async def settle(self) -> None:
        """Let it work until everybody has what is wanted."""

    def changed(self) -> None:
        """Say that an owner wants something else."""

    def restart(self, switch: str) -> None:
        """Have a switch forget everything."""

    def tables(self, switch: str) -> dict[EntityKey, Entity]:
        """Return what a switch really holds."""
        ...


class DaemonField:
    """Over sessions that take time."""

    def __init__(self, lab: Lab, run: Running) -> None:
        self._lab, self._run = lab, run

    async def settle(self) -> None:
        coordinator = self._run.daemon.coordinator
        for _ in range(3):
            await self._run.until(lambda: len(coordinator.live) == 4 and all(map(coordinator.is_right, "abcd")))
            await asyncio.sleep(0)
        await self._run.settle(1)

    def changed(self) -> None:
        self._run.daemon.changed()

    def restart(self, switch: str) -> None:
        self._lab.restart(switch)
        self._run.daemon.coordinator.lost(switch)

    def tables(self, switch: str) -> dict[EntityKey, Entity]:
        return self._lab.tables(switch)


class VirtualField:
    """In virtual time."""

    def __init__(self, fabric: VirtualFabric, schema: P4Schema, owner: GuestsOwner | None) -> None:
        self._fabric, self._schema = fabric, schema
        self._sessions = {
            node.name: InProcessSession(node.name, node.node_id, fabric.p4runtime(node.name), schema)
            for node in fabric.topology.switches
        }
        self.controller = VirtualController(
            fabric.topology,
            self._sessions,
            fabric.clock,
            fabric.call_at,
            delays=WriteDelays(write_delay_ns=1000),
            more=() if owner is None else (owner,),
        )
        self.controller.start()

    def close(self) -> None:
        for switch, session in self._sessions.items():
            self.controller.lose(switch)
            session.close()

    async def settle(self) -> None:
        self._fabric.run_until(self._fabric.now_ns + 1_000_000)
        assert self.controller.settled

    def changed(self) -> None:
        self.controller.changed()

    def restart(self, switch: str) -> None:
        self.controller.lose(switch)
        session = self._sessions[switch]
        for batch in diff({}, session.read()):
            session.write(batch)
        self.controller.reconnect(switch)

    def tables(self, switch: str) -> dict[EntityKey, Entity]:
        return self._sessions[switch].read()


Control = Callable[[GuestsOwner | None], AbstractAsyncContextManager[Field]]
"""Controls the same switches, with the owner or without it."""


@pytest.fixture(scope="module")
def schema() -> P4Schema:
    """Return a program that has tables which nobody owns here."""
    return load_schema(*fabric_program(FABRIC_AGGREGATION))


@pytest.fixture(params=["daemon", "virtual"])
def control(request: pytest.FixtureRequest, diamond: Topology, schema: P4Schema) -> Control:
    """Return what controls the diamond's switches by one of the drivers."""
    lab, fabric = Lab(diamond, schema), VirtualFabric(diamond)

    @asynccontextmanager
    async def by_daemon(owner: GuestsOwner | None) -> AsyncIterator[Field]:
        async with running(lab, features=Features(diamond, more=() if owner is None else (owner,))) as run:
            run.source.put_nowait(RouteSet(1, ()))
            field = DaemonField(lab, run)
            await field.settle()
            yield field

    @asynccontextmanager
    async def by_virtual(owner: GuestsOwner | None) -> AsyncIterator[Field]:
        field = VirtualField(fabric, schema, owner)
        await field.settle()
        yield field
        field.close()

    return by_daemon if request.param == "daemon" else by_virtual


def guests(field: Field, switch: str) -> set[int]:
    """Return whose entries a switch holds."""
    keys = (key for key in field.tables(switch) if key.table == WRITERS)
    return {value for key in keys for name, value in key.match if name == "src_addr" and isinstance(value, int)}


def check(field: Field, topology: Topology, expected: set[int], switches: str = "abcd") -> None:
    """Fail unless switches hold an owner's entries, and all of everybody else's."""
    for switch in switches:
        assert guests(field, switch) == expected
        others = {key: entity for key, entity in field.tables(switch).items() if key.table != WRITERS}
        assert diff(base_entities(topology)[switch], others) == []


def at(control: Control, owner: GuestsOwner | None, scene: Callable[[Field], Awaitable[None]]) -> None:
    """Play a scene under a controller that goes afterwards."""

    async def whole() -> None:
        async with control(owner) as field:
            await scene(field)

    play(whole())


def test_it_comes_changes_and_goes_and_a_switch_that_restarts_has_it_again(control: Control, diamond: Topology) -> None:
    owner = GuestsOwner((1, 2))

    async def scene(field: Field) -> None:
        check(field, diamond, {1, 2})
        owner.addresses = {2, 3}
        field.changed()
        await field.settle()
        check(field, diamond, {2, 3})
        field.restart("b")
        await field.settle()
        check(field, diamond, {2, 3})

    async def without(field: Field) -> None:
        check(field, diamond, set())

    at(control, owner, scene)
    at(control, None, without)


def test_what_a_switch_refuses_is_left_out_and_stops_nobody(
    control: Control, diamond: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    """The entry has no priority, which P4Runtime demands of ternary matches: switches refuse it themselves."""
    owner = GuestsOwner((1,))
    bad = P4TableEntry(WRITERS, match=P4TableMatch(src_addr=9, writers=1), action=P4TableAction("NoAction"), priority=0)

    async def scene(field: Field) -> None:
        owner.addresses, owner.more = {1, 2}, (bad,)
        field.changed()
        await field.settle()
        check(field, diamond, {1, 2})
        refusals = [record for record in caplog.records if record.getMessage().startswith("guests: switch a: write: ")]
        assert len(refusals) == 2
        owner.more = ()
        owner.addresses = {3}
        field.changed()
        await field.settle()
        check(field, diamond, {3})

    at(control, owner, scene)


class Prepared(GuestsOwner):
    """Clears a register's cell at each switch before its entries come, as those who count in registers must."""

    def __init__(self) -> None:
        super().__init__((1,))
        self.clear: set[str] = set()
        self.log: list[str] = []

    def owns(self, key: EntityKey) -> bool:
        return super().owns(key) or key.table == "aggregation_cells"

    def wanted(self, switch: str) -> Entities:
        return super().wanted(switch) if switch in self.clear else {}

    def next_batches(self, switch: str, known: Known) -> list[Batch]:
        if switch in self.clear:
            return own_batches(self, self.wanted(switch), known.held[switch])
        cell = P4RegisterEntry("aggregation_cells", index=7, data=0)
        return [(Update(Verb.MODIFY, key_of(cell), cell),)]

    def acknowledged(self, switch: str, updates: Iterable[Update]) -> None:
        for update in updates:
            if self.owns(update.key):
                self.log.append(f"{switch} {update.key.kind}")
                if update.key.kind is Kind.REGISTER:
                    self.clear.add(switch)

    def lost(self, switch: str) -> None:
        self.clear.discard(switch)


def test_registers_are_cleared_before_entries_come(control: Control, diamond: Topology) -> None:
    owner = Prepared()

    async def scene(field: Field) -> None:
        check(field, diamond, {1})
        assert [entry for entry in owner.log if entry.startswith("c ")] == ["c register", "c entry"]

    at(control, owner, scene)


def test_two_owners_that_want_different_things_are_refused_at_once(diamond: Topology) -> None:
    with pytest.raises(ControllerError, match=r"switch a: entry store_writers .*: guests and guests want different"):
        Features(diamond, more=(GuestsOwner((1,)), _Contrary((1,))))


class _Contrary(GuestsOwner):
    def wanted(self, switch: str) -> Entities:
        (entity,) = super().wanted(switch).values()
        assert isinstance(entity, P4TableEntry)
        other = P4TableEntry(entity.table_id, match=entity.match, action=P4TableAction("drop"), priority=1)
        return index((other,))
