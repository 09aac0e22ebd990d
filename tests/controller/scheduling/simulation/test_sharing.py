"""Max-min fair sharing: the property itself, correct incremental state, and equal twins."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.common.errors import SchedulerError
from controller.scheduling.simulation.sharing import FairSharing, Finish, Hop, Sharing
from controller.scheduling.simulation.units import MOST_BPS, ONE
from tests.reference.sharing import PlainSharing

Make = Callable[[list[int]], FairSharing]
TWINS = [pytest.param(Sharing, id="kernel"), pytest.param(PlainSharing, id="plain")]
twins = pytest.mark.parametrize("make", TWINS)

LINKS = 6
rates = st.lists(st.one_of(st.integers(1, 50), st.integers(1, MOST_BPS)), min_size=LINKS, max_size=LINKS)
shares = st.one_of(st.just(ONE), st.integers(1, ONE))
flow_hops = st.dictionaries(st.integers(0, LINKS - 1), shares, min_size=1).map(
    lambda shares: [Hop(link, share) for link, share in shares.items()]
)


@twins
@given(capacity=rates, flows=st.lists(flow_hops, min_size=1, max_size=12))
def test_every_flow_has_a_bottleneck(make: Make, capacity: list[int], flows: list[list[Hop]]) -> None:
    """Max-min fair (Bertsekas and Gallager, 6.5.2): each flow has a full link on which no flow is faster."""
    sharing = make(list(capacity))
    numbers = [sharing.add(hops, 1000, 0) for hops in flows]
    assert sharing.settle(0) == len(flows)
    rate = {number: sharing.rate_bps(number) for number in numbers}
    crossing = {
        link: [
            (number, Fraction(share, ONE))
            for number, hops in zip(numbers, flows, strict=True)
            for at, share in hops
            if at == link
        ]
        for link in range(LINKS)
    }
    for link, users in crossing.items():
        assert sum(rate[number] * share for number, share in users) <= capacity[link]

    def is_bottleneck(link: int, flow: int) -> bool:
        users = crossing[link]
        free = capacity[link] - sum(rate[number] * share for number, share in users)
        most = max(rate[number] for number, _ in users)
        # Integer bit/s: a link is full if one more bit/s for each of its fastest flows does not fit.
        last = sum(share for number, share in users if rate[number] == rate[flow])
        return rate[flow] >= most - 1 and free < max(last, sum(share for n, share in users if rate[n] >= most - 1))

    for number, hops in zip(numbers, flows, strict=True):
        assert rate[number] == MOST_BPS or any(is_bottleneck(hop.link, number) for hop in hops)


@given(
    capacity=rates,
    changes=st.lists(
        st.tuples(
            st.sampled_from(["add", "remove", "capacity"]), flow_hops, st.integers(1, 1 << 40), st.integers(0, 99)
        ),
        max_size=30,
    ),
)
def test_the_twins_agree_over_any_history(capacity: list[int], changes: list[tuple[str, list[Hop], int, int]]) -> None:
    kernel, plain = Sharing(capacity), PlainSharing(list(capacity))
    flows: list[int] = []
    now_ns = 0
    for kind, hops, number, pick in changes:
        for sharing in (kernel, plain):
            if kind == "add":
                added = sharing.add(hops, number, now_ns)
            elif kind == "remove" and flows:
                sharing.remove(flows[pick % len(flows)])
            elif kind == "capacity":
                sharing.set_capacity(hops[0].link, number % MOST_BPS)
        if kind == "add":
            flows.append(added)
        elif kind == "remove" and flows:
            flows.pop(pick % len(flows))
        assert kernel.settle(now_ns) == plain.settle(now_ns)
        assert [kernel.rate_bps(flow) for flow in flows] == [plain.rate_bps(flow) for flow in flows]
        assert kernel.first_to_finish() == plain.first_to_finish()
        assert kernel.flows == plain.flows == len(flows)
        first = kernel.first_to_finish()
        now_ns += number if first is None else min(number % (1 << 20), max(first.time_ns - now_ns, 0))


@twins
def test_parking_lot(make: Make) -> None:
    """Two links, one flow over both, one over each: the narrower link is halved, the third flow gets the rest."""
    sharing = make([10, 30])
    both, first, second = (sharing.add(hops, 100, 0) for hops in ([Hop(0), Hop(1)], [Hop(0)], [Hop(1)]))
    sharing.settle(0)
    assert [sharing.rate_bps(flow) for flow in (both, first, second)] == [5, 5, 25]
    assert sharing.first_to_finish() == Finish(second, 4_000_000_000)


@twins
def test_a_flow_that_comes_in_the_middle(make: Make) -> None:
    sharing = make([1_000_000])
    first = sharing.add([Hop(0)], 1_000_000, 0)
    sharing.settle(0)
    assert sharing.first_to_finish() == Finish(first, 1_000_000_000)
    second = sharing.add([Hop(0)], 1_000_000, 500_000_000)
    sharing.settle(500_000_000)
    assert sharing.first_to_finish() == Finish(first, 1_500_000_000)
    sharing.remove(first)
    sharing.settle(1_500_000_000)
    assert sharing.first_to_finish() == Finish(second, 2_000_000_000)


@twins
def test_only_flows_with_shared_links_are_recomputed(make: Make) -> None:
    sharing = make([3, 3])
    flow = sharing.add([Hop(0)], 10, 0)
    sharing.add([Hop(1)], 10, 0)
    assert sharing.settle(0) == 2
    assert sharing.settle(1) == 0
    sharing.remove(flow)
    sharing.add([Hop(0)], 10, 2)
    assert sharing.settle(2) == 1


@twins
def test_no_capacity_no_end(make: Make) -> None:
    sharing = make([5])
    flow = sharing.add([Hop(0)], 10, 0)
    sharing.settle(0)
    sharing.set_capacity(0, 0)
    sharing.settle(1_000_000_000)
    assert (sharing.rate_bps(flow), sharing.first_to_finish()) == (0, None)
    sharing.set_capacity(0, 1)
    sharing.settle(2_000_000_000)
    assert sharing.first_to_finish() == Finish(flow, 7_000_000_000)


@twins
def test_weighted_shares(make: Make) -> None:
    """A flow with half of its traffic on a link may send twice as fast as one with all of it."""
    sharing = make([10, 100])
    split = sharing.add([Hop(0, ONE // 2), Hop(1)], 100, 0)
    sharing.settle(0)
    assert sharing.rate_bps(split) == 20


@twins
def test_large_transfers_overflow_nothing(make: Make) -> None:
    sharing = make([MOST_BPS])
    flow = sharing.add([Hop(0)], 1 << 52, 0)
    sharing.settle(0)
    assert sharing.first_to_finish() == Finish(flow, 1024 * 1_000_000_000)
    sharing.set_capacity(0, MOST_BPS // 3)
    sharing.settle(999_999_999_999)
    left = (1 << 52) - MOST_BPS * 999_999_999_999 // 1_000_000_000
    finish = sharing.first_to_finish()
    assert finish is not None
    assert finish.time_ns == 999_999_999_999 - (-left * 1_000_000_000 // (MOST_BPS // 3))


@twins
def test_more_flows_and_longer_ones_than_there_was_room_for(make: Make) -> None:
    sharing = make([1100] * 20)
    flows = [sharing.add([Hop(number % 20)], 1000, 0) for number in range(200)]
    long = sharing.add([Hop(link) for link in range(20)], 1000, 0)
    sharing.settle(0)
    assert {sharing.rate_bps(flow) for flow in (*flows, long)} == {100}


@twins
def test_invalid_links_and_flows_are_refused(make: Make) -> None:
    with pytest.raises(SchedulerError, match="between 0 and"):
        make([MOST_BPS + 1])
    sharing = make([5, 5])
    for hops in ([], [Hop(0), Hop(0)], [Hop(2)], [Hop(-1)]):
        with pytest.raises(SchedulerError, match="invalid flow"):
            sharing.add(hops, 10, 0)
    for hops, bits in (([Hop(0, 0)], 1), ([Hop(0, ONE + 1)], 1), ([Hop(0)], 0), ([Hop(0)], 1 << 53)):
        with pytest.raises(SchedulerError, match="invalid flow"):
            sharing.add(hops, bits, 0)
