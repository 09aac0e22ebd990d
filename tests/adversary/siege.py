"""An attacker in a namespace next to real daemons, switches, workers and readers of content.

The attacker sends from its own device, with arbitrary addresses, and straight to the collector's socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from ipaddress import ip_address
from pathlib import Path

import yaml

from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.values import FlowKey, Snapshot
from controller.apps.cli.network.feed import snapshot_of
from controller.network.content.settings import StoreSettings
from controller.network.p4runtime.grpc_session import GrpcSession
from controller.network.p4runtime.grpc_session import Target as Switch
from controller.network.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema
from controller.network.paths.records.values import PathServerStatus
from controller.network.paths.service.client import RouteClient, RouteClientSettings
from controller.network.paths.settings import PathServerSettings, RecordSettings
from controller.network.tables.entities import EntityKey
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.clock import MonotonicClock
from dataplane.config import document_of
from dataplane.fabric.kernel import KernelFabric
from dataplane.fabric.kernel.fabric import HOST_DEVICE
from dataplane.fabric.kernel.manifest import Manifest
from dataplane.store.client import StoreClient
from dataplane.store.dialogues import Content
from dataplane.store.producer import Producer
from dataplane.topology.file import loads
from tests.adversary.attacks import Attacker, Kind, Target, frame_of
from tests.adversary.tables import differences, steady
from tests.integration.job_fabric import ROOT, WAIT_S, JobFabric, WorkerProcess, until
from tests.waiting import comes_true, finish_within

BURST = 20
PACE_S = 0.005
"""Between bursts: an attacker that fills its own cable delays other traffic on it, which is not under test."""
NAME = "/weights"
WORKERS = ("h1", "h2", "h3")
TOTAL = 2 + 4 + 8
SLACK_BYTES = 32 << 20
"""Memory growth allowed to a daemon, for caches that fill: far less than an entry per datagram."""
TOPOLOGY = loads("""
millrace: 1
name: besieged
collector: {host: c1}
synchronised_clocks: true
defaults: {link: {rate: 1 Gbit/s}, access: {rate: 1 Gbit/s}}
switches: [{name: s1}, {name: s2}]
hosts:
  - {name: evil, switch: s1}
  - {name: h1, switch: s1}
  - {name: h2, switch: s1}
  - {name: h3, switch: s2}
  - {name: producer, switch: s2}
  - {name: c1, switch: s2}
