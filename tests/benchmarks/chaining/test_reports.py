"""The chain's sender makes reports that a collector takes for those of a fabric."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from collectors.collector import Collector
from collectors.counters import Count
from collectors.decode.payloads import Payloads
from collectors.settings import CollectorSettings
from dataplane.clock import VirtualClock
from dataplane.topology.file import load_topology
from dataplane.topology.values import LinkKey
from tests.benchmarks.chaining import sender
from tests.benchmarks.chaining.flows import HEAVY_SHARE, Flows, Mix, fabric_links, make_flows
from tests.benchmarks.chaining.reports import FULL_LOAD, FULL_QUEUE_FRAMES, Congestion, Reports, encoded
from tests.benchmarks.chaining.sender import SenderSettings, line_of

LEAF_SPINE, FAT_TREE = "leaf-spine:spines=2,leaves=3,hosts=4", "fat-tree:k=4"
MS = 1_000_000


def flows_of(topology: str, count: int = 40, mix: Mix = Mix.UNIFORM) -> Flows:
    return make_flows(load_topology(topology), count, mix, 1)


def feeding(flows: Flows, reports: Reports, congestion: Congestion, blocks: int) -> Iterator[Collector]:
    """Yield a collector after each block of 100 reports, 10 ms each."""
    clock = VirtualClock()
    collector = Collector(flows.topology, clock, CollectorSettings())
    size = reports.rows.shape[1]
    for block in range(blocks):
        reports.fill(100, block * 10 * MS, MS // 10, congestion)
        places = np.arange(100, dtype=np.uint64) * np.uint64(size)
        collector.receive_many(Payloads(reports.rows.reshape(-1), places, np.full(100, size, np.uint32)))
        clock.advance_to((block + 1) * 10 * MS)
        yield collector


def collected(flows: Flows, reports: Reports, congestion: Congestion) -> Collector:
    """Return a collector that has taken 2,000 reports."""
    *_, collector = feeding(flows, reports, congestion, 20)
    return collector


@pytest.mark.parametrize("topology", [LEAF_SPINE, FAT_TREE])
def test_reports_show_paths_and_congestion(topology: str) -> None:
    flows = flows_of(topology)
    link = next(key for key in fabric_links(flows.topology) if len(flows.crossing(key)) >= 2)
    reports = Reports(flows, np.random.default_rng(1), 100)
    collector = collected(flows, reports, Congestion.of(flows, (link,)))
    counters = {name: count for name, count in collector.counters.items() if count and name != Count.RECORDS}
    assert counters == {Count.REPORTS: 2000}
    snapshot = collector.snapshot()
    paths = {(flow.src, flow.dst): flow.path for flow in flows.flows}
    hosts = flows.topology.host_by_address
    assert {(hosts[key.src].name, hosts[key.dst].name): s.switches for key, s in snapshot.paths.items()} == paths
    assert snapshot.links[link].queue_occupancy_frames == FULL_QUEUE_FRAMES
    assert snapshot.links[link].utilisation == pytest.approx(FULL_LOAD, abs=0.001)
    others = [snapshot.links[key] for key in fabric_links(flows.topology) if key != link]
    assert max(state.queue_occupancy_frames for state in others) < 10
    assert max(state.utilisation for state in others) < 0.5
    assert snapshot.links[link].delay_mean_ns > 20 * max(state.delay_mean_ns for state in others)
    assert sum(state.received for state in snapshot.reporters.values()) == 2000
    assert not any(state.lost or state.late or state.duplicate for state in snapshot.reporters.values())


def test_reports_follow_a_rerouted_flow() -> None:
    flows = flows_of(LEAF_SPINE)
    reports = Reports(flows, np.random.default_rng(1), 100)
    before = flows.flows[3]
    path = (before.path[0], "spine2" if before.path[1] == "spine1" else "spine1", before.path[2])
    flows.reroute(3, path)
    reports.reroute(3)
    states = collected(flows, reports, Congestion.of(flows)).snapshot().paths
    hosts = flows.topology.host_by_address
    ways = {(hosts[key.src].name, hosts[key.dst].name): state.switches for key, state in states.items()}
    assert ways[before.src, before.dst] == path
    assert 3 in flows.crossing(LinkKey(path[0], path[1]))
    assert 3 not in flows.crossing(LinkKey(before.path[0], before.path[1]))
    assert len(encoded(flows.topology, before)) == reports.rows.shape[1]


def test_reports_are_as_often_as_the_mix_says() -> None:
    flows = flows_of(LEAF_SPINE, 90, Mix.HEAVY)
    assert flows.heavy == 45
    order = flows.schedule(np.random.default_rng(1))
    assert np.count_nonzero(order < flows.heavy) / len(order) == pytest.approx(HEAVY_SHARE, abs=0.02)
    assert set(order.tolist()) == set(range(90))
    even = flows_of(LEAF_SPINE, 90).schedule(np.random.default_rng(1))
    assert set(np.bincount(even).tolist()) == {len(even) // 90}


def test_flows_are_refused_where_there_are_too_few_hosts() -> None:
    with pytest.raises(ValueError, match="96 pairs of hosts are so far apart, fewer than 97"):
        flows_of(LEAF_SPINE, 97)


@pytest.fixture
def inlet() -> Iterator[socket.socket]:
    """Return a UDP socket of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("127.0.0.1", 0))
        opened.settimeout(30)
        yield opened


def test_sender_sends_as_ordered(inlet: socket.socket) -> None:
    port = inlet.getsockname()[1]
    # Slow enough for the socket's buffer to hold all that is sent while this process waits for a processor.
    settings = SenderSettings(LEAF_SPINE, 40, Mix.UNIFORM, 1, port, 200.0)
    command = [sys.executable, sender.__file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line_of(settings))
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == {"ready": True}
        taken = [inlet.recv(2048) for _ in range(50)]
        link = flows_of(LEAF_SPINE).keys[flows_of(LEAF_SPINE).links[0, 0]]
        process.stdin.write(json.dumps({"congested": [[link.src, link.dst]]}) + "\n")
        process.stdin.flush()
        assert "congested_ns" in json.loads(process.stdout.readline())
        process.stdin.write('{"rate": 0}\n{"ask": 7}\n')
        process.stdin.close()
        answer = json.loads(process.stdout.readline())
    inlet.settimeout(0.1)
    try:
        while True:
            taken.append(inlet.recv(2048))
    except TimeoutError:
        pass
    assert answer["asked"] == 7
    assert answer["sent"] == len(taken)
    assert {len(report) for report in taken} == {144}
