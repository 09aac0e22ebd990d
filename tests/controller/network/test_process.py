"""The daemon over gRPC against both kinds of switch: restarted ones are reconciled, without redundant writes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from finsy import P4TableAction, P4TableEntry

from collectors.errors import CollectorError
from collectors.shards.assignment import assigned
from collectors.shards.membership import Announcement, Membership
from collectors.shards.settings import CollectorLeases
from controller.common.errors import ControllerError
from controller.network.daemon import Daemon
from controller.network.daemon_settings import DaemonSettings, RetrySettings
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.p4runtime.grpc_session import GrpcSession, Target
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.process import serve
from controller.network.reconcile import diff
from controller.network.tables.flow_paths import flow_path_entities
from dataplane.clock import MonotonicClock
from dataplane.leases.sqlite import SqliteLeases
from dataplane.topology.values import Topology
from tests.controller.common.standby.test_lease import Time
from tests.controller.network.base_tables import base_entities
from tests.controller.network.switch_servers import Bmv2, BuiltIn, Machine, address
from tests.waiting import finish_within, until

MS = 1_000_000
BOUND_S = 60.0
ROUTES = RouteSet(1, (Route(FlowSpec("ha", "hd"), ("a", "b", "d")),))
LEASE_NS = 60_000 * MS
ENTRIES = 3
"""Entries that depend on a switch's collector: destination, session, and which packets are reports."""
RETRY = RetrySettings(first_wait_ns=10 * MS, longest_wait_ns=100 * MS, drain_ns=0)


MachineMaker = Callable[[int, str], Machine]


@pytest.fixture(params=[BuiltIn, pytest.param(Bmv2, marks=pytest.mark.bmv2)])
def machines(request: pytest.FixtureRequest, diamond: Topology, tmp_path: Path) -> Iterator[dict[str, Machine]]:
    """Return the diamond's running switches."""
    if request.param is Bmv2 and shutil.which("simple_switch_grpc") is None:
        pytest.skip("simple_switch_grpc is not on the PATH")
    made = {node.name: request.param(node.node_id, address(tmp_path, node.name)) for node in diamond.switches}
    for machine in made.values():
        machine.start()
    yield made
    for machine in made.values():
        machine.stop()


class Control:
    """A running daemon without a path server; its routes come from the test."""

    def __init__(self, topology: Topology, folder: Path, leases: CollectorLeases | None = None) -> None:
        self._topology = topology
        self._settings = DaemonSettings(
            topology="unused",
            switches={node.name: address(folder, node.name) for node in topology.switches},
            retry=RETRY,
            collectors=leases,
        )
        self._stop = asyncio.Event()
        self.daemon: Daemon | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Control:
        running = serve(self._settings, self._topology, MonotonicClock(), self._stop, on_daemon=self._take)
        self._task = asyncio.create_task(running)
        return self

    async def __aexit__(self, *error: object) -> None:
        self._stop.set()
        assert self._task is not None
        await self._task

    def _take(self, daemon: Daemon) -> None:
        self.daemon = daemon
        daemon._take(ROUTES)

        daemon._routes = _Nothing()

    async def until(self, condition: Callable[[Daemon], bool]) -> Daemon:
        """Return the daemon once a condition holds."""
        await until(
            lambda: self.daemon is not None and condition(self.daemon),
            lambda: self.daemon and self.daemon.status(),
            limit_s=BOUND_S,
        )
        assert self.daemon is not None
        return self.daemon


class _Nothing:
    """No further routes."""

    def __aiter__(self) -> _Nothing:
        return self

    async def __anext__(self) -> RouteSet:
        raise StopAsyncIteration


async def differences(topology: Topology, folder: Path, name: str) -> list[object]:
    """Return a switch's surplus and missing entries, read after the daemon has ended."""
    session = GrpcSession(
        Target(name, address(folder, name), topology.switch[name].node_id), load_schema(*fabric_program())
    )
    await session.connect()
    try:
        desired = {**base_entities(topology)[name], **flow_path_entities(topology, ROUTES)[name]}
        return list(diff(desired, await session.read()))
    finally:
        await session.close()


def test_switches_and_daemon_come_and_go(machines: dict[str, Machine], diamond: Topology, tmp_path: Path) -> None:
    async def scene() -> None:
        async with Control(diamond, tmp_path) as control:
            daemon = await control.until(lambda daemon: daemon.status().settled)
            machines["b"].stop()
            await control.until(lambda daemon: "b" not in daemon.status().live)
            before = daemon.status().writes
            machines["b"].start()
            await control.until(lambda daemon: daemon.status().settled)
            assert daemon.status().writes > before
        async with Control(diamond, tmp_path) as control:
            daemon = await control.until(lambda daemon: daemon.status().settled)
            assert daemon.status().writes == 0
        for name in machines:
            assert await differences(diamond, tmp_path, name) == []
        await share_reports()

    async def share_reports() -> None:
        """Let two collectors share the switches, one of which leaves, under a controller that is restarted, too."""
        leases, clock = CollectorLeases(sqlite=str(tmp_path / "leases")), Time()
        hosts = {"c1": "hc", "c2": "ha"}
        with SqliteLeases(str(tmp_path / "leases"), 10.0, CollectorError) as storage:
            members = {
                name: Membership(
                    storage, Announcement(name, host, 32766, "unix:none"), lease_ns=60_000 * MS, now_ns=clock
                )
                for name, host in hosts.items()
            }

            def report_to(daemon: Daemon, *live: str) -> bool:
                """Renew the leases; return whether all switches are settled and report as these collectors want."""
                clock.pass_ms(20_000)
                for member in members.values():
                    member.step()
                owners = assigned(diamond.switch, live)
                wanted = {switch: int(diamond.host[hosts[owner]].ipv4) for switch, owner in owners.items()}
                return daemon.status().settled and targets(daemon) == wanted

            async with Control(diamond, tmp_path, leases) as control:
                daemon = await control.until(lambda daemon: report_to(daemon, "c1", "c2"))
                before = daemon.status().writes
                gone = sum(owner == "c2" for owner in assigned(diamond.switch, ["c1", "c2"]).values())
                members.pop("c2").release()
                await control.until(lambda daemon: report_to(daemon, "c1"))
                assert 0 < daemon.status().writes - before <= ENTRIES * gone
            async with Control(diamond, tmp_path, leases) as control:
                daemon = await control.until(lambda daemon: report_to(daemon, "c1"))
                assert daemon.status().writes == 0

    def targets(daemon: Daemon) -> dict[str, int]:
        """Return where each switch sends its reports."""
        return {
            switch: int(entity.action.args["dst_addr"])
            for switch in diamond.switch
            for key, entity in daemon.coordinator.held(switch).items()
            if key.table == "report_target"
            and isinstance(entity, P4TableEntry)
            and isinstance(entity.action, P4TableAction)
        }

    asyncio.run(finish_within(scene(), BOUND_S))


def test_unfit_program_is_refused_before_any_switch_is_touched(diamond: Topology, tmp_path: Path) -> None:
    p4info, program = fabric_program()
    other = tmp_path / "other.p4info.txtpb"
    other.write_text(p4info.read_text().replace("egress_ports", "outgoing_ports"))
    settings = DaemonSettings(
        topology="unused",
        switches={node.name: address(tmp_path, node.name) for node in diamond.switches},
        p4info=str(other),
        program=str(program),
    )

    async def scene() -> None:
        with pytest.raises(ControllerError, match="no P4Table named 'egress_ports'"):
            await serve(settings, diamond, MonotonicClock(), asyncio.Event())

    asyncio.run(scene())
