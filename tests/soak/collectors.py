"""Three collectors, two path servers and two controllers share 40 switches, and everything fails at random moments.

The switches are P4Runtime sinks: each report goes to the port that its switch's table has, as the controller wrote it.
Collectors are killed, stopped for longer than their lease, and restarted; so are controllers, path servers and members
of etcd, and the object store hangs now and then. Meanwhile no switch may be without a live collector for long; after
each failure the merged sums must be those of one collector that is given everything; and at the end every row of the
collectors' folders must be in the object store, once.

    .venv/bin/python -m tests.soak.collectors --minutes 10

Leases are in three members of etcd if it is installed, else in SQLite; the store is moto's (make .venv-s3/.ready).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
from finsy.proto import p4r
from numpy.typing import NDArray

from collectors.collector import Collector
from collectors.decode.payloads import Payloads
from collectors.feed.client import FeedClient, FeedClientSettings
from collectors.history.objects.bucket import Bucket
from collectors.history.objects.query import query_objects
from collectors.history.objects.upload import Uploader
from collectors.history.query import query
from collectors.settings import CollectorSettings, StateSettings
from collectors.statistics.link_windows import LinkWindows, merged
from dataplane.clock import MonotonicClock
from dataplane.topology.file import load_topology
from tests.benchmarks.chaining.flows import Mix, make_flows
from tests.benchmarks.chaining.processes import Daemon
from tests.benchmarks.chaining.reports import Congestion, Reports
from tests.benchmarks.chaining.shards import sums
from tests.benchmarks.chaining.sinks import SinkSwitch, serving
from tests.collectors.history.objects.moto_process import ENVIRONMENT, Moto
from tests.controller.apiserver.storage.etcd_cluster import MEMBERS, EtcdCluster
from tests.waiting import wait_until

TOPOLOGY: Final = "leaf-spine:spines=8,leaves=32,hosts=2"
HOSTS: Final = {"c1": "h1", "c2": "h21", "c3": "h41"}
TICK_S: Final = 0.02
PER_TICK: Final = 20
STOPPED_S: Final = 3.0
AWAY_S: Final = 15.0
FLOWS: Final = 500
UNOWNED_S: Final = 2.0
CHECKED: Final = 2000
"""Reports of each comparison."""
_HOUR_NS: Final = 3_600_000_000_000


@dataclass
class Findings:
    """Figures that the soak measured; `problems` is empty on success."""

    failures: dict[str, int] = field(default_factory=dict)
    links_unowned_s: float = 0.0
    unowned_median_s: float = 0.0
    merge_error: int = 0
    comparisons: int = 0
    reports: int = 0
    rows: int = 0
    rows_missing: int = 0
    reports_counted_lost: int = 0
    feed_silences: int = 0
    problems: list[str] = field(default_factory=list)


class Fabric:
    """Sinks of all switches, in a thread, and a sender of their reports in another."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.topology = load_topology(TOPOLOGY)
        self.ports = dict(zip(HOSTS, _free_udp_ports(len(HOSTS)), strict=True))
        self.dead: set[int] = set()
        self.gaps, self.sent = list[float](), 0
        self.whole = Collector(
            self.topology, MonotonicClock(), CollectorSettings(relays=None, state=StateSettings(window_ns=_HOUR_NS))
        )
        flows = make_flows(self.topology, FLOWS, Mix.UNIFORM, seed)
        self._reports, self._congestion = Reports(flows, np.random.default_rng(seed), PER_TICK), Congestion.of(flows)
        self._folder, self._switches = folder, dict[int, SinkSwitch]()
        self._key: tuple[str, bytes] | None = None
        self._targets: dict[int, tuple[bytes, int]] = {}
        self._unowned_since: dict[int, float] = {}
        self._end, self._paused, self._idle = threading.Event(), threading.Event(), threading.Event()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._failure: BaseException | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Serve switches and send reports while the block runs."""
        ready, threads = threading.Event(), list[threading.Thread]()
        threads.append(threading.Thread(target=lambda: asyncio.run(self._serve(ready)), daemon=True))
        threads[0].start()
        ready.wait()
        threads.append(threading.Thread(target=self._send, daemon=True))
        threads[1].start()
        try:
            yield
        finally:
            self._end.set()
            for thread in threads:
                thread.join()
            self._socket.close()
        if self._failure is not None:
            raise self._failure

    def owner_ports(self) -> dict[int, int]:
        """Return the port that each switch reports to, by node id; of those that have one."""
        ports = {}
        for node_id, switch in self._switches.items():
            key = self._key or self._find_key(switch)
            data = None if key is None else switch.entities.get(key)
            if data is not None:
                ports[node_id] = self._port_of(node_id, data)
        return ports

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Send nothing while the block runs."""
        self._paused.set()
        self._idle.wait()
        try:
            yield
        finally:
            self._idle.clear()
            self._paused.clear()

    def tick(self) -> None:
        """Send some reports, each to where its switch's table says."""
        ports, now_s = self.owner_ports(), time.monotonic()
        self._note_unowned(ports, now_s)
        self._reports.fill(PER_TICK, time.monotonic_ns(), 1000, self._congestion)
        rows = self._reports.rows[:PER_TICK].copy()
        for row in rows:
            port = ports.get(int.from_bytes(row[4:8].tobytes(), "big"))
            if port is not None:
                self._socket.sendto(row.tobytes(), ("127.0.0.1", port))
        self.whole.receive_many(_payloads(rows))
        self.sent += PER_TICK

    def _note_unowned(self, ports: dict[int, int], now_s: float) -> None:
        for node_id in self._switches:
            if ports.get(node_id) in self.dead:
                self._unowned_since.setdefault(node_id, now_s)
            elif (since := self._unowned_since.pop(node_id, None)) is not None:
                self.gaps.append(now_s - since)

    async def _serve(self, ready: threading.Event) -> None:
        async with serving(self.topology, self._folder, lambda _: None) as switches:
            self._switches = switches
            ready.set()
            await asyncio.to_thread(self._end.wait)

    def _send(self) -> None:
        due_s = time.monotonic()
        try:
            while not self._end.is_set():
                if self._paused.is_set():
                    self._idle.set()
                    time.sleep(TICK_S)
                    due_s = time.monotonic()
                    continue
                self.tick()
                due_s += TICK_S
                time.sleep(max(0.0, due_s - time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - raised where the soak ends
            self._failure = error
            self._idle.set()

    def _find_key(self, switch: SinkSwitch) -> tuple[str, bytes] | None:
        """Return the key of the default action that is the same in all switches, None before it is written."""
        for key, data in list(switch.entities.items()):
            table = p4r.Entity.FromString(data).table_entry.table_id if key[0] == "table_entry" else 0
            if switch.tables.get(table) == "report_target":
                self._key = key
        return self._key

    def _port_of(self, node_id: int, data: bytes) -> int:
        cached = self._targets.get(node_id)
        if cached is None or cached[0] is not data:
            action = p4r.Entity.FromString(data).table_entry.action.action
            # The last parameter is the UDP port.
            value = max(action.params, key=lambda parameter: parameter.param_id).value
            cached = self._targets[node_id] = data, int.from_bytes(value, "big")
        return cached[1]


class Soak:
    """All daemons, and their failures."""

    def __init__(self, folder: Path, seed: int, stack: ExitStack) -> None:
        self.folder, self.rng, self.findings = folder, random.Random(seed), Findings()
        self.fabric = Fabric(folder, seed)
        self.etcd = stack.enter_context(EtcdCluster(folder)) if shutil.which("etcd") else None
        self.moto = stack.enter_context(Moto(folder))
        stack.enter_context(self.fabric.running())
        leases = {"sqlite": f"{folder}/leases"} if self.etcd is None else {"etcd": {"addresses": self.etcd.addresses}}
        os.environ |= ENVIRONMENT
        self.collectors = {name: self._collector(name, leases) for name in HOSTS}
        self.controllers = [self._controller(name, leases) for name in ("controller-a", "controller-b")]
        self.path_servers = [self._path_server(name, leases) for name in ("paths-a", "paths-b")]
        for daemon in (*self.collectors.values(), *self.path_servers, *self.controllers):
            stack.enter_context(daemon)

    def run(self, minutes: float, pause_s: float) -> Findings:
        """Fail again and again, compare in between, and check what is in the store at the end."""
        self.until_shared()
        self.compare()
        failures: dict[str, Callable[[], None]] = {
            "collector killed": lambda: self.fail_collector(Daemon.kill, Daemon.start),
            "collector stopped": lambda: self.fail_collector(Daemon.pause, Daemon.release),
            "collector restarted": self.restart_collector,
            "controller killed": lambda: self.fail_pair(self.controllers),
            "path server killed": lambda: self.fail_pair(self.path_servers),
            "member of etcd killed": self.fail_etcd,
            "object store hung": self.fail_store,
        }
        if self.etcd is None:
            del failures["member of etcd killed"]
        until_s, names = time.monotonic() + 60 * minutes, list(failures)
        while time.monotonic() < until_s:
            name = self.rng.choice([*names, *names[:3]])
            failures[name]()
            self.findings.failures[name] = self.findings.failures.get(name, 0) + 1
            self.until_shared()
            self.compare()
            time.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
        self.finish()
        return self.findings

    def until_shared(self) -> None:
        """Wait until every switch reports to a collector that lives, and every collector is used."""
        alive = set(self.fabric.ports.values())

        def is_shared() -> bool:
            ports = self.fabric.owner_ports()
            return len(ports) == len(self.fabric.topology.switches) and set(ports.values()) == alive

        wait_until(is_shared, lambda: f"not shared: {self.fabric.owner_ports()}", limit_s=120.0, poll_s=0.05)

    def compare(self) -> None:
        """Compare what the shards count together with what one collector counts, of reports that all of them get."""
        with self.fabric.quiet():
            before = asyncio.run(self._windows())
            for _ in range(CHECKED // PER_TICK):
                self.fabric.tick()
                time.sleep(0.002)
            expected = _counts(before) + CHECKED

            def is_complete() -> bool:
                return _counts(asyncio.run(self._windows())) >= expected

            wait_until(is_complete, "the collectors do not get all reports", poll_s=0.1)
            after = asyncio.run(self._windows())
        together = [now - then for now, then in zip(_sums(after[0]), _sums(before[0]), strict=True)]
        whole = [now - then for now, then in zip(_sums(after[1]), _sums(before[1]), strict=True)]
        error = int(max(abs(one - other).max() for one, other in zip(together, whole, strict=True)))
        assert whole[0].any(), "no delay was measured"
        self.findings.merge_error = max(self.findings.merge_error, error)
        self.findings.comparisons += 1

    async def _windows(self) -> tuple[list[LinkWindows], list[LinkWindows], int]:
        """Return the sums of the shards and of the one, and how many reports the shards have."""
        windows, reports = [], 0
        for name in HOSTS:
            async with FeedClient(FeedClientSettings(address=self._feed(name))) as feed:
                windows.append((await feed.link_windows()).windows)
                reports += (await feed.status()).counters.get("reports", 0)
        return windows, [self.fabric.whole.link_windows()], reports

    async def _lost(self) -> int:
        """Return how many reports the collectors count as lost."""
        lost = 0
        for name in HOSTS:
            async with FeedClient(FeedClientSettings(address=self._feed(name))) as feed:
                lost += sum(state.lost for state in (await feed.snapshot()).reporters.values())
        return lost

    def fail_collector(self, fail: Callable[[Daemon], None], recover: Callable[[Daemon], None]) -> None:
        """Make a collector fail for longer than its lease."""
        name = self.rng.choice(list(HOSTS))
        self.fabric.dead.add(self.fabric.ports[name])
        fail(self.collectors[name])
        time.sleep(STOPPED_S)
        # It is dead until it has its lease again, and nobody may report to it before.
        recover(self.collectors[name])
        self.fabric.dead.discard(self.fabric.ports[name])

    def restart_collector(self) -> None:
        """Restart a collector in order: it gives its switches away first."""
        name = self.rng.choice(list(HOSTS))
        daemon = self.collectors[name]
        os.kill(daemon.pid, signal.SIGTERM)
        wait_until(lambda: self.fabric.ports[name] not in self.fabric.owner_ports().values(), daemon.log_text)
        daemon.stop()
        daemon.start()

    def fail_pair(self, pair: list[Daemon]) -> None:
        """Kill the active one of a pair, or the one that stands by."""
        daemon = self.rng.choice(pair)
        daemon.kill()
        time.sleep(STOPPED_S)
        daemon.start()

    def fail_etcd(self) -> None:
        """Kill a member: the others go on."""
        assert self.etcd is not None
        number = self.rng.randrange(MEMBERS)
        self.etcd.kill(number)
        time.sleep(STOPPED_S)
        self.etcd.start(number)
        self.etcd.until_healthy()

    def fail_store(self) -> None:
        """Let the object store hang: what is closed meanwhile waits."""
        self.moto.pause()
        time.sleep(AWAY_S)
        self.moto.release()

    def finish(self) -> None:
        """Stop the collectors, upload what their next start would, and compare folders and store row by row."""
        found = self.findings
        found.feed_silences = sum(daemon.log_text().count("feed is silent") for daemon in self.path_servers)
        found.reports_counted_lost = asyncio.run(self._lost())
        for daemon in self.collectors.values():
            daemon.stop()
        bucket = Bucket(self.moto.settings(), ENVIRONMENT)
        statement = "select count(*) as rows, coalesce(sum(samples), 0) as samples from links"
        for name in HOSTS:
            Uploader(self.folder / f"history-{name}", name, bucket).step()
            here = _row(query(self.folder / f"history-{name}", statement))
            there = _row(query_objects(bucket, f"{statement} where shard = '{name}'"))
            self.findings.rows += here["rows"]
            self.findings.rows_missing += here["rows"] - there["rows"]
            if here != there:
                self.findings.problems.append(f"{name}: its folder has {here}, the store {there}")
        gaps = sorted(self.fabric.gaps) or [0.0]
        found.links_unowned_s, found.unowned_median_s = round(gaps[-1], 2), round(gaps[len(gaps) // 2], 2)
        found.reports = self.fabric.sent
        if found.links_unowned_s > UNOWNED_S:
            found.problems.append(f"a switch reported to a dead collector for {found.links_unowned_s} s")
        if found.merge_error:
            found.problems.append(f"merged sums differ from those of one collector by {found.merge_error}")
        if not found.rows:
            found.problems.append("the history has no rows")

    def _feed(self, name: str) -> str:
        return f"unix:{self.folder}/{name}.sock"

    def _collector(self, name: str, leases: dict[str, Any]) -> Daemon:
        store = {"bucket": "long", "endpoint": self.moto.endpoint, "retry": "1s", "timeout": "3s", "compact": False}
        settings = {
            "topology": TOPOLOGY,
            "receiver": {"address": "127.0.0.1", "udp_port": self.fabric.ports[name]},
            "feed": {"address": self._feed(name)},
            "collector": {"relays": None, "state": {"window": "1h"}},
            "shard": {"leases": leases, "host": HOSTS[name], "name": name},
            "history": {
                "folder": f"{self.folder}/history-{name}",
                "file_span": "5s",
                "tiers": [],
                "sketches": False,
                "store": store,
            },
        }
        return Daemon(name, ("collector", "serve"), settings, self.folder)

    def _controller(self, name: str, leases: dict[str, Any]) -> Daemon:
        settings = {
            "topology": TOPOLOGY,
            "switches": f"unix:{self.folder}/{{name}}.sock",
            "path_server": ",".join(f"unix:{self.folder}/paths-{one}.sock" for one in "ab"),
            "collectors": leases,
            "standby": {**leases, "holder": name},
            "retry": {"drain": "20ms", "longest_wait": "300ms"},
        }
        return Daemon(name, ("controller",), settings, self.folder)

    def _path_server(self, name: str, leases: dict[str, Any]) -> Daemon:
        settings = {
            "topology": TOPOLOGY,
            "collectors": leases,
            "listen": f"unix:{self.folder}/{name}.sock",
            "max_snapshot_age": "5s",  # on two cores nine daemons wait for one another
            "records": {"database": f"{self.folder}/{name}.sqlite", "reports_per_s": 0},
            "standby": {**leases, "holder": name},
        }
        return Daemon(name, ("paths", "serve"), settings, self.folder)


def _sums(windows: list[LinkWindows]) -> list[NDArray[np.int64]]:
    return list(sums(merged(windows)))


def _counts(windows: tuple[list[LinkWindows], list[LinkWindows], int]) -> int:
    return windows[2]


def _row(answer: Any) -> dict[str, int]:
    [batch] = list(answer.batches)
    [row] = batch.to_pylist()
    return {key: int(value) for key, value in row.items()}


def _payloads(rows: NDArray[np.uint8]) -> Payloads:
    count, size = rows.shape
    places = np.arange(count, dtype=np.uint64) * np.uint64(size)
    return Payloads(rows.reshape(-1).copy(), places, np.full(count, size, np.uint32))


def _free_udp_ports(count: int) -> list[int]:
    probes = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def soak(minutes: float, seed: int, pause_s: float, folder: Path) -> Findings:
    """Run in a folder."""
    with ExitStack() as stack:
        return Soak(folder, seed, stack).run(minutes, pause_s)


def main() -> int:
    """Run; return 1 if there were problems. The last line is the findings as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pause-s", type=float, default=2.0)
    parser.add_argument("--folder", type=Path, help="keep everything here")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="mr-shards-") as temporary:
        found = soak(options.minutes, options.seed, options.pause_s, options.folder or Path(temporary))
    print(json.dumps(vars(found)))
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
