"""Sums over two levels: switches in a row, with loss; and marks for workers that fill a queue."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from scapy.compat import raw
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from dataplane.allreduce.reference.aggregator import Job
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.switch import PipelineFactory, PortSettings
from dataplane.wire import aggregation
from dataplane.wire.aggregation import UDP_PORT, Aggregation, Flags, Kind
from tests.p4.aggregating import NONCE, PARENT_PORT, Hosted, fabric_items, from_child, port_of, seen, udp_port_of
from tests.p4.builtin_target import BuiltinTarget
from tests.p4.drop_cases import with_ip
from tests.p4.entries import (
    COLLECTOR_PORT,
    DOWN_PORT,
    HOST_PORT,
    NEXT_HOP_MAC,
    REPORT_TARGET,
    SWITCH_MAC,
    UP_PORT,
    CloneTo,
    DefaultAction,
    Entry,
    MulticastTo,
    mac,
    watch_drops,
)
from tests.p4.frames import Shape, build
from tests.p4.targets import AGGREGATION
from tests.p4.telemetry import decode_report

PIPELINES: dict[str, PipelineFactory | None] = {"interpreter": None, "compiled": compiled_pipeline}
ROOT, LEAVES = IPv4Address("10.200.0.2"), (IPv4Address("10.200.0.1"), IPv4Address("10.201.0.1"))
SERVER_ADDRESS = IPv4Address("10.0.9.1")
JOB = Hosted(1, Job(epoch=1, children=0b111, cells=8, leaf=True, nonce=NONCE), children=3)
WORKERS = [(leaf, child) for leaf in range(2) for child in range(JOB.children)]
ITEMS = 12


@pytest.fixture(params=list(PIPELINES))
def factory(request: pytest.FixtureRequest) -> PipelineFactory | None:
    return PIPELINES[request.param]


class Tree:
    """Two leaves of three workers each, and a root; each link loses packets, and workers repeat theirs."""

    def __init__(self, factory: PipelineFactory | None, seed: int, loss: float) -> None:
        self._chance, self._loss = random.Random(seed), loss
        self.leaves = [BuiltinTarget(pipeline_factory=factory, program=AGGREGATION) for _ in LEAVES]
        self.root = BuiltinTarget(pipeline_factory=factory, program=AGGREGATION)
        for leaf in self.leaves:
            leaf.write([*fabric_items(), *JOB.items()])
        self.root.write(list(_root_items()))

    def send(self, leaf: int, child: int, packet: Aggregation) -> Iterator[tuple[tuple[int, int], Aggregation]]:
        """Send a worker's packet; yield receivers and packets until the network is idle."""
        port, data = from_child(child, packet)
        yield from self.at_leaf(leaf, port, data)

    def at_leaf(self, leaf: int, port: int, data: bytes) -> Iterator[tuple[tuple[int, int], Aggregation]]:
        if self._lost():
            return
        for out, frame in self.leaves[leaf].send(port, data, expect=0):
            if out != PARENT_PORT:
                if not self._lost():
                    child = Ether(frame)[UDP].dport - udp_port_of(0)
                    yield (leaf, child), aggregation.decode(frame, 42)
            elif not self._lost():
                # Both leaves have the address that `aggregating` gives a switch: the root knows them by another.
                up = with_ip(frame, src=int(LEAVES[leaf]))
                for root_out, answer in self.root.send(HOST_PORT + leaf, up, expect=0):
                    down = with_ip(answer, dst=int(LEAVES[0]))
                    yield from self.at_leaf(root_out - HOST_PORT, PARENT_PORT, down)

    def _lost(self) -> bool:
        return self._chance.random() < self._loss


