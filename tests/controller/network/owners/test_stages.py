"""An owner with staged changes on all switches, under both drivers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from controller.network.owners.base import StagedOwner
from controller.network.tables.entities import Entities, EntityKey, index
from controller.network.tables.store import WRITERS, Writer, writer_entity
from dataplane.topology.values import Topology
from tests.controller.network.owners.fields import Control, Field, at, check


class TurnsOwner(StagedOwner):
    """Owns whose turn it is: no switch gets the new turn before the old one is gone everywhere and a pause is over."""

    name = "turns"

    def __init__(self, first: int) -> None:
        self.number = 1
        self.log: list[str] = []
        self._turn: int | None = first
        self._next = first
        self._is_paused = False
        self._missing: set[str] = set()

    def turn_to(self, address: int) -> None:
        """Begin a change: first no switch has a turn."""
        self._next = address
        self._enter(None)

    @property
    def stage(self) -> str:
        return "pause" if self._is_paused else f"turn of {self._turn}"

    @property
    def is_settled(self) -> bool:
        return self._turn == self._next and not self._missing

    @property
    def pause_ns(self) -> int | None:
        return 1000 if self._is_paused else None

    def owns(self, key: EntityKey) -> bool:
        return key.table == WRITERS

    def wanted(self, switch: str) -> Entities:
        return {} if self._turn is None else index([writer_entity(1, Writer(self._turn))])

    def acknowledged(self, switch: str, updates: Iterable[object]) -> None:
        self.log.extend(f"{switch} {update}" for update in updates if WRITERS in str(update))

    def confirmed(self, switch: str, held: Entities) -> None:
        here = {key: entity for key, entity in held.items() if self.owns(key)}
        if here.keys() != self.wanted(switch).keys() or self._is_paused:
            return
        self._missing.discard(switch)
        if not self._missing and self._turn is None:
            self._is_paused = True
            self.number += 1

    def paused(self, number: int) -> None:
        if self._is_paused and number == self.number:
            self.log.append("paused")
            self._enter(self._next)

    def _enter(self, turn: int | None) -> None:
        self._turn, self._is_paused = turn, False
        self.number += 1
        self._missing = set("abcd")


@pytest.mark.parametrize("restarts", [False, True])
def test_all_switches_reach_a_stage_before_the_next_one_begins(
    control: Control, diamond: Topology, restarts: bool
) -> None:
    owner = TurnsOwner(1)

    async def scene(field: Field) -> None:
        check(field, diamond, {1})
        owner.log.clear()
        owner.turn_to(2)
        field.changed()
        if restarts:
            field.restart("c")
        await field.settle()
        assert owner.is_settled
        check(field, diamond, {2})
        paused = owner.log.index("paused")
        assert {line[:8] for line in owner.log[:paused]} <= {f"{switch} delete" for switch in "abcd"}
        assert {line[:8] for line in owner.log[paused + 1 :]} == {f"{switch} insert" for switch in "abcd"}

    at(control, owner, scene)
