"""`scheduler serve` beside a collector that receives INT reports: a measured delay sends a pod to another node."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from collectors.feed.server import FeedSettings
from collectors.ingest.receiver import ReceiverSettings
from collectors.process import CollectorProcessSettings, serve
from collectors.settings import CollectorSettings
from controller.apiserver.resources.pod import PeerNeed
from dataplane.clock import UtcClock
from dataplane.topology.file import load_topology
from dataplane.topology.values import Link
from tests.collectors.reports import Hop, Reporter
from tests.controller.scheduling.serving.conftest import Cluster, Play, placed_name
from tests.controller.scheduling.serving.started import start

MS = 1_000_000
TOPOLOGY = """
millrace: 1
name: two-ways
collector: {host: data}
synchronised_clocks: true
defaults: {link: {rate: 1 Gbit/s, delay: 5 us}, access: {rate: 10 Gbit/s, delay: 1 us}}
switches: [{name: s1, id: 11}, {name: s2, id: 12}, {name: s3, id: 13}]
hosts:
  - {name: data, switch: s1}
  - {name: near, switch: s2, cores: 4}
  - {name: far, switch: s3, cores: 4}
links: [{a: s1, b: s2}, {a: s1, b: s3, delay: 1 ms}]
"""


class Reports:
    """Packets from `data` to `near`, as their sink reports them, with the delay of the queue before s2."""

    def __init__(self, file: Path) -> None:
        self.topology = load_topology(file)
        self.queued_ns = 0

    def report(self, reporter: Reporter) -> bytes:
        ends = {key: port for link in self.topology.links for key, port in _ports(link)}
        now = UtcClock().now_ns()
        left = now + 2_000 + self.queued_ns
        hops = [
            Hop(11, now, left, ends["s1", "data"], ends["s1", "s2"], queue=self.queued_ns // 10_000),
            Hop(12, left + 5_000, left + 7_000, ends["s2", "s1"], ends["s2", "near"]),
        ]
        return reporter.stacked(hops)

    async def send(self, port: int) -> None:
        reporter = Reporter(str(self.topology.host["data"].ipv4), str(self.topology.host["near"].ipv4))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            while True:
                sender.sendto(self.report(reporter), ("127.0.0.1", port))
                await asyncio.sleep(0.01)


def _ports(link: Link) -> tuple[tuple[tuple[str, str], int], ...]:
    a, b = link.a, link.b
    return ((a.node, b.node), a.port), ((b.node, a.node), b.port)


@asynccontextmanager
async def collecting(reports: Reports, feed: str) -> AsyncIterator[None]:
    """Run the collector's process code, with a stream of reports to its UDP socket."""
    settings = CollectorProcessSettings(
        topology="unused",
        receiver=ReceiverSettings(address="127.0.0.1", udp_port=0),
        feed=FeedSettings(address=feed),
        collector=CollectorSettings(relays=("127.0.0.1",)),
    )
    stop, ready = asyncio.Event(), asyncio.Future[str]()
    process = asyncio.create_task(serve(settings, reports.topology, UtcClock(), stop, ready.set_result))
    port = int((await ready).removeprefix("reports on UDP port ").split(",")[0])
    sending = asyncio.create_task(reports.send(port))
    try:
        yield
    finally:
        sending.cancel()
        stop.set()
        await process


def test_measured_delay_moves_a_pod(play: Play, tmp_path: Path) -> None:
    file = tmp_path / "two-ways.yaml"
    file.write_text(TOPOLOGY, "utf-8")
    reports = Reports(file)

    async def act(cluster: Cluster) -> None:
        feed = f"unix:{Path(cluster.socket.removeprefix('unix:')).parent}/feed"
        settings = tmp_path / "scheduler.yaml"
        settings.write_text(
            f"api: {cluster.socket}\ntopology: {file}\nnetwork: {{feed: '{feed}', path_server: null, interval: 10ms}}\n"
            "queue: {first_wait: 1ms, longest_wait: 1s}\n"
            "profiles: [{name: default, filters: [{policy: ready}, {policy: fits}, {policy: network-need}],"
            " scores: [{policy: network-cost}]}]\n"
        )
        for name in ("near", "far"):
            await cluster.add_node(name)

        async def node_of(pod: str) -> str | None:
            await cluster.add_pod(pod, cores=0, peers=(PeerNeed(host="data"),))
            return (await cluster.pods_when(placed_name(pod)))[pod].status.node

        async with collecting(reports, feed):
            running = await start(settings)
            assert await node_of("quiet") == "near"
            reports.queued_ns = 20 * MS
            pods = 0
            while await node_of(f"delayed-{pods}") == "near":
                pods += 1
            reports.queued_ns = 0
            while await node_of(f"recovered-{pods}") == "far":
                pods += 1
        running.terminate()
        assert await running.wait() == 0

    play(act)
