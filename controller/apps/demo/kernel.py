"""The demo with real packets: namespaces, a process for every switch, host, collector, path server and controller.

This process builds the fabric, starts the daemons with settings files as a user would write them, and then only
watches: the collector's feed for the view, the path server's decisions, and at the end the hosts' own logs.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import yaml

from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedSettings
from collectors.process import CollectorProcessSettings
from collectors.values import HopRecord, Snapshot
from controller.apps.demo.live import LiveView, Status
from controller.apps.demo.moves import (
    describe,
    describe_weights,
    first_arrival_ns,
    first_on_new_path_ns,
    largest_surge,
    phase_name,
)
from controller.apps.demo.outcome import Move, Outcome
from controller.apps.demo.scenario import Scenario
from controller.apps.demo.settings import DemoSettings
from controller.common.errors import PathError
from controller.network.daemon_settings import DaemonSettings
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.records.values import RecordQuery
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.paths.settings import PathServerSettings, RecordSettings
from dataplane.clock import NS_PER_S, MonotonicClock, UtcClock
from dataplane.config import Strict, document_of
from dataplane.errors import FabricError
from dataplane.fabric.hosts import Receiver
from dataplane.fabric.kernel.agents import HostAgents
from dataplane.fabric.kernel.fabric import KernelFabric, KernelSettings
from dataplane.local.deadline import LocalDeadline
from dataplane.local.endings import read_lines, why_ended
from dataplane.topology.file import dumps

_VIEW_INTERVAL_NS = 200_000_000
_READY_S = 60.0
_READY_S_A_SWITCH = 5.0
"""A switch needs some seconds of CPU time to start and load its program, and all share a few cores."""
_POLL_S = 0.05
_START_S = 0.3
"""Time from the start command to the start, in which every host reads it."""
_AFTER_END_S = 5.0
_MAX_RECORDS = 20_000


@dataclass(frozen=True, slots=True)
class _Daemon:
    """A daemon of the run; it is ready when its log says `ready` as many `times`."""

    name: str
    command: tuple[str, ...]
    settings: Strict
    ready: str
    times: int = 1


@dataclass
class KernelRun:
    """One run of the scenario between namespaces; `run` returns what it showed. Needs root."""

    scenario: Scenario
    settings: DemoSettings
    view: LiveView
    out: Path
    seed: int = 0
    _moves: list[Move] = field(default_factory=list)
    _rebalances: list[Rebalance] = field(default_factory=list)
    _no_room: str | None = None
    _snapshots: list[tuple[str, Snapshot]] = field(default_factory=list)
    _latest: Snapshot | None = None
    _origin_ns: int = 0
    _daemons: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.scenario.topology.collector is None:
            raise FabricError(f"topology {self.scenario.topology.name}: has no collector; the demo needs one")
        self._collector_host = self.scenario.topology.collector.host
        self._ready_s = _READY_S + _READY_S_A_SWITCH * len(self.scenario.topology.switches)
        self._clock = MonotonicClock()
        self._epoch_ns = UtcClock().epoch_ns

    def run(self) -> Outcome:
        """Build, run from zero to the scenario's end, and remove everything again."""
        with KernelFabric(self.scenario.topology, KernelSettings(seed=self.seed)) as fabric:
            fabric.wait_ready(self._ready_s)
            return asyncio.run(self._run(fabric))

    async def _run(self, fabric: KernelFabric) -> Outcome:
        await self._start_daemons(fabric)
        with HostAgents(fabric) as agents:
            self._start_agents(agents)
            await self._until(lambda: not agents.waiting(), fabric, lambda: f"hosts {', '.join(agents.waiting())}")
            records = await self._watch_flows(fabric, agents)
            return self._outcome(agents, records)

    async def _watch_flows(self, fabric: KernelFabric, agents: HostAgents) -> list[HopRecord]:
        """Start the hosts, and watch until the last has ended; return the records of moved flows."""
        feed = FeedClientSettings(address=_address(fabric, "collector"))
        routes = RouteClientSettings(address=_address(fabric, "paths"))
        async with FeedClient(feed) as collector, RouteClient(routes) as paths:
            self._origin_ns = self._clock.now_ns() + round(_START_S * NS_PER_S)
            agents.begin(self._origin_ns)
            watching = [
                asyncio.create_task(self._watch(collector, paths)),
                asyncio.create_task(self._listen(paths)),
                asyncio.create_task(self._listen_for_weights(paths)),
            ]
            try:
                await self._until_end(fabric, agents)
            finally:
                for task in watching:
                    task.cancel()
            for task in watching:
                with suppress(asyncio.CancelledError):
                    await task
            return await self._records_of_moves(paths)

    # the processes

    async def _start_daemons(self, fabric: KernelFabric) -> None:
        """Start collector, path server and controller in the collector's namespace, each after the one that it queries.

        One started too early would retry after pauses that grow to seconds.
        """
        for daemon in self._daemon_plans(fabric):
            file = fabric.run_dir / f"{daemon.name}.yaml"
            _write(file, daemon.settings)
            arguments = ["-m", "controller.apps.cli", *daemon.command, "--settings", str(file)]
            self._daemons[daemon.name] = self._start(fabric, self._collector_host, daemon.name, arguments)
            log = fabric.run_dir / f"{daemon.name}.log"
            await self._until(partial(_has_logged, log, daemon.ready, daemon.times), fabric, partial(_last_line, log))

    def _daemon_plans(self, fabric: KernelFabric) -> tuple[_Daemon, ...]:
        """Return the daemons in the order of their start, with settings as a user would write; sockets are files."""
        topology = fabric.run_dir / "topology.yaml"
        topology.write_text(dumps(self.scenario.topology), encoding="utf-8")
        database = self.out.resolve() / "records.sqlite"
        for suffix in ("", "-wal", "-shm"):
            Path(f"{database}{suffix}").unlink(missing_ok=True)
        switches = {node.name: fabric.p4runtime_address(node.name) for node in self.scenario.topology.switches}
        collector = CollectorProcessSettings(
            topology=str(topology),
            feed=FeedSettings(address=_address(fabric, "collector")),
            collector=self.settings.collector(),
        )
        paths = PathServerSettings(
            topology=str(topology),
            feed=_address(fabric, "collector"),
            listen=_address(fabric, "paths"),
            interval_ns=self.settings.decision_interval_ns,
            decide=self.settings.decider(),
            records=RecordSettings(database=str(database)),
        )
        controller = DaemonSettings(
            topology=str(topology),
            switches=switches,
            path_server=_address(fabric, "paths"),
            watches=(self.settings.watch,),
        )
        return (
            _Daemon("collector", ("collector",), collector, ": ready: "),
            _Daemon("paths", ("paths", "serve"), paths, ": ready: "),
            _Daemon("controller", ("controller",), controller, ": reconciled, ", times=len(switches)),
        )

    def _start_agents(self, agents: HostAgents) -> None:
        """Start the agents that send and measure; none sends before all can receive."""
        flows = self.scenario.packet_flows()
        ends = {number: planned.flow for number, planned in self.scenario.by_number().items()}
        for host in self.scenario.topology.hosts:
            send = tuple(f for f in flows if ends[f.flow_id].src_host == host.name)
            ports = tuple(f.dst_port for f in flows if ends[f.flow_id].dst_host == host.name)
            if send or ports:
                end_ns = self.scenario.end_ns + NS_PER_S
                agents.start(host.name, send=send, receive_ports=ports, end_ns=end_ns, seed=self.seed)

    @staticmethod
    def _start(fabric: KernelFabric, node: str, name: str, arguments: list[str]) -> subprocess.Popen[bytes]:
        root = str(Path(__file__).parents[3])
        inherited = os.environ.get("PYTHONPATH", "")
        environment = {**os.environ, "PYTHONPATH": f"{root}:{inherited}" if inherited else root}
        with (fabric.run_dir / f"{name}.log").open("wb") as log:
            return fabric.run_in(node, [sys.executable, *arguments], stdout=log, stderr=log, env=environment)

    # watching

    async def _watch(self, collector: FeedClient, paths: RouteClient) -> None:
        async for snapshot in collector.snapshots(_VIEW_INTERVAL_NS):
            now_ns = self._clock.now_ns() - self._origin_ns
            if (
                self._latest is not None
                and self._latest.taken_ns - self._origin_ns < self.scenario.congest_ns <= now_ns
            ):
                self._keep("before")
            self._latest = snapshot
            if now_ns < 0:
                continue
            self.view.congested = self.scenario.congested if now_ns >= self.scenario.congest_ns else None
            phase = phase_name(self.scenario, now_ns, self._moves, self._rebalances, snapshot)
            if now_ns <= self.scenario.end_ns:  # afterwards nothing is sent
                self._no_room = await self._reason(paths) if phase == "no room" else None
            status = Status(
                time_s=now_ns / NS_PER_S,
                end_s=self.scenario.end_ns / NS_PER_S,
                phase=phase,
                reports=sum(state.received for state in snapshot.reporters.values()),
                lost_reports=sum(state.lost for state in snapshot.reporters.values()),
            )
            self.view.show(status, snapshot)

    async def _reason(self, paths: RouteClient) -> str:
        """Return the path server's reason for leaving the surge where it is."""
        try:
            return (await paths.why(largest_surge(self.scenario))).reason
        except PathError as error:
            return str(error)

    def _keep(self, name: str) -> None:
        """Keep the newest state under a name, the first time."""
        if self._latest is not None and name not in dict(self._snapshots):
            self._snapshots.append((name, self._latest))

    async def _listen(self, paths: RouteClient) -> None:
        async for decision in paths.decisions(recent=0):
            time_ns = decision.time_ns - self._epoch_ns - self._origin_ns
            if time_ns > self.scenario.end_ns:
                # The flows have ended; later decisions of the path server are not part of the run.
                continue
            move = Move(time_ns, decision.flow, decision.old_path, decision.new_path, decision.reason)
            if time_ns >= self.scenario.congest_ns:
                self._keep("during")
            self._moves.append(move)
            self.view.decided(describe(move))

    async def _listen_for_weights(self, paths: RouteClient) -> None:
        async for change in paths.rebalances(recent=0):
            time_ns = change.time_ns - self._epoch_ns - self._origin_ns
            if time_ns <= self.scenario.end_ns:
                self._rebalances.append(replace(change, time_ns=time_ns))
                self.view.decided(describe_weights(self._rebalances[-1]))

    def _check(self, fabric: KernelFabric) -> None:
        """Raise FabricError, with the reason, for a switch or a daemon that ended unexpectedly."""
        fabric.check()
        for name, daemon in self._daemons.items():
            if daemon.poll() is not None:
                log = fabric.run_dir / f"{name}.log"
                raise FabricError(f"{name}: {why_ended(daemon.returncode, read_lines(log))}")

    async def _until(self, condition: Callable[[], bool], fabric: KernelFabric, who: Callable[[], str]) -> None:
        """Wait for a condition; raise FabricError, naming `who` is late, if it takes too long."""
        deadline = LocalDeadline(self._ready_s, "the start of switches, daemons and hosts")
        while not condition():
            self._check(fabric)
            if deadline.has_passed():
                raise FabricError(f"not ready after {self._ready_s:.0f} s: {who()}")
            await asyncio.sleep(_POLL_S)

    async def _until_end(self, fabric: KernelFabric, agents: HostAgents) -> None:
        """Wait for every agent's end; raise FabricError, with its last output, for a failed agent or a dead switch."""
        last_ns = self._origin_ns + self.scenario.end_ns + NS_PER_S
        deadline: LocalDeadline | None = None
        while late := agents.running():
            self._check(fabric)
            now_ns = self._clock.now_ns()
            if now_ns > last_ns and deadline is None:
                deadline = LocalDeadline(_AFTER_END_S, "the end of the hosts")
            if deadline is not None and deadline.has_passed():
                raise FabricError(f"hosts {', '.join(late)} have not ended {_AFTER_END_S:.0f} s after their flows")
            if now_ns - self._origin_ns >= self.scenario.after_ns:
                self._keep("during")
            if now_ns - self._origin_ns >= self.scenario.end_ns:
                self._keep("after")
            await asyncio.sleep(_POLL_S)

    # results

    async def _records_of_moves(self, paths: RouteClient) -> list[HopRecord]:
        records: list[HopRecord] = []
        hosts = self.scenario.topology.host
        for flow in {move.flow for move in self._moves}:
            query = RecordQuery(
                src=str(hosts[flow.src_host].ipv4),
                dst=str(hosts[flow.dst_host].ipv4),
                limit=_MAX_RECORDS,
            )
            records += await paths.records(query)
        return records

    def _outcome(self, agents: HostAgents, records: list[HopRecord]) -> Outcome:
        receivers = agents.receivers()
        reporters = {} if self._latest is None else self._latest.reporters
        seen = (
            first_on_new_path_ns(self.scenario, self._moves, records, self._origin_ns),
            first_arrival_ns(self.scenario, self._moves, agents.arrivals),
        )
        first_ns = min((time_ns for time_ns in seen if time_ns is not None), default=None)
        return Outcome(
            scenario=self.scenario,
            receivers={host.name: receivers.get(host.name, Receiver()) for host in self.scenario.topology.hosts},
            moves=tuple(self._moves),
            snapshots=tuple(self._snapshots),
            reports=sum(state.received for state in reporters.values()),
            lost_reports=sum(state.lost for state in reporters.values()),
            first_on_new_path_ns=first_ns,
            sent=agents.loads(),
            exact=False,
            rebalances=tuple(self._rebalances),
            no_room=self._no_room,
        )


def _address(fabric: KernelFabric, name: str) -> str:
    # Not "<name>.sock": a topology's node may have the name of a daemon.
    return f"unix:{fabric.run_dir}/daemon-{name}.sock"


def _write(file: Path, settings: Strict) -> None:
    file.write_text(yaml.safe_dump(document_of(settings), sort_keys=False), encoding="utf-8")


def _has_logged(log: Path, text: str, count: int) -> bool:
    with suppress(FileNotFoundError):
        return log.read_text(encoding="utf-8", errors="replace").count(text) >= count
    return False


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
