"""A diamond in the kernel with the real daemons, which can be killed one by one, and hosts that send while they are."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack, aclosing
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import yaml
from finsy import P4Client

from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.feed.server import FeedSettings
from collectors.ingest.receiver import ReceiverSettings
from collectors.process import CollectorProcessSettings
from collectors.settings import CollectorSettings, StateSettings
from collectors.values import Snapshot
from controller.network.daemon_settings import DaemonSettings, LinkSettings, RetrySettings
from controller.network.intents import FlowSpec, Route, RouteSet
from controller.network.p4runtime.session import fabric_program, load_schema, read_answer, read_request
from controller.network.paths.records.values import PathServerStatus
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.paths.settings import DecideSettings, ManagedFlow, PathServerSettings, RecordSettings
from controller.network.tables.entities import Entities, content_of
from controller.network.tables.flow_paths import flow_path_entities
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.clock import MonotonicClock
from dataplane.config import Strict, document_of
from dataplane.fabric.agent import RECORD_BYTES, Agent, AgentPlan, plan_flow, replay
from dataplane.fabric.hosts import Flow, FlowMeasurement, Receiver, flow_between
from dataplane.fabric.kernel import KernelFabric
from dataplane.fabric.kernel.fabric import HOST_DEVICE
from dataplane.local.deadline import local_timeout
from dataplane.topology.file import dumps, loads
from tests.controller.network.base_tables import base_entities
from tests.waiting import comes_true, wait_until

T = TypeVar("T")

ROOT = Path(__file__).parents[2]
MS = 1_000_000
S = 1000 * MS
WAIT_S = 60.0
FLOW_END_NS = 120 * S
MANAGED = FlowSpec("ha", "hd")
AROUND = ("a", "c", "d")
SURGE_BPS = 1_800_000
WATCH = Watch(sample_every=4, instructions=(0, 1, 2, 3, 4, 7))
COMMANDS = {"collector": ("collector",), "paths": ("paths", "serve"), "controller": ("controller",)}
TOPOLOGY = loads("""
millrace: 1
name: diamond
collector: {host: hw}
synchronised_clocks: true
defaults:
  link: {rate: 2 Mbit/s, delay: 1 ms, queue_frames: 48}
  access: {rate: 50 Mbit/s, delay: 10 us, queue_frames: 256}
switches: [{name: a}, {name: b}, {name: c}, {name: d}]
hosts:
  - {name: ha, switch: a}
  - {name: hb, switch: b}
  - {name: hd, switch: d}
  - {name: hw, switch: a}
links: [{a: a, b: b}, {a: b, b: d}, {a: a, b: c, delay: 2 ms}, {a: c, b: d, delay: 2 ms}]
""")
"""From a to d by b, and a little longer by c; reports go to a, away from the link b-d that gets congested."""


class StoppableClock:
    """The machine's clock until `stopped`, then the end of every plan."""

    def __init__(self) -> None:
        self.stopped = False
        self._clock = MonotonicClock()

    def now_ns(self) -> int:
        return 1 << 62 if self.stopped else self._clock.now_ns()


