"""The gaps between a flow's measured packets, and growth between rounds, in both stores."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.counters import Counters
from collectors.decode.stitch import SeenPath
from collectors.native.accumulator import NativeStore
from collectors.settings import StateSettings
from collectors.state.accumulator import Store
from collectors.state.gaps import LONGEST_GAP_NS
from collectors.state.signals import MOST_GROWN, SHORTEST_ROUND_NS
from collectors.values import FlowKey
from tests.collectors.cores import StoreFactory, plain_store
from tests.collectors.reports import build_topology

MS = 1_000_000
FLOW = FlowKey(IPv4Address("192.0.2.1"), IPv4Address("192.0.2.2"), 17, 1, 2)
TOPOLOGY = build_topology()

both_stores = pytest.mark.parametrize("make_store", [plain_store, NativeStore], ids=["reference", "native"])


def store_of(make_store: StoreFactory, *flows: FlowKey) -> Store:
    """Return a store with flows whose gaps can be noted and read."""
    store = make_store(TOPOLOGY, StateSettings(), Counters())
    for flow in flows or (FLOW,):
        store.take_packet(flow, 100, 0)
        store.take_path(SeenPath(flow, ("s1",), (), None, 0))
    return store


def heard(make_store: StoreFactory, gaps_ms: Iterable[float]) -> Store:
    store, stamp_ns = store_of(make_store), 0
    store.take_stamp(FLOW, 0)
    for gap in gaps_ms:
        stamp_ns += round(gap * MS)
        store.take_stamp(FLOW, stamp_ns)
    return store


def variation(store: Store) -> float:
    [seen] = store.flows(0)
    return seen.gap_variation


def mean_ns(store: Store) -> int | None:
    [seen] = store.flows(0)
    return seen.gap_mean_ns


@both_stores
def test_gaps_of_an_unknown_flow_count_as_chance(make_store: StoreFactory) -> None:
    store = heard(make_store, [])
    assert (variation(store), mean_ns(store)) == (1.0, None)
    store = heard(make_store, [10])
    assert (variation(store), mean_ns(store)) == (1.0, 10 * MS)


@both_stores
def test_gaps_of_a_clocked_stream_show_after_a_few_packets(make_store: StoreFactory) -> None:
    assert variation(heard(make_store, [24, 25, 23, 24, 24])) == pytest.approx(1 / 5, abs=0.01)
    assert variation(heard(make_store, [24] * 50)) < 0.05


@both_stores
def test_gaps_of_packets_by_chance_are_not_regular(make_store: StoreFactory) -> None:
    chance = random.Random(1)
    shares = [variation(heard(make_store, (chance.expovariate(1) for _ in range(6)))) for _ in range(100)]
    assert sum(shares) / len(shares) > 0.7
    assert min(shares) > 1 / 6


@both_stores
def test_gaps_are_learned_anew_after_a_pause_or_a_clock_step(make_store: StoreFactory) -> None:
    for step in (500, -5_000, LONGEST_GAP_NS / MS, -LONGEST_GAP_NS / MS):
        store = heard(make_store, [40_000, *[10] * 8, step])
        assert (variation(store), mean_ns(store)) == (1.0, None)
        store = heard(make_store, [10] * 8 + [step, 20])
        assert mean_ns(store) == 20 * MS


@both_stores
def test_gaps_ignore_packets_that_were_overtaken(make_store: StoreFactory) -> None:
    overtaken, whole = heard(make_store, [10] * 8 + [-5, 15]), heard(make_store, [10] * 9)
    assert variation(overtaken) == pytest.approx(variation(whole), abs=0.01)


@both_stores
def test_gaps_of_a_flow_without_a_counted_packet_are_not_kept(make_store: StoreFactory) -> None:
    store = store_of(make_store)
    store.take_stamp(replace(FLOW, src_port=99), 5)
    assert len(store.flows(0)) == 1
    assert store.flow_count == 1


@both_stores
def test_growth_is_news_once(make_store: StoreFactory) -> None:
    store, news = store_of(make_store), list[float]()
    stamps = [10 * number for number in range(8)] + [70 + 2 * number for number in range(1, 30)]
    for stamp_ms in stamps:
        store.take_stamp(FLOW, stamp_ms * MS)
        news += store.take_signals().grown.values()
    assert news[0] == pytest.approx(100)
    assert 250 < sum(news) <= 500
    assert len(news) < 10
    store.begin_round(0)
    store.take_stamp(FLOW, stamps[-1] * MS + 2 * MS)
    assert store.take_signals().grown == {}


@both_stores
def test_growth_adds_up_until_it_is_taken(make_store: StoreFactory) -> None:
    store = heard(make_store, [10] * 8 + [2] * 29)
    [(flow, more_hz)] = store.take_signals().grown.items()
    assert flow == FLOW
    assert 250 < more_hz <= 500


@both_stores
def test_growth_after_a_fall_is_never_negative(make_store: StoreFactory) -> None:
    store, now_ms = store_of(make_store), 0
    for gap_ms, is_known in ((10, False), (2, True), (8, True), (40, True), (12, False)):
        for _ in range(40):
            now_ms += gap_ms
            store.take_stamp(FLOW, now_ms * MS)
        if gap_ms == 10:
            store.take_signals()
        if is_known:
            store.begin_round(now_ms * MS)
    assert store.take_signals().grown == {FLOW: 0.0}


@both_stores
def test_growth_that_a_round_knew_is_no_news(make_store: StoreFactory) -> None:
    store = heard(make_store, [10] * 3)
    store.begin_round(0)
    store.take_stamp(FLOW, 40 * MS)
    assert store.take_signals().grown == {FLOW: pytest.approx(100)}
    store.begin_round(SHORTEST_ROUND_NS)
    for stamp_ms in (50, 60):
        store.take_stamp(FLOW, stamp_ms * MS)
    assert store.take_signals().grown == {}


@both_stores
def test_rounds_that_follow_at_once_are_one(make_store: StoreFactory) -> None:
    """A second reader of snapshots does not hide growth from the first."""
    store = heard(make_store, [10] * 8)
    store.begin_round(0)
    store.take_signals()
    stamp_ns, now_ns = 80 * MS, 0
    for _ in range(20):
        stamp_ns, now_ns = stamp_ns + 7 * MS, now_ns + SHORTEST_ROUND_NS // 20
        store.begin_round(now_ns)
        store.take_stamp(FLOW, stamp_ns)
    assert list(store.take_signals().grown) == [FLOW]


@both_stores
def test_growth_is_listed_up_to_a_limit_and_counted_beyond(make_store: StoreFactory) -> None:
    flows = [replace(FLOW, src_port=port) for port in range(MOST_GROWN + 3)]
    store = store_of(make_store, *flows)
    for number in range(5):
        for flow in flows:
            store.take_stamp(flow, number * MS)
    taken = store.take_signals()
    assert (list(taken.grown), taken.unlisted) == (flows[:MOST_GROWN], 3)
    assert store.take_signals().unlisted == 0


@given(st.lists(st.tuples(st.integers(-(10**12), 10**12) | st.integers(-50, 400), st.booleans()), max_size=60))
def test_gaps_of_any_stamps_are_alike_in_both_stores(steps: Sequence[tuple[int, bool]]) -> None:
    stores, stamp_ns, now_ns = [store_of(make) for make in (plain_store, NativeStore)], 0, 0
    for step, begins in steps:
        stamp_ns, now_ns = max(stamp_ns + step, 0), now_ns + SHORTEST_ROUND_NS
        for store in stores:
            if begins:
                store.begin_round(now_ns)
            store.take_stamp(FLOW, stamp_ns)
        plain, native = ([(seen.gap_mean_ns, seen.gap_variation) for seen in store.flows(0)] for store in stores)
        assert plain == native
        assert 0.0 <= plain[0][1] <= 1.0
        assert stores[0].take_signals() == stores[1].take_signals()
