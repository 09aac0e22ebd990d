"""Clocks estimated from packets: offsets, drifts, jumps, rings, one-way links; every bound of an error holds."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.clocks.cables import Cables
from collectors.clocks.cables import _half as halved
from collectors.clocks.cables import _sum as added
from collectors.clocks.estimator import ClockEstimator
from collectors.clocks.network import solve
from collectors.clocks.values import NO_GROUP, Edges, FlightColumns, StampDifference
from collectors.settings import ClockSettings
from dataplane.topology.values import LinkKey
from tests.collectors.clocks import reference_network as plain
from tests.collectors.clocks.reference_network import NodeReading, Offset
from tests.collectors.clocks.world import DELAY_NS, MS, SECOND, WallClock, World, columns, ring


def one_cable() -> Cables:
    """Return the ring's first cable."""
    return Cables(np.array([0]), np.array([1]), np.array([DELAY_NS]), ClockSettings())


def offsets(cables: Cables, now_ns: int) -> list[Offset]:
    readings = cables.offsets(now_ns)
    columns = (readings.offset_ns, readings.drift_ppb, readings.uncertainty_ns)
    return [Offset(now_ns, *row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def solved(edges: dict[tuple[int, int], Offset], nodes: int = 8) -> dict[int, NodeReading]:
    """Return the readings of nodes that are tied to others."""
    ends = np.array(list(edges), np.intp).reshape(-1, 2)
    rows = [(offset.offset_ns, offset.drift_ppb, offset.uncertainty_ns) for offset in edges.values()]
    offset_ns = np.array([row[0] for row in rows], np.int64)
    drift, doubt = np.array([row[1:] for row in rows], np.float64).reshape(-1, 2).T
    solution = solve(Edges(ends[:, 0], ends[:, 1], offset_ns, drift, doubt), nodes)
    columns = (solution.group, solution.offset_ns, solution.drift_ppb, solution.uncertainty_ns)
    read = enumerate(zip(*(column.tolist() for column in columns), strict=True))
    return {node: NodeReading(*row) for node, row in read if row[0] != NO_GROUP}


BOTH_WAYS = [("s1", "s2"), ("s2", "s1"), ("s2", "s3"), ("s3", "s2"), ("s3", "s1"), ("s1", "s3")]
APART = {"s1": WallClock(), "s2": WallClock(10**18), "s3": WallClock(-5 * 10**12)}


def run(world: World, links: list[tuple[str, str]], until_ns: int, start_ns: int = 0) -> ClockEstimator:
    """Feed ten packets a link every 100 ms."""
    estimator = ClockEstimator(ring())
    go_on(estimator, world, links, until_ns, start_ns)
    return estimator


def go_on(
    estimator: ClockEstimator, world: World, links: list[tuple[str, str]], until_ns: int, start_ns: int = 0
) -> None:
    for at_ns in range(start_ns, until_ns, 100 * MS):
        seen = [world.fastest(*link, at_ns) for link in links]
        estimator.update(at_ns + 100 * MS, columns(seen))


def error_ns(estimator: ClockEstimator, world: World, src: str, dst: str, at_ns: int) -> int:
    """Return how wrong the corrected flight of a packet without any waiting is."""
    packet = world.flight(src, dst, at_ns)
    correction = estimator.corrections[LinkKey(src, dst)]
    true_flight = packet.received_ns - at_ns
    return correction.corrected(packet.flight_ns, packet.tail_stamp_ns) - true_flight


def test_offsets_of_any_size_are_exact_without_queueing() -> None:
    world = World(APART)
    estimator = run(world, BOTH_WAYS, SECOND)
    for link in BOTH_WAYS:
        assert abs(error_ns(estimator, world, *link, SECOND)) <= 2
        assert estimator.uncertainty_ns(LinkKey(*link)) == pytest.approx(1000, abs=110)
    states = estimator.states()
    assert {node: state.group for node, state in states.items()} == {1: 1, 2: 1, 3: 1}
    assert [states[node].offset_ns for node in (1, 2, 3)] == pytest.approx([0, 10**18, -5 * 10**12], abs=2)


def test_drifts_are_followed_between_updates() -> None:
    world = World({"s1": WallClock(), "s2": WallClock(123, 50_000), "s3": WallClock(9, -80_000)})
    estimator = run(world, BOTH_WAYS, 10 * SECOND)
    states = estimator.states()
    assert (states[2].drift_ppb, states[3].drift_ppb) == pytest.approx((50_000, -80_000), abs=200)
    for at_ms in (0, 50, 99):
        # 50 ppm are 5 us in 100 ms.
        assert abs(error_ns(estimator, world, "s1", "s2", 10 * SECOND + at_ms * MS)) < 500


def test_varying_queues_do_not_affect_the_fastest_packets() -> None:
    jitter = {("s1", "s2"): 2 * MS, ("s2", "s1"): 300_000}
    world = World({"s1": WallClock(), "s2": WallClock(777, 20_000), "s3": WallClock()}, jitter)
    estimator = run(world, BOTH_WAYS[:2], 20 * SECOND)
    uncertainty = estimator.uncertainty_ns(LinkKey("s1", "s2"))
    assert uncertainty is not None
    assert uncertainty < 200_000
    assert abs(error_ns(estimator, world, "s1", "s2", 20 * SECOND)) < uncertainty


def test_ring_reduces_the_error_of_an_asymmetric_cable() -> None:
    def error(links: list[tuple[str, str]]) -> int:
        world = World(APART, {("s1", "s2"): 0})
        estimator = ClockEstimator(ring())
        for at_ns in range(0, SECOND, 100 * MS):
            slow = {("s1", "s2"): 90_000}
            seen = [world.flight(*link, at_ns, slow.get(link, 0)) for link in links]
            estimator.update(at_ns + 100 * MS, columns(seen))
        return abs(error_ns(estimator, world, "s1", "s2", SECOND))

    assert error(BOTH_WAYS[:2]) == pytest.approx(45_000, abs=10)
    assert error(BOTH_WAYS) < 500


def test_one_way_link_is_corrected_by_the_way_around() -> None:
    world = World(APART)
    estimator = run(world, [*BOTH_WAYS[2:], ("s1", "s2")], SECOND)
    assert abs(error_ns(estimator, world, "s1", "s2", SECOND)) <= 2
    assert estimator.uncertainty_ns(LinkKey("s1", "s2")) == pytest.approx(2000, abs=220)
    assert estimator.uncertainty_ns(LinkKey("s2", "s1")) is None


def test_without_a_way_back_nothing_is_corrected() -> None:
    estimator = run(World(APART), [("s1", "s2"), ("s2", "s3")], SECOND)
    assert not estimator.corrections
    assert not estimator.states()


def test_packets_too_far_apart_make_no_observation() -> None:
    world = World(APART)
    estimator = ClockEstimator(ring())
    estimator.update(0, columns([world.flight("s1", "s2", 0)]))
    estimator.update(2 * SECOND, columns([world.flight("s2", "s1", 2 * SECOND)]))
    assert estimator.states() == {}
    estimator.update(2 * SECOND + 500 * MS, columns([world.flight("s1", "s2", 2 * SECOND + 500 * MS)]))
    assert set(estimator.states()) == {1, 2}


def test_restarted_clock_is_accepted_after_two_observations() -> None:
    world = World(APART)
    estimator = run(world, BOTH_WAYS, 5 * SECOND)
    world.clocks = APART | {"s2": WallClock(-5 * SECOND)}
    go_on(estimator, world, BOTH_WAYS, 5 * SECOND + 200 * MS, 5 * SECOND)
    assert abs(error_ns(estimator, world, "s1", "s2", 6 * SECOND)) <= 2
    assert abs(error_ns(estimator, world, "s3", "s1", 6 * SECOND)) <= 2


def test_one_odd_observation_changes_nothing() -> None:
    world = World(APART)
    estimator = run(world, BOTH_WAYS, 5 * SECOND)
    odd = World(APART | {"s2": WallClock(10**18 + 50 * MS)})
    go_on(estimator, odd, BOTH_WAYS, 5 * SECOND + 100 * MS, 5 * SECOND)
    assert abs(error_ns(estimator, world, "s1", "s2", 6 * SECOND)) <= 2


def test_what_no_clocks_explain_is_counted_and_left_out() -> None:
    world = World(APART)
    estimator = ClockEstimator(ring())
    there, back = world.flight("s1", "s2", 0, -2 * DELAY_NS), world.flight("s2", "s1", 0, -2 * DELAY_NS)
    estimator.update(0, columns([there, back]))
    assert (estimator.implausible, estimator.states()) == (1, {})


def test_uncertainty_grows_in_silence_until_the_clock_is_dropped() -> None:
    estimator = run(World(APART), BOTH_WAYS[:2], SECOND)
    link = LinkKey("s1", "s2")
    seen = []
    for at_s in (1, 10, 50, 62):
        estimator.update(at_s * SECOND, columns([]))
        seen.append(estimator.uncertainty_ns(link))
    assert seen[:3] == pytest.approx([1000, 10_000, 50_000], rel=0.15)
    assert seen[3] is None


def test_a_correction_that_may_be_too_wrong_is_not_given() -> None:
    world = World(APART)
    estimator = ClockEstimator(ring(), ClockSettings(largest_uncertainty_ns=100_000))
    estimator.update(0, columns([world.flight("s1", "s2", 0, 300_000), world.flight("s2", "s1", 0)]))
    assert estimator.corrections == {}
    assert estimator.states()[2].uncertainty_ns == pytest.approx(151_000, abs=100)


def test_updates_are_less_frequent_in_large_fabrics() -> None:
    estimator = ClockEstimator(ring(), ClockSettings(interval_ns=2 * MS))
    assert estimator.is_due(0)
    estimator.update(50, columns([]))
    assert [estimator.is_due(50 + at) for at in (2 * MS - 1, 2 * MS)] == [False, True]
    quick = ClockEstimator(ring(), ClockSettings(interval_ns=1))
    quick.update(0, columns([]))
    # Three cables, 50 us each.
    assert [quick.is_due(at) for at in (149_999, 150_000)] == [False, True]


@settings(deadline=None, max_examples=30)
@given(
    offset=st.integers(-(10**15), 10**15),
    drift=st.integers(-100_000, 100_000),
    jitters=st.tuples(st.integers(0, 2 * MS), st.integers(0, 2 * MS)),
    seed=st.integers(0, 1000),
)
def test_the_bound_of_the_error_holds_whatever_waits(
    offset: int, drift: int, jitters: tuple[int, int], seed: int
) -> None:
    clocks = {"s1": WallClock(), "s2": WallClock(offset, drift)}
    world = World(clocks, {("s1", "s2"): jitters[0], ("s2", "s1"): jitters[1]}, random.Random(seed))
    cables = one_cable()
    for at_ns in range(0, 10 * SECOND, 100 * MS):
        cables.observe(columns([world.fastest("s1", "s2", at_ns), world.fastest("s2", "s1", at_ns)]))
    (reading,) = offsets(cables, 10 * SECOND)
    assert abs(reading.offset_ns - world.offset_ns("s1", "s2", 10 * SECOND)) <= reading.uncertainty_ns + 1000


@settings(deadline=None, max_examples=50)
@given(st.data())
def test_readings_are_the_least_squares_fit_of_all_cables(data: st.DataObject) -> None:
    nodes = data.draw(st.integers(2, 7))
    chain = [(node, node + 1) for node in range(nodes - 1)]
    more = data.draw(st.sets(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=8))
    edges = {*chain, *((a, b) for a, b in more if a < b)}
    offsets_by_cable = {
        edge: Offset(
            0,
            data.draw(st.integers(-(10**6), 10**6)),
            data.draw(st.floats(-1e5, 1e5)),
            data.draw(st.floats(1e3, 1e5)),
        )
        for edge in sorted(edges)
    }
    weights = np.array([1 / offset.uncertainty_ns for offset in offsets_by_cable.values()])
    rows = np.zeros((len(offsets_by_cable), nodes))
    for row, (a, b) in zip(rows, offsets_by_cable, strict=True):
        row[a], row[b] = -1, 1
    told = np.array([(offset.offset_ns, offset.drift_ppb) for offset in offsets_by_cable.values()])
    expected = np.linalg.lstsq(weights[:, None] * rows[:, 1:], weights[:, None] * told, rcond=None)[0]
    readings = solved(offsets_by_cable)
    for node in range(1, nodes):
        estimate = readings[node].offset_ns, readings[node].drift_ppb
        assert estimate == pytest.approx(tuple(expected[node - 1]), rel=1e-6, abs=2)
    for node, reading in plain.solve(offsets_by_cable).items():
        mine = readings[node]
        assert mine.group == reading.group
        assert mine.offset_ns == pytest.approx(reading.offset_ns, abs=1)
        assert mine.drift_ppb == pytest.approx(reading.drift_ppb, rel=1e-6, abs=1e-3)
        assert mine.uncertainty_ns == pytest.approx(reading.uncertainty_ns, rel=1e-6, abs=1e-3)


def test_unconnected_groups_are_solved_separately() -> None:
    cable = Offset(0, 10**18, -50.0, 1000.0)
    readings = solved({(1, 5): cable, (2, 4): cable, (4, 6): cable}, nodes=8)
    assert {node: reading.group for node, reading in readings.items()} == {1: 1, 5: 1, 2: 2, 4: 2, 6: 2}
    assert readings[6] == NodeReading(2, 2 * 10**18, -100.0, 2000.0)
    assert readings[5] == NodeReading(1, 10**18, -50.0, 1000.0)


def test_precise_group_does_not_spoil_an_imprecise_one() -> None:
    sure = {edge: Offset(0, offset, 0.0, 1.0) for edge, offset in (((0, 1), 0), ((1, 2), 0), ((0, 2), 9 * 10**6))}
    unsure = {edge: Offset(0, offset, 0.0, 1e6) for edge, offset in (((3, 4), 0), ((4, 5), 0), ((3, 5), 30))}
    readings = solved(sure | unsure)
    assert [readings[node].offset_ns for node in (1, 2, 4, 5)] == [3 * 10**6, 6 * 10**6, 10, 20]


def test_no_cables_no_clocks() -> None:
    assert solved({}, nodes=3) == {}


flights_ns = st.integers(-200_000, 200_000) | st.sampled_from([0, 10**9, 10**12, -(10**12)])
intervals = st.lists(
    st.tuples(st.sampled_from([100 * MS, 100 * MS, 100 * MS, 400 * MS, 61 * SECOND]), st.none() | flights_ns)
    | st.tuples(st.just(100 * MS), st.just(10_000)),
    max_size=30,
)


@given(
    intervals, st.lists(st.none() | st.integers(0, 3_000_000), min_size=30, max_size=30), st.sampled_from([0, 50_000])
)
def test_cables_side_by_side_are_as_one_by_one(
    there: list[tuple[int, int | None]], back: list[int | None], delay_ns: int
) -> None:
    """The first cable has the drawn values, the second the same both ways, the third none."""
    settings = ClockSettings()
    places = np.array([0, 2, 4])
    cables = Cables(places, places + 1, np.array([delay_ns, DELAY_NS, DELAY_NS]), settings)
    alone = [plain.Cable(delay_ns, settings), plain.Cable(DELAY_NS, settings), plain.Cable(DELAY_NS, settings)]
    # math.exp and numpy.exp differ in the last digit, which large numbers make some nanoseconds.
    digits = 1e-12 * max((abs(flight_ns or 0) for _, flight_ns in there), default=0)
    now_ns = 0
    for (passed_ns, flight_ns), other_ns in zip(there, back, strict=False):
        now_ns += passed_ns
        seen = FlightColumns.none(6)
        shown: list[tuple[int, StampDifference | None]] = [
            (0, None if flight_ns is None else StampDifference(LinkKey("a", "b"), 0, flight_ns, now_ns, 1)),
            (1, None if other_ns is None else StampDifference(LinkKey("b", "a"), 0, other_ns, now_ns - 7 * MS, 1)),
            (2, StampDifference(LinkKey("c", "d"), 0, 60_000 + now_ns // 30_000, now_ns, 1)),
            (3, StampDifference(LinkKey("d", "c"), 0, 70_000 - now_ns // 30_000, now_ns, 1)),
        ]
        for link, flight in shown:
            if flight is not None:
                seen.flight_ns[link], seen.received_ns[link], seen.samples[link] = (
                    flight.flight_ns,
                    flight.received_ns,
                    1,
                )
        cables.observe(seen)
        for number in (0, 1):
            both = shown[2 * number][1], shown[2 * number + 1][1]
            if both != (None, None):
                alone[number].observe(*both)
        told = cables.offsets(now_ns)
        expected = {
            number: offset for number, cable in enumerate(alone) if (offset := cable.offset(now_ns)) is not None
        }
        assert told.places.tolist() == list(expected)
        for row, offset in enumerate(expected.values()):
            assert int(told.offset_ns[row]) == pytest.approx(offset.offset_ns, abs=1 + digits, rel=0)
            assert told.drift_ppb[row] == pytest.approx(offset.drift_ppb, rel=1e-6, abs=1e-3 + 10 * digits)
            assert told.uncertainty_ns[row] == pytest.approx(offset.uncertainty_ns, rel=1e-6, abs=1e-3 + digits)
    assert cables.implausible == sum(cable.implausible for cable in alone)


words = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.tuples(words, words), max_size=12))
@example([(0, 9_223_166_159_863_634_433), (4_611_788_956_922_956_312, -4_611_788_956_922_958_312)])
def test_any_stamps_are_survived(flights: list[tuple[int, int]]) -> None:
    estimator = ClockEstimator(ring())
    for number, both in enumerate(flights):
        seen = (
            StampDifference(LinkKey(*ends), 2**63 - 1, flight_ns, number * 100 * MS, 1)
            for ends, flight_ns in zip((("s1", "s2"), ("s2", "s1")), both, strict=True)
        )
        estimator.update(number * 100 * MS, columns(seen))
        assert all(bound <= 10 * MS for key in estimator.corrections if (bound := estimator.uncertainty_ns(key)))


@given(words, words)
def test_half_a_difference_is_exact_however_large(one: int, other: int) -> None:
    half, odd = halved(np.array([one]), np.array([other]))
    assert 2 * int(half[0]) + int(odd[0]) == one - other
    assert added(np.array([one]), np.array([other]))[0] == pytest.approx(one + other, rel=1e-15)