links: [{a: s1, b: s2}]
""")
_READS = 20
_STREAM_PORT = 7_000
_ON_THE_WAY_S = 2.0


@dataclass
class Damage:
    """Effects of an attack, one line each, and the number of genuine items lost."""

    effects: list[str] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)


class Stream:
    """Numbered datagrams from one host to another."""

    def __init__(self, fabric: KernelFabric, src: str, dst: str) -> None:
        self.name, self.sent, self.received = f"datagrams from {src} to {dst}", 0, 0
        self._out, self._in = (fabric.call_in(host, _datagrams) for host in (src, dst))
        ends = [str(TOPOLOGY.host[host].ipv4) for host in (src, dst)]
        self._out.bind((ends[0], _STREAM_PORT))
        self._in.bind((ends[1], _STREAM_PORT + 1))
        self._in.setblocking(False)
        self._to = ends[1], _STREAM_PORT + 1
        self.flow = FlowKey(ip_address(ends[0]), ip_address(ends[1]), 17, _STREAM_PORT, _STREAM_PORT + 1)

    def send(self) -> None:
        """Send the next datagram, and count those that have arrived."""
        self._out.sendto(b"%d" % self.sent, self._to)
        self.sent += 1
        self.receive()

    def receive(self) -> None:
        """Count those that have arrived."""
        while True:
            try:
                self._in.recv(64)
            except BlockingIOError:
                return
            self.received += 1

    def missing(self) -> int:
        """Return how many are missing after a grace time for those on the way."""

        def have_come() -> bool:
            self.receive()
            return self.received >= self.sent

        comes_true(have_come, limit_s=_ON_THE_WAY_S)
        return self.sent - self.received

    def close(self) -> None:
        """Close both ends."""
        self._out.close()
        self._in.close()


def _datagrams() -> socket.socket:
    return socket.socket(socket.AF_INET, socket.SOCK_DGRAM)


@dataclass(frozen=True, slots=True)
class _State:
    """State at the start of a siege."""

    tables: dict[str, dict[EntityKey, object]]
    known: set[object]
    memory: dict[str, int]
    routes: PathServerStatus
    reports_lost: int


@dataclass
class Siege:
    """The running fabric with all its daemons, and what the attacker has sent."""

    jobs: JobFabric
    paths: str
    workers: list[WorkerProcess]
    producer: Producer
    client: StoreClient
    streams: Sequence[Stream]
    runner: asyncio.Runner
    """One event loop for all of gRPC's life: its poller is the process's."""
    forged: Counter[Kind] = field(default_factory=Counter)
    _version: int = 0

    def play(self, forged: int) -> Damage:
        """Keep readers, a writer, workers and senders running while this many forged datagrams arrive."""
        damage, before, sums = Damage(), self._state(), len(self.workers[0].sums)
        written = self.producer.counters["written"]
        with ThreadPoolExecutor(1) as thread:
            attack = thread.submit(self.attack, forged, self.target())
            turns = self._go_on(attack, damage)
        for stream in self.streams:
            damage.lost[stream.name] += stream.missing()
        if self.producer.counters["written"] != written + turns:
            damage.effects.append(f"{self.producer.counters['written'] - written} writes of {turns}")
        self._judge_sums(damage, sums)
        self._judge(damage, before)
        return damage

    def _go_on(self, attack: Future[None], damage: Damage) -> int:
        """Write, read and send until the attack is over, ten times at least; return how often something was written."""
        turns = 0
        while turns < 10 or not attack.done():
            turns += 1
            value = self.write()
            for _ in range(_READS):
                content = self.client.get(NAME)
                if content != value:
                    damage.effects.append(f"{content} was read, not {value}")
                for stream in self.streams:
                    stream.send()
        attack.result()
        return turns

    def is_measured(self) -> bool:
        """Send one datagram of every stream; return whether the collector has figures of all of them."""
        for stream in self.streams:
            stream.send()
        return {stream.flow for stream in self.streams} <= {*self.snapshot().paths}

    def write(self) -> Content:
        """Write the next version; return what readers are to get from now on."""
        self._version += 1
        value = b"value %d" % self._version
        assert self.client.put(NAME, value) == self._version
        return Content(value, self._version)

    def _judge_sums(self, damage: Damage, before: int) -> None:
        for worker in self.workers:
            worker.wait_for_sum(TOTAL, after=before + 3)
            wrong = {count: value for count, value in worker.sums.items() if value != TOTAL}
            damage.effects += [f"{worker.out.name}: the sum of {count} is {value}" for count, value in wrong.items()]

    def _judge(self, damage: Damage, before: _State) -> None:
        after = self._state()
        for name, held in after.tables.items():
            damage.effects += [f"{name}: {difference}" for difference in differences(before.tables[name], held)]
        damage.effects += [f"known no more, or new: {key}" for key in before.known ^ after.known]
        now, then = ((routes.version, routes.explicit_routes) for routes in (after.routes, before.routes))
        if now != then:
            damage.effects.append(f"routes: version and explicit ones are {now}, not {then}")
        for process, had in before.memory.items():
            grown = after.memory.get(process, 0) - had
            if process not in after.memory:
                damage.effects.append(f"{process} has ended")
            elif grown >= SLACK_BYTES:
                damage.effects.append(f"{process} has {grown >> 20} MB more")
        damage.lost["reports"] += after.reports_lost - before.reports_lost

    def _state(self) -> _State:
        until(self.is_measured, "figures of every stream")  # which are forgotten in a pause
        snapshot, own = self.snapshot(), TOPOLOGY.host["evil"].ipv4
        flows = (flow for flow in snapshot.paths if flow.src != own)
        known = {*flows, *snapshot.reporters, *snapshot.clocks, *snapshot.jobs, *snapshot.links}
        lost = sum(reporter.lost for reporter in snapshot.reporters.values())
        return _State(self.tables(), known, self.memory(), self.path_status(), lost)

    def snapshot(self) -> Snapshot:
        """Return the state of the network as the collector has it."""

        async def asked() -> Snapshot:
            async with FeedClient(FeedClientSettings(address=self.jobs.feed)) as client:
                return await finish_within(snapshot_of(client), WAIT_S)

        return self.runner.run(asked())

    def path_status(self) -> PathServerStatus:
        """Return what the path server says of itself."""

        async def asked() -> PathServerStatus:
            async with RouteClient(RouteClientSettings(address=self.paths)) as client:
                return await finish_within(client.status(), WAIT_S)

        return self.runner.run(asked())

    def tables(self) -> dict[str, dict[EntityKey, object]]:
        """Return what the switches hold, as values that compare."""
        return self.runner.run(self._read())

    async def _read(self) -> dict[str, dict[EntityKey, object]]:
        tables: dict[str, dict[EntityKey, object]] = {}
        schema = load_schema(*fabric_program(FABRIC_AGGREGATION))
        for node in TOPOLOGY.switches:
            target = Switch(node.name, self.jobs.fabric.p4runtime_address(node.name), node.node_id)
            session = GrpcSession(target, schema, timeout_s=WAIT_S)
            try:
                await session.connect_to_read()
                entities = await session.read()
            finally:
                await session.close()
            tables[node.name] = steady(entities, NAME)
        return tables

    def memory(self) -> dict[str, int]:
        """Return the resident memory of each daemon, switch and worker that is alive, bytes."""
        manifest = Manifest.load(self.jobs.fabric.run_dir)
        assert manifest is not None
        pids = {worker.pid for worker in self.jobs.processes} | {worker.pid for worker in self.workers}
        pids |= {process.pid for process in manifest.processes}
        sizes = {}
        for pid in pids:
            with suppress(FileNotFoundError, ProcessLookupError):
                status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
                resident = status.partition("VmRSS:")[2].split()
                command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
                if resident:  # else it is dead, and waits to be looked at
                    sizes[f"{pid}: {command[-60:].strip()}"] = int(resident[0]) << 10
        return sizes

    def target(self) -> Target:
        """Return what the attacker knows."""
        (job,) = {key.job for key in self.snapshot().jobs}
        return Target(TOPOLOGY, "evil", "producer", "h1", "h1", self._worker_port(), job, NAME)

    def attack(self, count: int, target: Target) -> None:
        """Send forged frames from the attacker's device, and reports straight to the collector's socket."""
        attacker = Attacker(target, MonotonicClock().now_ns)
        sending = self.jobs.fabric.call_in("evil", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        direct = self.jobs.fabric.call_in("c1", _datagrams)
        assert TOPOLOGY.collector is not None
        collector = str(target.ipv4("c1")), TOPOLOGY.collector.udp_port
        with sending, direct:
            sending.bind((HOST_DEVICE, 0))
            for number, datagram in enumerate(attacker.datagrams(count)):
                attacker.item = number
                sending.send((datagram.frame or frame_of(target, datagram))[:1514].ljust(14, b"\0"))
                self.forged[datagram.kind] += 1
                if datagram.kind is Kind.REPORT:
                    direct.sendto(datagram.payload[:65_000], collector)
                if number % BURST == 0:
                    time.sleep(PACE_S)

    def _worker_port(self) -> int:
        """Return the UDP port on which the first worker waits for results, as visible on its machine."""
        table = self.jobs.fabric.call_in("h1", lambda: Path("/proc/thread-self/net/udp").read_text(encoding="ascii"))
        return int(table.splitlines()[1].split()[1].partition(":")[2], 16)


@contextmanager
def besieging() -> Iterator[Siege]:
    """Start it all, and wait until workers have sums and a switch has a copy of the content; needs root."""
    store = StoreSettings(producers=("producer",), interval_ns=100_000_000)
    server, writers = str(TOPOLOGY.host["producer"].ipv4), (str(TOPOLOGY.host["h1"].ipv4),)
    make = partial(Producer, ":memory:", address="0.0.0.0", writers=writers, freshness_ms=60_000)
    with JobFabric(3, topology=TOPOLOGY, watches=(Watch(),), store=store) as jobs, _path_server(jobs) as paths:
        workers = [jobs.start_worker(host, len(WORKERS)) for host in WORKERS]
        for worker in workers:
            worker.wait_for_sum(TOTAL)
        with (
            ExitStack() as stack,
            jobs.fabric.call_in("producer", make) as producer,
            jobs.fabric.call_in("h1", lambda: StoreClient(server, deadline_s=WAIT_S)) as client,
        ):
            streams = [
                stack.enter_context(closing(Stream(jobs.fabric, *ends))) for ends in (("h1", "h3"), ("h3", "h2"))
            ]
            siege = Siege(jobs, paths, workers, producer, client, streams, stack.enter_context(asyncio.Runner()))
            value = siege.write()
            until(lambda: _is_copied(producer, client, value), "a copy in the switch")
            yield siege


def _is_copied(producer: Producer, client: StoreClient, content: Content) -> bool:
    """Read; return whether the producer was not asked."""
    before = producer.counters.get("answered", 0)
    assert client.get(NAME) == content
    return producer.counters.get("answered", 0) == before


@contextmanager
def _path_server(fabric: JobFabric) -> Iterator[str]:
    folder = fabric.fabric.run_dir
    settings = PathServerSettings(
        topology=str(folder / "star.yaml"),
        feed=fabric.feed,
        listen=f"unix:{folder}/paths",
        records=RecordSettings(database=str(folder / "records.sqlite")),
    )
    (folder / "paths.yaml").write_text(yaml.safe_dump(document_of(settings)), encoding="utf-8")
    command = [sys.executable, "-m", "controller.apps.cli", "paths", "serve", "-s", str(folder / "paths.yaml")]
    with (folder / "paths.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)})
    with process:
        fabric.processes.append(process)
        try:
            until(lambda: "ready" in (folder / "paths.log").read_text(encoding="utf-8"), "a path server that is ready")
            yield settings.listen
        finally:
            process.kill()