class Circle:
    """The running fabric with collector, path server and controller; ends with the `with` block."""

    def __init__(
        self,
        fabric: KernelFabric,
        folder: Path,
        *,
        flows: tuple[ManagedFlow, ...] = (ManagedFlow(src=MANAGED.src_host, dst=MANAGED.dst_host),),
        links: LinkSettings | None = None,
        hold_down_ns: int = 600 * S,
    ) -> None:
        """Look after `flows`, all that telemetry shows where there are none; decisions hold for `hold_down_ns`."""
        self.fabric, self.folder, self._flows = fabric, folder, flows
        self._links, self._hold_down_ns = links or LinkSettings(), hold_down_ns
        self._home = fabric.topology.collector.host if fabric.topology.collector else ""
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}
        topology = folder / "topology.yaml"
        topology.write_text(dumps(self.fabric.topology), encoding="utf-8")
        for name, settings in self._settings(str(topology)).items():
            text = yaml.safe_dump(document_of(settings))
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    # the daemons

    def start(self, name: str) -> None:
        """Start a daemon as a user would, next to the collector's host."""
        command = [sys.executable, "-m", "controller.apps.cli", *COMMANDS[name]]
        with self.log(name).open("ab") as log:
            self._daemons[name] = self.fabric.run_in(
                self._home,
                [*command, "--settings", str(self.folder / f"{name}.yaml")],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )

    def kill(self, name: str) -> None:
        """Kill a daemon like the kernel out of memory: SIGKILL."""
        process = self._daemons.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait(WAIT_S)

    def log(self, name: str) -> Path:
        """Return a daemon's log file."""
        return self.folder / f"{name}.log"

    def log_count(self, text: str) -> int:
        """Return how often a text is in the controller's log."""
        log = self.log("controller")
        return log.read_text(encoding="utf-8").count(text) if log.exists() else 0

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition holds; fail with the ends of the daemons' logs."""

        def holds() -> bool:
            for name, process in self._daemons.items():
                assert process.poll() is None, f"{name} ended: {self.log(name).read_text()[-2000:]}"
            return condition()

        def failure() -> str:
            return f"never: {what}: " + "\n".join(self.log(name).read_text()[-1000:] for name in self._daemons)

        wait_until(holds, failure, limit_s=WAIT_S, poll_s=0.05)

    # their state

    def snapshot(self) -> Snapshot:
        """Return the collector's view of the network."""

        async def ask() -> Snapshot:
            settings = FeedClientSettings(address=self._address("collector"))
            async with (
                FeedClient(settings) as client,
                aclosing(client.snapshots(100 * MS)) as snapshots,
            ):
                return await anext(snapshots)

        return _wait(ask)

    def ways(self, dst_port: int) -> set[tuple[str, ...]]:
        """Return the switches on the ways of flows to a port, in telemetry that is still current.

        The collector forgets a flow that has ended: ask while its traffic runs.
        """
        paths = self.snapshot().paths.items()
        return {state.switches for key, state in paths if key.dst_port == dst_port}

    def routes(self) -> RouteSet:
        """Return the routes that the path server wants now."""

        async def ask(client: RouteClient) -> RouteSet:
            async with aclosing(client.routes()) as routes:
                return await anext(routes)

        return self._ask_paths(ask)

    def path_status(self) -> PathServerStatus:
        """Return the path server's counters."""

        async def ask(client: RouteClient) -> PathServerStatus:
            return await client.status()

        return self._ask_paths(ask)

    def tables(self) -> dict[str, Entities]:
        """Read every switch by P4Runtime, alongside the controller and without its rights."""
        return _wait(self._read_tables)

    def wanted(self) -> dict[str, Entities]:
        """Return the expected tables of every switch by topology, watch rule and the path server's routes."""
        base, paths = (
            base_entities(self.fabric.topology, (WATCH,)),
            flow_path_entities(self.fabric.topology, self.routes()),
        )
        return {name: {**entities, **paths.get(name, {})} for name, entities in base.items()}

    def is_as_wanted(self) -> bool:
        """Return whether every switch holds exactly what it should, nothing twice."""
        return contents(self.tables()) == contents(self.wanted())

    def congest(self) -> None:
        """Make the managed flow take the way around by congesting its own, unless it already does."""
        if not self.is_around():
            with self.traffic(managed(), surge()):
                self.until(self.is_around, "a way around")
        self.until(self.is_as_wanted, "the tables for it")

    def is_around(self) -> bool:
        """Return whether the path server wants the managed flow on its way around."""
        return Route(MANAGED, AROUND) in self.routes().routes

    def traffic(self, *flows: Flow) -> Traffic:
        """Return a sender of these flows while its `with` block lasts."""
        return Traffic(self.fabric, self.folder, flows)

    # inside

    def _settings(self, topology: str) -> dict[str, Strict]:
        decide = DecideSettings(min_gain=0.25, min_gain_ns=40 * MS, hold_down_ns=self._hold_down_ns, settle_ns=500 * MS)
        return {
            "collector": CollectorProcessSettings(
                topology=topology,
                receiver=ReceiverSettings(interface=HOST_DEVICE),
                feed=FeedSettings(address=self._address("collector")),
                collector=CollectorSettings(state=StateSettings(sample_every=WATCH.sample_every)),
            ),
            "paths": PathServerSettings(
                topology=topology,
                feed=self._address("collector"),
                listen=self._address("paths"),
                flows=self._flows,
                decide=decide,
                records=RecordSettings(database=str(self.folder / "records.sqlite")),
            ),
            "controller": DaemonSettings(
                topology=topology,
                switches={
                    node.name: self.fabric.p4runtime_address(node.name) for node in self.fabric.topology.switches
                },
                path_server=self._address("paths"),
                collector=self._address("collector"),
                links=self._links,
                watches=(WATCH,),
                retry=RetrySettings(longest_wait_ns=500 * MS),
            ),
        }

    def _address(self, name: str) -> str:
        return f"unix:{self.fabric.run_dir}/daemon-{name}.sock"

    def _ask_paths(self, ask: Callable[[RouteClient], Awaitable[T]]) -> T:
        async def asking() -> T:
            async with RouteClient(RouteClientSettings(address=self._address("paths"))) as client:
                return await ask(client)

        return _wait(asking)

    async def _read_tables(self) -> dict[str, Entities]:
        tables: dict[str, Entities] = {}
        for node in self.fabric.topology.switches:
            schema = load_schema(*fabric_program())
            client = P4Client(self.fabric.p4runtime_address(node.name), None)
            await client.open(schema=schema)
            try:
                answers = [answer async for answer in client.request_iter(read_request(schema, node.node_id))]
            finally:
                await client.close()
            tables[node.name] = read_answer(schema, node.name, answers)
        return tables


def contents(tables: dict[str, Entities]) -> dict[str, dict[object, object]]:
    """Return tables as values that compare."""
    return {name: {key: content_of(entity) for key, entity in held.items()} for name, held in tables.items()}


