"""A fabric of real switches under either driver, for tests of owners."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from finsy import P4Schema

from controller.network.owners.base import Owner
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.reconcile import diff
from controller.network.tables.entities import Entity, EntityKey
from controller.network.tables.store import WRITERS
from controller.network.virtual import VirtualController, WriteDelays
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.values import Topology
from tests.controller.network.base_tables import base_entities
from tests.controller.network.test_daemon import Lab, Running, play


class Field(Protocol):
    """A fabric under one of the drivers."""

    async def settle(self) -> None:
        """Run until all switches hold the desired entries."""

    def changed(self) -> None:
        """Announce that an owner's desired entries changed."""

    def restart(self, switch: str) -> None:
        """Restart a switch without its entries."""

    def tables(self, switch: str) -> dict[EntityKey, Entity]:
        """Return the actual entries of a switch."""
        ...


class DaemonField:
    """Over asynchronous sessions."""

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

    def __init__(self, fabric: VirtualFabric, schema: P4Schema, owner: Owner | None) -> None:
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


Control = Callable[[Owner | None], AbstractAsyncContextManager[Field]]
"""Context manager that controls the same switches with or without the owner."""


def guests(field: Field, switch: str) -> set[int]:
    """Return the owners of a switch's entries."""
    keys = (key for key in field.tables(switch) if key.table == WRITERS)
    return {value for key in keys for name, value in key.match if name == "src_addr" and isinstance(value, int)}


def check(field: Field, topology: Topology, expected: set[int], switches: str = "abcd") -> None:
    """Fail unless switches hold all entries of this owner and of all others."""
    for switch in switches:
        assert guests(field, switch) == expected
        others = {key: entity for key, entity in field.tables(switch).items() if key.table != WRITERS}
        assert diff(base_entities(topology)[switch], others) == []


def at(control: Control, owner: Owner | None, scene: Callable[[Field], Awaitable[None]]) -> None:
    """Run a scene under a controller that stops afterwards."""

    async def whole() -> None:
        async with control(owner) as field:
            await scene(field)

    play(whole())
