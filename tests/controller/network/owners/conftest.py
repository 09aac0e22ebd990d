"""Either driver over the same switches."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from finsy import P4Schema

from controller.network.features import Features
from controller.network.intents import RouteSet
from controller.network.owners.base import Owner
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.values import Topology
from tests.controller.network.owners.fields import Control, DaemonField, Field, VirtualField
from tests.controller.network.test_daemon import Lab, running


@pytest.fixture(scope="module")
def schema() -> P4Schema:
    """Return a program that has tables without an owner here."""
    return load_schema(*fabric_program(FABRIC_AGGREGATION))


@pytest.fixture(params=["daemon", "virtual"])
def control(request: pytest.FixtureRequest, diamond: Topology, schema: P4Schema) -> Control:
    """Return a context manager that controls the diamond's switches with one of the drivers."""
    lab, fabric = Lab(diamond, schema), VirtualFabric(diamond)

    @asynccontextmanager
    async def by_daemon(owner: Owner | None) -> AsyncIterator[Field]:
        async with running(lab, features=Features(diamond, more=() if owner is None else (owner,))) as run:
            run.source.put_nowait(RouteSet(1, ()))
            field = DaemonField(lab, run)
            await field.settle()
            yield field

    @asynccontextmanager
    async def by_virtual(owner: Owner | None) -> AsyncIterator[Field]:
        field = VirtualField(fabric, schema, owner)
        await field.settle()
        yield field
        field.close()

    return by_daemon if request.param == "daemon" else by_virtual
