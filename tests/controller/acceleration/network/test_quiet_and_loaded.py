"""The same query goes to the GPU on a quiet network and stays on the CPU on a loaded one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from collectors.collector import Collector
from collectors.feed.server import FeedServer, FeedSettings
from collectors.values import Snapshot
from controller.acceleration.network.grounds import Ground, ground_over
from controller.acceleration.network.hardware import Hardware
from controller.acceleration.network.loading import load_ground
from controller.acceleration.network.trees import Aggregators
from controller.acceleration.plans import explain, plan_of
from controller.acceleration.plans.works import Reading
from controller.acceleration.values import Accelerator
from controller.apps.cli.accel.run import between_of
from controller.cluster.cost_map import Basis as PathBasis
from controller.cluster.cost_map import CostMap
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator
from controller.cluster.operators.sql import SqlTable, graph_of_sql
from controller.network.p4runtime.in_process import InProcessSession
from controller.network.p4runtime.session import fabric_program, load_schema
from controller.network.virtual import VirtualController
from dataplane.fabric.hosts import flow_between
from dataplane.fabric.virtual import VirtualFabric
from dataplane.topology.file import load, loads
from dataplane.topology.values import DeviceKind
from dataplane.wire.packet import decode_udp_frame
from tests.waiting import HANG_S

FABRIC = """\
millrace: 1
name: racks
collector: {host: c1}
synchronised_clocks: true
defaults:
  access: {rate: 100 Mbit/s, delay: 10 us}
switches: [{name: s1}, {name: s2}]
hosts:
- {name: h1, switch: s1}
- {name: h2, switch: s1}
- {name: h3, switch: s2}
- {name: h4, switch: s2}
- {name: c1, switch: s1}
links: [{a: s1, b: s2, rate: 10 Mbit/s, delay: 1 ms}]
"""
GPU = Accelerator(DeviceKind.GPU, parallelism=64)
HARDWARE = Hardware(fan_in=4, aggregators=Aggregators.MEMBER, preset=1.5, accelerators=(GPU,))
TABLES = {"readings": SqlTable(400_000, 40_000_000), "places": SqlTable(400_000, 40_000_000)}
QUERY = "select p.name from readings r join places p on r.place = p.id where r.value < 10"
LOAD_BPS = 8_000_000
GPU_ALL = {"filter": "gpu", "join": "gpu"}
CPU_ALL = {"filter": "cpu", "join": "cpu"}


class EightSeconds:
    """A slow machine: 8 s for 100 MB of anything."""

    def t_of(self, operator: Operator) -> Estimate:
        return Estimate.exactly(8.0, Basis.MODELLED, f"as stated, {operator.kind} too")


def devices_on(ground: Ground) -> dict[str, str]:
    """Return the device of each kind of operator of the query."""
    plan = plan_of(graph_of_sql(QUERY, tables=TABLES), ground.machines.count, EightSeconds(), Reading(has_tenths=True))
    explained = explain(plan, ground.machines, ground.accelerators, preset=ground.preset)
    return {operator.decision.work.kind: operator.device for operator in explained.operators}


def test_by_a_cost_map_with_and_without_load() -> None:
    quiet = CostMap.of(loads(FABRIC), Snapshot(0, {}, {}, {}))
    assert devices_on(ground_over(HARDWARE, quiet)) == GPU_ALL
    loaded = quiet.with_load("h3", "h1", LOAD_BPS)
    assert devices_on(ground_over(HARDWARE, loaded)) == CPU_ALL
    assert devices_on(ground_over(HARDWARE, quiet.with_load("h1", "h3", LOAD_BPS))) == GPU_ALL, (
        "load against the tree's direction is in nobody's way"
    )


def collector_of(topology_file: Path, load_bps: int) -> Collector:
    """Return a collector after one second of virtual time on a fabric whose only cable carries this load towards h1."""
    topology = load(topology_file)
    fabric = VirtualFabric(topology)
    schema = load_schema(*fabric_program())
    switches = {
        node.name: InProcessSession(node.name, node.node_id, fabric.p4runtime(node.name), schema)
        for node in topology.switches
    }
    VirtualController(topology, switches, fabric.clock, fabric.call_at).start()
    collector = Collector(topology, fabric.clock)

    def report(frame: bytes, _now_ns: int) -> None:
        datagram = decode_udp_frame(frame)
        assert datagram is not None
        collector.receive(datagram.payload)

    fabric.host("c1").on_frame(report)
    flow = flow_between(topology, 1, "h3", "h1", rate_bps=load_bps, stop_ns=2_000_000_000)
    fabric.start_flow("h3", flow)
    fabric.run_until(1_000_000_000)
    return collector


@contextmanager
def serving(collector: Collector, address: str) -> Iterator[None]:
    """Serve a collector's feed, in a loop of its own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        server = FeedServer(collector, FeedSettings(address=address))
        await server.start()
        ready.set()
        await stop.wait()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(HANG_S)
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(HANG_S)
        loop.close()


@pytest.mark.parametrize(("load_bps", "device"), [(100_000, "gpu"), (LOAD_BPS, "cpu")])
def test_by_a_live_feed_of_a_fabric_that_carries_traffic(load_bps: int, device: str) -> None:
    with TemporaryDirectory(prefix="feed") as folder:
        topology = Path(folder, "racks.yaml")
        topology.write_text(FABRIC, encoding="utf-8")
        address = f"unix:{folder}/feed"
        with serving(collector_of(topology, load_bps), address):
            ground = load_ground(str(topology), HARDWARE, feed=address)
            between = between_of(rate=None, topology=str(topology), hardware=None, feed=address, server=None)
    assert devices_on(ground) == dict.fromkeys(GPU_ALL, device)
    assert ground.tree is not None
    assert ground.tree.rounds[0].busiest_bps == pytest.approx(10_000_000 - load_bps, rel=0.1)
    assert ground.tree.rounds[0].basis is PathBasis.MEASURED
    assert ground.notes == ("paths are base routes: no path server given",)
    # A run on these hosts is compared with the same rounds.
    machines, notes = between.machines(("h1:7700", "h2:7700", "h3:7700", "h4:7700"), HARDWARE.fan_in)
    assert machines.network.rounds == ground.machines.network.rounds
    assert notes == ground.notes
