"""A sink takes what a controller writes as a switch does, and gives it back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from finsy import P4Schema

from controller.common.errors import SessionError
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.reconcile import diff
from dataplane.topology.families import leaf_spine
from dataplane.topology.values import Topology
from tests.benchmarks.chaining.sinks import Arrival, serving
from tests.controller.network.base_tables import base_entities
from tests.controller.network.fabric_tables import equal

TOPOLOGY = leaf_spine(1, 2, 1)
LEAF = TOPOLOGY.switches[0]


@pytest.fixture
def schema() -> P4Schema:
    """Return the fabric's program."""
    return load_schema(*fabric_program())


def test_sinks_return_what_was_written(tmp_path: Path, schema: P4Schema) -> None:
    wanted = base_entities(TOPOLOGY)[LEAF.name]
    arrivals: list[Arrival] = []

    async def scenario() -> None:
        async with serving(TOPOLOGY, tmp_path, arrivals.append):
            session = GrpcSession(_target(TOPOLOGY, tmp_path), schema)
            await session.connect()
            assert await session.install_pipeline()
            assert await session.read() == {}
            batches = diff(wanted, {})
            for batch in batches:
                await session.write(batch)
            assert equal(await session.read(), wanted)
            with pytest.raises(SessionError, match="exists already"):
                await session.write(batches[0])
            await session.close()

    asyncio.run(scenario())
    assert sum(arrival.updates for arrival in arrivals) == len(wanted)
    assert [arrival.switch for arrival in arrivals if not arrival.updates] == [LEAF.name]
    assert any("ipv4_routes" in arrival.tables for arrival in arrivals)


def test_sinks_refuse_writes_of_a_backup(tmp_path: Path, schema: P4Schema) -> None:
    async def scenario() -> None:
        async with serving(TOPOLOGY, tmp_path, lambda arrival: None):
            first = GrpcSession(_target(TOPOLOGY, tmp_path), schema, election_id=5)
            await first.connect()
            second = GrpcSession(_target(TOPOLOGY, tmp_path), schema, election_id=6)
            await second.connect()
            with pytest.raises(SessionError, match="another controller"):
                await first.install_pipeline()
            assert "another controller" in str(await first.wait_lost())
            assert await second.install_pipeline()
            for session in (first, second):
                await session.close()

    asyncio.run(scenario())


def _target(topology: Topology, folder: Path) -> Target:
    return Target(LEAF.name, f"unix:{folder}/{LEAF.name}.sock", topology.switch[LEAF.name].node_id)