def managed(number: int = 1) -> Flow:
    """Return the managed flow of the path server: 50 packets a second."""
    return flow(number, MANAGED.src_host, MANAGED.dst_host, 400_000)


def surge(number: int = 2) -> Flow:
    """Return a flow that congests the link from b to d together with the managed flow."""
    return flow(number, "hb", "hd", SURGE_BPS)


def flow(number: int, src: str, dst: str, rate_bps: int, ip_version: int = 4) -> Flow:
    """Return a flow of frames of 1000 bytes."""
    return flow_between(TOPOLOGY, number, src, dst, rate_bps, stop_ns=FLOW_END_NS, ip_version=ip_version)


class Traffic:
    """Flows between namespaces, sent and logged by the hosts' own agents, each on a thread of ours."""

    def __init__(self, fabric: KernelFabric, folder: Path, flows: Sequence[Flow]) -> None:
        self._fabric, self._folder, self._flows = fabric, folder, {flow.flow_id: flow for flow in flows}
        self._origin_ns = MonotonicClock().now_ns()
        self._clocks = {"send": StoppableClock(), "receive": StoppableClock()}
        self._threads: dict[str, list[threading.Thread]] = {"send": [], "receive": []}
        self._logs: dict[int, io.BytesIO] = {}
        self._agents: dict[int, Agent] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Traffic:
        hosts = self._fabric.topology.host_by_address
        for number, planned in self._flows.items():
            self._logs[number] = io.BytesIO()
            self._run("receive", hosts[planned.dst].name, planned, self._logs[number])
        for number, planned in self._flows.items():
            self._agents[number] = self._run("send", hosts[planned.src].name, planned, io.BytesIO())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop("send")
        # The last packets are in flight for less than a second, full queues included, but a busy machine's agents may
        # read them late; some may be lost.
        comes_true(lambda: all(self.received(n) >= self.sent(n) for n in self._flows), limit_s=10.0)
        self._stop("receive")
        self._stack.close()

    def sent(self, number: int) -> int:
        """Return how many packets of a flow were sent."""
        return self._agents[number].load()[number].sent

    def received(self, number: int) -> int:
        """Return how many packets of a flow have arrived."""
        # Not by its buffer: while that is exported, the agent's thread cannot write.
        return self._logs[number].tell() // RECORD_BYTES

    def now_ns(self) -> int:
        """Return the time since the flows began."""
        return MonotonicClock().now_ns() - self._origin_ns

    def pass_packets(self, number: int, packets: int) -> None:
        """Wait until this many more packets of a flow have arrived."""
        end = self.received(number) + packets
        wait_until(
            lambda: self.received(number) >= end,
            lambda: f"flow {number} is stuck: {self.received(number)} of {end} packets",
            limit_s=WAIT_S,
        )

    def longest_gap_ns(self, number: int, start_ns: int, end_ns: int) -> int:
        """Return the longest time without a packet of a flow, after the end of the `with` block."""
        return self._replay(number).longest_gap_ns(number, start_ns, end_ns)

    def measure(self, number: int, start_ns: int = 0, end_ns: int = FLOW_END_NS) -> FlowMeasurement:
        """Return the measurement of a flow, after the end of the `with` block."""
        return self._replay(number).measure(number, start_ns, end_ns)

    def _replay(self, number: int) -> Receiver:
        log = self._folder / "arrivals"
        log.write_bytes(self._logs[number].getvalue())
        return replay(log)

    def assert_whole(self, number: int) -> None:
        """Check that every packet of a flow arrived, once and in order."""
        whole = self.measure(number)
        counts = (whole.packets, whole.lost, whole.late, whole.duplicates)
        assert counts == (self.sent(number), 0, 0, 0), f"flow {number}: {counts} of {self.sent(number)} sent"

    def _run(self, role: str, host: str, planned: Flow, log: io.BytesIO) -> Agent:
        plan = AgentPlan(
            end_ns=FLOW_END_NS,
            seed=1,
            log="",
            load="",
            send=(plan_flow(planned),) if role == "send" else (),
            receive_ports=(planned.dst_port,) if role == "receive" else (),
            address="::" if planned.dst.version == 6 else "0.0.0.0",
        )
        agent = self._fabric.call_in(host, lambda: Agent(plan, self._clocks[role], log))
        self._stack.callback(agent.close)
        thread = threading.Thread(target=agent.run, args=(self._origin_ns,), name=f"{role} {planned.flow_id}")
        self._threads[role].append(thread)
        thread.start()
        return agent

    def _stop(self, role: str) -> None:
        self._clocks[role].stopped = True
        for thread in self._threads[role]:
            thread.join(WAIT_S)


def _wait(ask: Callable[[], Awaitable[T]]) -> T:
    """Return the answer to a request within bounded time."""

    async def asking() -> T:
        async with local_timeout(WAIT_S, "a test"):
            return await ask()

    return asyncio.run(asking())
