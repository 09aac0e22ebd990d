"""An attacker in a namespace beside real daemons, real switches and real workers: all goes on as if it were not there.

The attacker sends from its own device, with whatever addresses it likes, and straight to the collector's socket.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import pytest
import yaml

from collectors.values import Snapshot
from controller.cli.feed import ask, snapshot_of
from controller.p4runtime.grpc_session import GrpcSession
from controller.p4runtime.grpc_session import Target as Switch
from controller.p4runtime.session import FABRIC_AGGREGATION, fabric_program, load_schema
from controller.paths.records.values import PathServerStatus
from controller.paths.service.client import RouteClient, RouteClientSettings
from controller.paths.settings import PathServerSettings, RecordSettings
from controller.store.settings import StoreSettings
from controller.tables.entities import EntityKey
from controller.tables.telemetry.int_watch import Watch
from dataplane.clock import MonotonicClock
from dataplane.fabric.kernel.fabric import HOST_DEVICE
from dataplane.store.client import StoreClient
from dataplane.store.dialogues import Content
from dataplane.store.producer import Producer
from dataplane.topology.file import loads
from tests.adversary.attacks import Attacker, Kind, Target, frame_of
from tests.adversary.tables import differences, steady
from tests.examples import examples
from tests.integration.job_fabric import ROOT, JobFabric, WorkerProcess, until

pytestmark = pytest.mark.root

FORGED = examples(3_000)
BURST = 20
PACE_S = 0.005
"""Between bursts: an attacker that fills its own cable delays what shares it, and that is not what is looked at."""
NAME = "/weights"
WORKERS = ("h1", "h2", "h3")
TOTAL = 2 + 4 + 8
SLACK_BYTES = 32 << 20
"""What a daemon's memory may grow by meanwhile, by caches that fill: far less than an entry for each datagram."""
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


