"""Admission to a full table of flows, in both cores: heavy flows are admitted and stay, under any flood."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.counters import Count, Counters
from collectors.decode.stitch import SeenPath
from collectors.native.accumulator import NativeStore
from collectors.settings import StateSettings
from collectors.state.admission import Credit, decayed, units_of
from collectors.values import FlowKey
from tests.collectors.cores import StoreFactory, plain_store
from tests.collectors.reports import build_topology

MS = 1_000_000
S = 1_000 * MS

both = pytest.mark.parametrize("make", [plain_store, NativeStore], ids=["reference", "native"])


def flow(number: int) -> FlowKey:
    return FlowKey(IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), 17, number & 0xFFFF, 1 + (number >> 16))


class Traffic:
    """Packets to a store, with the path that lists their flow."""

    def __init__(self, make: StoreFactory, max_flows: int) -> None:
        self.counters = Counters()
        self.store = make(build_topology(), StateSettings(max_flows=max_flows), self.counters)
        self.now_ns = 0
        self.sent = 0

    def send(self, numbers: Iterable[int], nbytes: int = 1000, gap_ns: int = MS) -> None:
        for number in numbers:
            self.now_ns += gap_ns
            self.sent += 1
            self.store.take_packet(flow(number), nbytes, self.now_ns)
            self.store.take_path(SeenPath(flow(number), ("s1",), (), None, self.now_ns))

    def kept(self) -> set[int]:
        """Return the flows in the table, by the numbers that they were sent with."""
        return {seen.flow.src_port for seen in self.store.flows(self.now_ns)}


@both
def test_cycle_longer_than_the_table_keeps_flows(make: StoreFactory) -> None:
    traffic = Traffic(make, max_flows=16)
    for _ in range(40):
        traffic.send(range(40))
    kept = traffic.counters[Count.FLOWS_FORGOTTEN]
    # A table that evicts the least recently used flow would have forgotten one for nearly each of 1,600 packets.
    assert kept < 250
    assert traffic.counters[Count.FLOWS_NOT_ADMITTED] > 700


@both
def test_heavy_newcomer_is_admitted_and_stays(make: StoreFactory) -> None:
    traffic, random = Traffic(make, max_flows=16), Random(3)
    for _ in range(30):
        traffic.send(random.sample(range(100, 140), 40))
    for _ in range(60):
        traffic.send([7, *random.sample(range(100, 140), 10), 7, 7])
    assert 7 in traffic.kept()


@both
def test_flood_of_single_packets_spares_heavy_flows(make: StoreFactory) -> None:
    traffic = Traffic(make, max_flows=16)
    heavy = range(8)
    for _ in range(30):
        traffic.send(heavy)
    for number in range(1000, 3000, 8):
        traffic.send(range(number, number + 8), nbytes=60)
        traffic.send(heavy)
    assert set(heavy) <= traffic.kept()
    assert traffic.counters[Count.FLOWS_NOT_ADMITTED] > 1000


@both
def test_silent_flows_make_room_at_once(make: StoreFactory) -> None:
    traffic = Traffic(make, max_flows=16)
    for _ in range(50):
        traffic.send(range(16))
    traffic.now_ns += 11 * S
    traffic.send(range(100, 116))
    assert set(range(100, 116)) <= traffic.kept()
    assert not traffic.counters[Count.FLOWS_NOT_ADMITTED]
    assert not traffic.counters[Count.FLOWS_FORGOTTEN]


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1500), st.sampled_from([MS, S, 6 * S, 21 * S])), max_size=80)
)
def test_both_cores_admit_the_same_flows(packets: list[tuple[int, int, int]]) -> None:
    sides = [Traffic(make, max_flows=5) for make in (plain_store, NativeStore)]
    for number, nbytes, gap_ns in packets:
        for side in sides:
            side.send([number], nbytes, gap_ns)
        assert sides[0].counters == sides[1].counters
    assert sides[0].kept() == sides[1].kept()


def test_large_table_keeps_most_of_its_flows() -> None:
    traffic = Traffic(NativeStore, max_flows=512)
    for _ in range(8):
        traffic.send(range(1250), gap_ns=200_000)
    before = traffic.kept()
    traffic.send(range(1250), gap_ns=200_000)
    # Newcomers displace one another in a few places; the rest of the table stays and so has rates.
    assert len(before & traffic.kept()) > 450


def test_weights_count_units_and_halve_by_epoch() -> None:
    assert [units_of(nbytes) for nbytes in (0, 1, 64, 65, 1538)] == [0, 1, 1, 2, 25]
    assert [decayed(40, 3, epoch) for epoch in (2, 3, 4, 5, 99)] == [40, 40, 20, 10, 0]


def test_credit_is_spent_on_admission() -> None:
    credit = Credit()
    assert [credit.admits(10, 25) for _ in range(4)] == [False, False, True, False]
