"""Jobs of the daemon in switches over gRPC, across restarts and a takeover by another daemon."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from controller.network.aggregation.settings import AggregationSettings
from controller.network.daemon import Daemon
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.intents import Worker
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema
from controller.network.process import serve
from controller.network.reconcile import diff
from controller.network.tables.entities import Entity, EntityKey
from dataplane.clock import MonotonicClock
from dataplane.topology.file import loads
from dataplane.topology.values import Topology
from tests.controller.network.switch_servers import Bmv2, BuiltIn, Machine, address
from tests.waiting import finish_within, until

MS = 1_000_000
BOUND_S = 60.0
PAIR = """
millrace: 1
name: pair
switches: [{name: s1}, {name: s2}]
defaults: {access: {rate: 1 Gbit/s, delay: 1 us}}
hosts: [{name: h1, switch: s1}, {name: h2, switch: s1}, {name: h3, switch: s2}, {name: h4, switch: s2}]
links: [{a: s1, b: s2, rate: 1 Gbit/s, delay: 1 us}]
collector: {host: h4}
"""


@pytest.fixture(params=[BuiltIn, pytest.param(Bmv2, marks=pytest.mark.bmv2)])
def machines(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Return two running switches."""
    if request.param is Bmv2 and shutil.which("simple_switch_grpc") is None:
        pytest.skip("simple_switch_grpc is not on the PATH")
    made = {f"s{number}": request.param(number, address(tmp_path, f"s{number}")) for number in (1, 2)}
    for machine in made.values():
        machine.start()
    yield made
    for machine in made.values():
        machine.stop()


@asynccontextmanager
async def controlling(topology: Topology, folder: Path) -> AsyncIterator[Daemon]:
    """Run a daemon with aggregating switches, and wait until all are reconciled."""
    settings = DaemonSettings(
        topology="unused",
        switches={node.name: address(folder, node.name) for node in topology.switches},
        retry=RetrySettings(first_wait_ns=10 * MS, longest_wait_ns=100 * MS, drain_ns=0),
        aggregation=AggregationSettings(deadline_ns=30_000 * MS, dead_after_ns=30_000 * MS),
    )
    stop, started = asyncio.Event(), asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(settings, topology, MonotonicClock(), stop, on_daemon=started.set_result))
    daemon: Daemon = await started
    try:
        await until(lambda: daemon.status().settled)
        yield daemon
    finally:
        stop.set()
        await task


async def tables(topology: Topology, folder: Path, switch: str) -> dict[EntityKey, Entity]:
    """Return a switch's entries while no daemon runs."""
    target = Target(switch, address(folder, switch), topology.switch[switch].node_id)
    session = GrpcSession(target, load_schema(*fabric_program(FABRIC_AGGREGATION)))
    await session.connect()
    try:
        return await session.read()
    finally:
        await session.close()


def test_jobs_come_and_go_with_switches_and_daemons(machines: dict[str, Machine], tmp_path: Path) -> None:
    topology = loads(PAIR)

    async def scene() -> None:
        async with controlling(topology, tmp_path) as daemon:
            assert daemon.jobs is not None
            workers = [Worker(f"h{number}", 20_000) for number in (1, 2, 3, 4)]
            job = await daemon.jobs.create(workers, window=8, capacity=4)
            assert len(job.placed.blocks) == 2
            machines["s2"].stop()
            await until(lambda: "s2" not in daemon.status().live)
            machines["s2"].start()
            await until(lambda: daemon.status().settled)
            job = await daemon.jobs.leave(job.number, "h3")
            wanted = {name: daemon.coordinator.wanted(name) for name in machines}
        for name in machines:
            held = await tables(topology, tmp_path, name)
            assert sum(key.table == "aggregation_jobs" for key in held) == 1
            assert diff(wanted[name], held) == []
        async with controlling(topology, tmp_path) as daemon:
            assert daemon.jobs is not None
            assert not daemon.jobs.running
        for name in machines:
            held = await tables(topology, tmp_path, name)
            assert not {key.table for key in held} & {"aggregation_jobs", "aggregation_peers", "aggregation_replicas"}

    asyncio.run(finish_within(scene(), BOUND_S))
