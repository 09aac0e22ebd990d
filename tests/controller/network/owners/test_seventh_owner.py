"""An owner of tables unknown to the core, under both drivers and over real switches."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from finsy import P4RegisterEntry, P4TableAction, P4TableEntry, P4TableMatch

from controller.common.errors import ControllerError
from controller.network.features import Features
from controller.network.owners.base import ObservedState, TableOwner, own_batches
from controller.network.tables.entities import Batch, Entities, Entity, EntityKey, Kind, Update, Verb, index, key_of
from controller.network.tables.store import WRITERS, Writer, writer_entity
from dataplane.topology.values import Topology
from tests.controller.network.owners.fields import Control, Field, at, check


class GuestsOwner(TableOwner):
    """Owns the writers of a store that is not in use here: the same hosts at every switch."""

    name = "guests"
    tables = frozenset({WRITERS})
    fill_order = (WRITERS,)

    def __init__(self, addresses: Iterable[int]) -> None:
        super().__init__()
        self.addresses = set(addresses)
        self.more: tuple[Entity, ...] = ()

    def wanted(self, switch: str) -> Entities:
        return index((*(writer_entity(1, Writer(address)) for address in sorted(self.addresses)), *self.more))


def test_owner_entries_change_with_it_and_survive_a_restart(control: Control, diamond: Topology) -> None:
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


def test_refused_entry_is_left_out_and_blocks_nothing_else(
    control: Control, diamond: Topology, caplog: pytest.LogCaptureFixture
) -> None:
    """The entry lacks the priority that P4Runtime requires for ternary matches: switches refuse it."""
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
    """Clears a register's cell at each switch before writing entries, as owners with register counters must."""

    def __init__(self) -> None:
        super().__init__((1,))
        self.clear: set[str] = set()
        self.log: list[str] = []

    def owns(self, key: EntityKey) -> bool:
        return super().owns(key) or key.table == "aggregation_cells"

    def wanted(self, switch: str) -> Entities:
        return super().wanted(switch) if switch in self.clear else {}

    def next_batches(self, switch: str, known: ObservedState) -> list[Batch]:
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


def test_conflicting_owners_are_refused_at_once(diamond: Topology) -> None:
    with pytest.raises(ControllerError, match=r"switch a: entry store_writers .*: guests and guests want different"):
        Features(diamond, more=(GuestsOwner((1,)), _Contrary((1,))))


class _Contrary(GuestsOwner):
    def wanted(self, switch: str) -> Entities:
        (entity,) = super().wanted(switch).values()
        assert isinstance(entity, P4TableEntry)
        other = P4TableEntry(entity.table_id, match=entity.match, action=P4TableAction("drop"), priority=1)
        return index((other,))
