"""Stitching on any fabric and any path: order, loss, strangers, long ways, bounds of memory."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.counters import Count, Counters
from collectors.decode.samples import LinkSample
from collectors.decode.stitch import SeenPath
from collectors.reference.stitch import PlainStitcher
from collectors.settings import StateSettings
from collectors.values import FlowKey, HopRecord, RecordKind
from dataplane.topology.values import Endpoint, HostNode, Link, SwitchNode, Topology

MICRO = 1_000
CABLE_NS = 5 * MICRO
FLOW = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 1, 2)
SINGLE = [RecordKind.MX, RecordKind.XD, RecordKind.HOP_BY_HOP]


def mesh(size: int) -> Topology:
    """Return switches s0, s1, ... all linked with each other, sJ at port J + 1; h1 is at s0, h2 at the last."""
    names = [f"s{n}" for n in range(size)]
    cables = [
        Link(Endpoint(names[i], j + 1), Endpoint(names[j], i + 1), rate_bps=10**9, delay_ns=CABLE_NS, queue_frames=10)
        for i in range(size)
        for j in range(i + 1, size)
    ]
    for host, at in (("h1", names[0]), ("h2", names[-1])):
        ends = Endpoint(host, 0), Endpoint(at, size + 1 if host == "h1" else size + 2)
        cables.append(Link(*ends, rate_bps=10**9, delay_ns=CABLE_NS, queue_frames=10))
    hosts = (
        HostNode("h1", 0x020000000001, IPv4Address("10.0.0.1")),
        HostNode("h2", 0x020000000002, IPv4Address("10.0.0.2")),
    )
    return Topology(
        "mesh", tuple(SwitchNode(name, 100 + n) for n, name in enumerate(names)), hosts, tuple(cables), None, True
    )


class Bench(NamedTuple):
    """A stitcher and its counters."""

    stitcher: PlainStitcher
    counters: Counters

    def give(self, records: list[HopRecord]) -> tuple[list[LinkSample], list[SeenPath]]:
        samples: list[LinkSample] = []
        paths: list[SeenPath] = []
        for record in records:
            stitched = self.stitcher.stitch([record])
            samples += stitched.samples
            paths += stitched.paths
        return samples, paths


def bench(topology: Topology, chosen: StateSettings | None = None) -> Bench:
    counters = Counters()
    return Bench(PlainStitcher(topology, chosen or StateSettings(), counters), counters)


def hops_of(
    way: list[int], size: int, kind: RecordKind, *, packet_id: int = 7, start_ns: int = 0, received_ns: int = 0
) -> list[HopRecord]:
    """Return the records of a packet that takes `way`, 2 us at a switch and 5 us on a cable."""
    ports = [(size + 1, way[1] + 1)] if len(way) > 1 else [(size + 1, size + 2)]
    ports += [(before + 1, after + 1) for before, _, after in zip(way, way[1:], way[2:], strict=False)]
    if len(way) > 1:
        ports.append((way[-2] + 1, size + 2))
    records = []
    for index, (switch, (ingress, egress)) in enumerate(zip(way, ports, strict=True)):
        arrived_ns = start_ns + index * 7 * MICRO
        last = index == len(way) - 1
        records.append(
            HopRecord(
                received_ns=received_ns,
                flow=FLOW,
                reporter_id=100 + switch,
                sequence=index,
                hop_index=index if kind is RecordKind.HOP_BY_HOP else 0,
                hop_count=len(way) if kind is RecordKind.HOP_BY_HOP and last else None,
                node_id=100 + switch,
                ingress_port=ingress,
                egress_port=egress,
                hop_latency_ns=2 * MICRO,
                queue_id=0,
                queue_occupancy_frames=index,
                ingress_timestamp_ns=arrived_ns,
                egress_timestamp_ns=arrived_ns + 2 * MICRO,
                tx_bytes_per_window=None,
                packet_id=packet_id,
                kind=kind,
            )
        )
    return records


SIZE = 7
WAYS = st.lists(st.integers(1, SIZE - 2), unique=True, max_size=SIZE - 2).map(lambda middle: [0, *middle, SIZE - 1])


@settings(max_examples=60)
@given(way=WAYS, kind=st.sampled_from(SINGLE), data=st.data())
def test_single_hops_in_any_order_give_one_path_and_link_delays(
    way: list[int], kind: RecordKind, data: st.DataObject
) -> None:
    stitching = bench(mesh(SIZE))
    records = data.draw(st.permutations(hops_of(way, SIZE, kind)))
    samples, paths = stitching.give(records)
    assert [path.switches for path in paths] == [tuple(f"s{n}" for n in way)]
    assert paths[0].delay_ns == 7 * MICRO * len(way)
    delays = {sample.link: sample.delay_ns for sample in samples if sample.delay_ns is not None}
    assert delays == dict.fromkeys(paths[0].links[1:], 7 * MICRO)
    assert sum(sample.delay_ns is not None for sample in samples) == len(way)
    assert sum(sample.queue_occupancy_frames is not None for sample in samples) == len(way)
    assert stitching.counters.total() == 0


@settings(max_examples=60)
@given(way=WAYS, kind=st.sampled_from(SINGLE), data=st.data())
def test_partly_lost_packet_has_no_path_but_all_its_delays(
    way: list[int], kind: RecordKind, data: st.DataObject
) -> None:
    stitching = bench(mesh(SIZE), StateSettings(longest_wait_ns=1))
    records = hops_of(way, SIZE, kind)
    lost = data.draw(st.sets(st.sampled_from(range(len(way))), min_size=1))
    samples, paths = stitching.give([record for index, record in enumerate(records) if index not in lost])
    other, _ = stitching.give(hops_of([0, SIZE - 1], SIZE, kind, packet_id=8, received_ns=10, start_ns=10**6))
    assert paths == []
    own = [sample for sample in samples + other if (sample.node_time_ns or 0) < 10**6 and sample.delay_ns is not None]
    assert len(own) == len(way) - len(lost)
    assert stitching.counters[Count.INCOMPLETE_PACKETS] == (len(lost) < len(way))


@pytest.mark.parametrize("kind", SINGLE)
def test_a_way_of_sixty_hops_is_a_path_like_any_other(kind: RecordKind) -> None:
    size = 61
    _, paths = bench(mesh(size)).give(hops_of(list(range(size)), size, kind))
    assert len(paths[0].switches) == size


def test_successive_lookalike_packets_are_all_reported() -> None:
    stitching = bench(mesh(3))
    for start_ns in range(0, 10**6, 10**5):
        _, paths = stitching.give(hops_of([0, 1, 2], 3, RecordKind.MX, start_ns=start_ns))
        assert len(paths) == 1


def test_packet_replaced_by_a_lookalike_still_gives_its_delays() -> None:
    for kind in SINGLE:
        stitching = bench(mesh(3))
        samples, _ = stitching.give(hops_of([0, 1, 2], 3, kind)[:1])
        assert [sample.delay_ns for sample in samples] == [None]
        samples, _ = stitching.give(hops_of([0, 1, 2], 3, kind, start_ns=10**6)[:1])
        assert [sample.delay_ns for sample in samples] == [7 * MICRO, None]


def test_strangers_fill_no_memory() -> None:
    stitching = bench(mesh(3))
    hop = hops_of([0, 1, 2], 3, RecordKind.XD)[1]
    stitching.give([replace(hop, node_id=node_id) for node_id in range(1000, 1100)])
    assert stitching.counters[Count.UNKNOWN_NODE] == 100
    assert len(stitching.stitcher._postcards._flows) == len(stitching.stitcher._postcards._pending) == 0


@pytest.mark.parametrize("kind", SINGLE)
def test_waiting_packets_are_bounded_in_number(kind: RecordKind) -> None:
    stitching = bench(mesh(3), StateSettings(max_pending_packets=10, max_flows=5))
    for number in range(100):
        stitching.give(hops_of([0, 1, 2], 3, kind, packet_id=number)[:2])
    assert stitching.counters[Count.INCOMPLETE_PACKETS] == 90
    assert len(stitching.stitcher._pending) + len(stitching.stitcher._postcards._pending) == 10
    for first, second in pairwise(range(20)):
        flow = FlowKey(FLOW.src, FLOW.dst, 17, first, second)
        stitching.give([record_of(flow, kind)])
    assert len(stitching.stitcher._postcards._flows) <= 5


def record_of(flow: FlowKey, kind: RecordKind) -> HopRecord:
    return HopRecord(0, flow, 100, 0, 0, None, 100, 4, 2, 1, 0, 0, 0, 0, None, 1, kind)