def _root_items() -> Iterator[Entry | MulticastTo]:
    yield from (
        Entry("egress_ports", {"egress_port": HOST_PORT + leaf}, "set_egress_port", (SWITCH_MAC, 0, 0, 0))
        for leaf in range(2)
    )
    yield MulticastTo(1, ((HOST_PORT, 1), (HOST_PORT + 1, 2)))
    yield Entry("aggregation_jobs", {"job": 1}, "add_up", (NONCE, 1, 0b11, 0, 7, 1, 1))
    server = {"src_addr": int(SERVER_ADDRESS), "dst_addr": int(ROOT), "job": 1}
    yield Entry("aggregation_peers", server, "from_server", priority=1)
    for leaf, address in enumerate(LEAVES):
        key = {"src_addr": int(address), "dst_addr": int(ROOT), "job": 1}
        yield Entry("aggregation_peers", key, "from_child", (leaf,), 1)
        to = (mac(0x50 + leaf), int(address), UDP_PORT)
        yield Entry("aggregation_replicas", {"job": 1, "replica": leaf + 1}, "address", to)


@pytest.mark.parametrize("loss", [0.0, 0.2])
def test_all_workers_of_two_racks_get_the_sum(factory: PipelineFactory | None, loss: float) -> None:
    tree = Tree(factory, 1, loss)
    results: dict[tuple[int, int], dict[int, Aggregation]] = {worker: {} for worker in WORKERS}
    chance = random.Random(2)
    for _ in range(4_000):
        worker = chance.choice(WORKERS)
        item = next((number for number in range(ITEMS) if number not in results[worker]), None)
        if item is None:
            continue
        value = (1 + WORKERS.index(worker)) * (item + 1)
        values = value.to_bytes(4, "big") * 64
        packet = Aggregation(Kind.CONTRIBUTION, 1, item=item, epoch=1, values=values, nonce=NONCE, check=value << 57)
        for to, got in tree.send(*worker, packet):
            assert got.kind in (Kind.RESULT, Kind.AGAIN)
            before = results[to].setdefault(got.item, got)
            assert replace(before, kind=got.kind) == got, "an item has one result"
        if all(len(sums) == ITEMS for sums in results.values()):
            break
    for sums in results.values():
        assert {item: int.from_bytes(got.values[:4], "big") for item, got in sums.items()} == {
            item: 21 * (item + 1) for item in range(ITEMS)
        }
        assert {got.workers for got in sums.values()} == {6}


def test_one_packet_of_the_main_server_reaches_two_racks(factory: PipelineFactory | None) -> None:
    """A leaf that its parent's packet has not reached asks for it when a worker does."""
    tree = Tree(factory, 1, 0.0)
    values = b"\0\0\0\5" * 64
    given = Aggregation(Kind.DISTRIBUTE, 1, item=3, epoch=1, values=values, nonce=NONCE)
    port, data = frame_of_server(given)
    sent = tree.root.send(port, data, expect=2)
    first = [answer for out, answer in sent if out == HOST_PORT]
    got = dict(tree.at_leaf(0, PARENT_PORT, with_ip(first[0], dst=int(LEAVES[0]))))
    assert {(to, packet.values) for to, packet in got.items()} == {((0, child), values) for child in range(3)}
    pull = replace(given, kind=Kind.PULL, flags=Flags.DISTRIBUTED, values=bytes(256))
    late = list(tree.send(1, 2, pull))
    assert {(to, packet.kind, packet.values) for to, packet in late} == {
        ((1, child), Kind.RESULT, values) for child in range(3)
    }
    ((to, packet),) = tree.send(1, 0, pull)
    assert (to, packet.kind, packet.values) == ((1, 0), Kind.AGAIN, values)


def frame_of_server(packet: Aggregation) -> tuple[int, bytes]:
    """Return port and frame of the main server's packet to the root."""
    source = with_ip(from_child(0, packet)[1], src=int(SERVER_ADDRESS))
    return HOST_PORT, with_ip(source, dst=int(ROOT))