@dataclass
class Besieged:
    """The running fabric with all its daemons, and what the attacker has sent."""

    jobs: JobFabric
    paths: str
    workers: list[WorkerProcess]
    forged: Counter[Kind] = field(default_factory=Counter)

    def snapshot(self) -> Snapshot:
        return ask(self.jobs.feed, snapshot_of)

    def known(self) -> set[object]:
        """Return what the collector has figures of, but for the attacker's own traffic."""
        snapshot, own = self.snapshot(), TOPOLOGY.host["evil"].ipv4
        flows = (flow for flow in snapshot.paths if flow.src != own)
        return {*flows, *snapshot.reporters, *snapshot.clocks, *snapshot.jobs, *snapshot.links}

    def path_status(self) -> PathServerStatus:
        async def asking() -> PathServerStatus:
            async with RouteClient(RouteClientSettings(address=self.paths)) as client:
                return await asyncio.wait_for(client.status(), 60)

        return asyncio.run(asking())

    def tables(self) -> dict[str, dict[EntityKey, object]]:
        """Return what the switches hold, as values that compare."""
        return asyncio.run(self._read())

    async def _read(self) -> dict[str, dict[EntityKey, object]]:
        found: dict[str, dict[EntityKey, object]] = {}
        schema = load_schema(*fabric_program(FABRIC_AGGREGATION))
        for node in TOPOLOGY.switches:
            target = Switch(node.name, self.jobs.fabric.p4runtime_address(node.name), node.node_id)
            session = GrpcSession(target, schema, timeout_s=60)
            try:
                await session.connect_to_read()
                entities = await session.read()
            finally:
                await session.close()
            found[node.name] = steady(entities, NAME)
        return found

    def memory(self) -> dict[str, int]:
        """Return the resident memory of each daemon and switch, bytes; a process that has ended is a failure."""
        found = {}
        for process in self.jobs.processes:
            assert process.poll() is None, f"{process.args!r} ended"
            status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
            found[f"{process.args!r}"] = int(status.partition("VmRSS:")[2].split()[0]) << 10
        return found

    def attack(self, count: int) -> None:
        """Send forged frames from the attacker's device, and reports straight to the collector's socket."""
        (job,) = {key.job for key in self.snapshot().jobs}
        target = Target(TOPOLOGY, "evil", "producer", "h1", "h1", self._worker_port(), job, NAME)
        attacker = Attacker(target, MonotonicClock().now_ns)
        sending = self.jobs.fabric.call_in("evil", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
        direct = self.jobs.fabric.call_in("c1", lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        assert TOPOLOGY.collector is not None
        collector = str(target.ipv4("c1")), TOPOLOGY.collector.udp_port
        with sending, direct:
            sending.bind((HOST_DEVICE, 0))
            for number, one in enumerate(attacker.datagrams(count)):
                attacker.item = number
                with_room = (one.frame or frame_of(target, one))[:1514]
                if len(with_room) >= 14:
                    sending.send(with_room)
                    self.forged[one.kind] += 1
                if one.kind is Kind.REPORT:
                    direct.sendto(one.payload[:65_000], collector)
                if number % BURST == 0:
                    time.sleep(PACE_S)

    def _worker_port(self) -> int:
        """Return the UDP port at which the first worker waits for results, as somebody on its machine sees it."""
        table = self.jobs.fabric.call_in("h1", lambda: Path("/proc/thread-self/net/udp").read_text(encoding="ascii"))
        return int(table.splitlines()[1].split()[1].partition(":")[2], 16)


@contextmanager
def _path_server(fabric: JobFabric) -> Iterator[str]:
    folder = fabric.fabric.run_dir
    settings = PathServerSettings(
        topology=str(folder / "star.yaml"),
        feed=fabric.feed,
        listen=f"unix:{folder}/paths",
        records=RecordSettings(database=str(folder / "records.sqlite")),
    )
    (folder / "paths.yaml").write_text(yaml.safe_dump(msgspec.to_builtins(settings)), encoding="utf-8")
    command = [sys.executable, "-m", "controller.cli", "paths", "serve", "-s", str(folder / "paths.yaml")]
    with (folder / "paths.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(ROOT)})
    with process:
        fabric.processes.append(process)
        try:
            until(lambda: "ready" in (folder / "paths.log").read_text(encoding="utf-8"), "a path server that is ready")
            yield settings.listen
        finally:
            process.kill()


@pytest.fixture(scope="module")
def besieged() -> Iterator[Besieged]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    store = StoreSettings(producers=("producer",), interval_ns=100_000_000)
    with JobFabric(3, topology=TOPOLOGY, watches=(Watch(),), store=store) as jobs, _path_server(jobs) as paths:
        workers = [jobs.start_worker(host, len(WORKERS)) for host in WORKERS]
        for worker in workers:
            worker.wait_for_sum(TOTAL)
        yield Besieged(jobs, paths, workers)


def _is_copied(producer: Producer, client: StoreClient, content: Content) -> bool:
    """Read; return whether the producer was not asked."""
    before = producer.counters.get("answered", 0)
    assert client.get(NAME) == content
    return producer.counters.get("answered", 0) == before


def test_nothing_forged_counts(besieged: Besieged) -> None:
    fabric = besieged.jobs.fabric
    server = str(TOPOLOGY.host["producer"].ipv4)
    writers = (str(TOPOLOGY.host["h1"].ipv4),)
    make = partial(Producer, ":memory:", address="0.0.0.0", writers=writers, freshness_ms=60_000)
    with (
        fabric.call_in("producer", make) as producer,
        fabric.call_in("h1", lambda: StoreClient(server, deadline_s=60)) as client,
    ):
        assert client.put(NAME, b"value 1") == 1
        until(lambda: _is_copied(producer, client, Content(b"value 1", 1)), "a copy in the switch")
        besieged.attack(FORGED // 4)  # what grows once has grown
        tables, known, memory = besieged.tables(), besieged.known(), besieged.memory()
        routes, sums = besieged.path_status(), len(besieged.workers[0].sums)

        with ThreadPoolExecutor(1) as thread:
            attack = thread.submit(besieged.attack, FORGED)
            for number in range(2, 12):
                assert client.put(NAME, b"value %d" % number) == number
                for _ in range(20):
                    assert client.get(NAME) == Content(b"value %d" % number, number)
            attack.result()
        assert client.get(NAME) == Content(b"value 11", 11)
        assert producer.counters["written"] == 11
    for worker in besieged.workers:
        worker.wait_for_sum(TOTAL, after=sums + 3)
        assert set(worker.sums.values()) == {TOTAL}
    for name, held in besieged.tables().items():
        assert differences(tables[name], held) == [], name
    assert besieged.known() == known
    after = besieged.path_status()
    assert (after.version, after.explicit_routes) == (routes.version, routes.explicit_routes)
    grown = {name: now - memory[name] for name, now in besieged.memory().items()}
    assert max(grown.values()) < SLACK_BYTES, grown
    assert set(besieged.forged) == set(Kind)