def slow_port(factory: PipelineFactory | None) -> BuiltinTarget:
    """Return a switch whose port down sends a frame of 1,000 bytes in a millisecond, and marks from 2 frames on."""
    ports = [PortSettings(HOST_PORT), PortSettings(UP_PORT), PortSettings(COLLECTOR_PORT, queue_frames=64)]
    down = PortSettings(DOWN_PORT, rate_bps=8_000_000, queue_frames=64)
    switch = BuiltinTarget([*ports, down], pipeline_factory=factory, program=AGGREGATION)
    switch.write([*fabric_items(), DefaultAction("congestion", "mark_from", (2,))])
    return switch


@pytest.mark.parametrize("version", [4, 6])
def test_those_behind_a_long_queue_are_marked(factory: PipelineFactory | None, version: int) -> None:
    switch = slow_port(factory)
    switch.write(_paths())
    able = build(Shape(version=version, payload=bytes(900)))
    if version == 4:
        unable = with_ip(able, tos=0)
    else:
        packet = Ether(able)
        packet[IPv6].tc = 0
        unable = raw(packet)
    sent = switch.send(UP_PORT, able, able, able, unable, able, expect=0)
    assert [_ecn(data) for port, data in sent if port == DOWN_PORT] == [1, 1, 3, 0, 3]


def _paths() -> list[Entry]:
    to = (DOWN_PORT, NEXT_HOP_MAC)
    return [
        Entry("ipv4_destination_paths", {"dst_addr": (0x0A000000, 16)}, "forward", to),
        Entry("ipv6_destination_paths", {"dst_addr": (0xFC << 120, 8)}, "forward", to),
    ]


def _ecn(data: bytes) -> int:
    packet = Ether(data)
    return int((packet[IP].tos if packet.haslayer(IP) else packet[IPv6].tc) & 3)


def test_reports_of_packets_are_not_marked(factory: PipelineFactory | None) -> None:
    switch = slow_port(factory)
    target = DefaultAction("report_target", "set_report_target", REPORT_TARGET)
    switch.write([target, CloneTo(DOWN_PORT), *watch_drops()])
    lost = build(Shape(payload=bytes(900)))
    sent = switch.send(UP_PORT, *[lost] * 4, expect=0)
    inner = [decode_report(data).inner for port, data in sent if port == DOWN_PORT]
    assert len(inner) == 4
    assert {data[:20] for data in inner} == {lost[14:34]}, "as it came, checksum and all"


def test_marked_contribution_or_rack_sum_marks_the_result(
    factory: PipelineFactory | None,
) -> None:
    tree = Tree(factory, 1, 0.0)
    packet = Aggregation(Kind.CONTRIBUTION, 1, item=0, epoch=1, values=bytes(256), nonce=NONCE)
    got = []
    for leaf, child in WORKERS:
        port, data = from_child(child, packet, ecn=3 if (leaf, child) == (0, 1) else 2)
        got += list(tree.at_leaf(leaf, port, data))
    assert sorted(to for to, _ in got) == WORKERS
    assert {header.flags for _, header in got} == {Flags.CONGESTED}


def test_results_wait_in_queues_that_mark_and_are_watched(factory: PipelineFactory | None) -> None:
    switch = slow_port(factory)
    job = Hosted(2, Job(epoch=1, children=0b111, cells=8), children=3)
    watch = Entry("queue_watch", {"egress_port": DOWN_PORT, "queue_id": 0}, "watch_queue", (2, 0, 1, 1, 100))
    switch.write([*job.items(), watch])
    for item in range(4):
        packet = Aggregation(Kind.CONTRIBUTION, 2, item=item, epoch=1, values=bytes(1024))
        for child in range(3):
            port, data = from_child(child, packet, ecn=2)
            switch.switch.receive(port, [data])
    sent = switch.run()
    # The first is sent at once; the last finds two others.
    assert [_ecn(data) for port, data in sent if port == port_of(2)] == [2, 2, 2, 3]
    assert switch.count("queue_reports") == 1
    assert {packet.flags for *_, packet in seen(sent)} == {Flags(0)}, "others have the same result"
