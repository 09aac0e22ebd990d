"""How regularly a flow's measured packets come, and what that makes of its rate's uncertainty."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from ipaddress import IPv4Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.values import FlowKey, HopRecord, PathState, RecordKind
from controller.paths.deciding.decide import Assignment
from controller.paths.measured_rate import MeasuredRate
from controller.paths.regularity import Gaps, Regularity

MS = 1_000_000
FLOW = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 1, 2)


def record(stamp_ns: int | None, *, hop: int = 0, port: int = 1, kind: RecordKind = RecordKind.STACK) -> HopRecord:
    flow = replace(FLOW, src_port=port)
    return HopRecord(0, flow, 1, 1, hop, 3, 1, None, None, None, None, None, stamp_ns, None, None, kind=kind)


def heard(gaps_ms: Iterable[float], *, most: int = 10) -> Regularity:
    regularity, stamp_ns = Regularity(most), 0
    regularity.observe([record(0)])
    for gap in gaps_ms:
        stamp_ns += round(gap * MS)
        regularity.observe([record(stamp_ns)])
    return regularity


def test_of_a_flow_that_nobody_heard_nothing_but_chance_is_believed() -> None:
    assert Regularity(10).gaps(FLOW).variation == 1.0
    assert heard([10]).gaps(FLOW).variation == 1.0


def test_a_clock_behind_a_stream_shows_after_a_few_packets() -> None:
    assert heard([24, 25, 23, 24, 24]).gaps(FLOW).variation == pytest.approx(1 / 5, abs=0.01)
    assert heard([24] * 50).gaps(FLOW).variation < 0.05


def test_packets_that_come_by_chance_are_not_called_regular() -> None:
    chance = random.Random(1)
    shares = [heard(chance.expovariate(1) for _ in range(6)).gaps(replace(FLOW)).variation for _ in range(300)]
    assert sum(shares) / len(shares) > 0.7
    assert min(shares) > 1 / 6


def test_after_a_pause_or_a_clock_that_was_set_all_is_learned_anew() -> None:
    assert heard([10] * 8 + [500]).gaps(FLOW).variation == 1.0
    assert heard([10] * 8 + [-5_000]).gaps(FLOW).variation == 1.0


def test_packets_that_were_overtaken_count_for_nothing() -> None:
    assert heard([10] * 8 + [-5, 15]).gaps(FLOW).variation == pytest.approx(
        heard([10] * 9).gaps(FLOW).variation, abs=0.01
    )


def test_other_hops_and_reports_that_tell_no_place_are_not_heard() -> None:
    regularity = heard([10] * 5)
    before = regularity.gaps(FLOW).variation
    regularity.observe([record(51 * MS, hop=1), record(52 * MS, kind=RecordKind.XD), record(None)])
    assert regularity.gaps(FLOW).variation == before


def test_flows_are_bounded() -> None:
    regularity = heard([10] * 8, most=3)
    regularity.observe([record(number * MS, port=port) for port in range(10, 13) for number in range(8)])
    assert regularity.gaps(FLOW).variation == 1.0
    assert regularity.gaps(replace(FLOW, src_port=12)).variation < 1.0


@given(st.lists(st.integers(-(10**12), 10**12), max_size=40))
def test_any_stamps_leave_a_share(steps: list[int]) -> None:
    regularity, stamp_ns = Regularity(2), 0
    for step in steps:
        stamp_ns += step
        regularity.observe([record(stamp_ns)])
        assert 0.0 <= regularity.gaps(FLOW).variation <= 1.0


def path(rate_bps: int | None, nbytes: int, *, young: bool = False, age_ns: int = 0) -> PathState:
    return PathState(FLOW, ("a", "b"), 0, 0, age_ns, rate_bps, measured_bytes=nbytes, is_young=young)


def test_rates_add_up_with_what_is_uncertain_of_them() -> None:
    old, young = (
        MeasuredRate.of(path(400_000, 16_000)),
        MeasuredRate.of(path(1_000_000, 4_000, young=True), Gaps(1e7, 0.25)),
    )
    assert old is not None
    assert young is not None
    flow = (old + young).given_to(Assignment(("a", "b")))
    assert (flow.rate_bps, flow.measured_bytes, flow.past_bps) == (1_400_000, 20_000, 250_000)
    assert flow.uncertain_bps == pytest.approx((100_000**2 + 250_000**2) ** 0.5, abs=1)


def test_a_flow_without_a_rate_has_none() -> None:
    assert MeasuredRate.of(path(None, 0)) is None


def test_a_flow_that_begins_or_grows_is_news_once() -> None:
    regularity, news = Regularity(10), list[float]()
    stamps = [10 * number for number in range(8)] + [70 + 2 * number for number in range(1, 30)]
    for stamp_ms in stamps:
        news += regularity.observe([record(stamp_ms * MS)]).values()
    assert news[0] == pytest.approx(100)
    assert 250 < sum(news) <= 500
    assert len(news) < 10
    regularity.decided()
    assert regularity.observe([record(stamps[-1] * MS + 2 * MS)]) == {}


def test_what_a_round_knew_is_no_news() -> None:
    regularity = heard([10] * 3)
    regularity.decided()
    assert regularity.observe([record(40 * MS)]) == {FLOW: pytest.approx(100)}
    regularity.decided()
    assert regularity.observe([record(50 * MS), record(60 * MS)]) == {}


@pytest.mark.parametrize(("age_ms", "is_over"), [(150, False), (250, True)])
def test_a_flow_that_has_fallen_silent_is_not_in_sums(age_ms: int, is_over: bool) -> None:
    rate = MeasuredRate.of(path(400_000, 16_000, age_ns=age_ms * MS), Gaps(25.0 * MS, 0.5))
    assert rate is not None
    assert rate.rate_bps == 400_000
    assert rate.past_bps == (400_000 if is_over else 0)
    assert (rate.variance == 0.0) is is_over


def test_reports_that_are_late_together_silence_no_flow() -> None:
    rate = MeasuredRate.of(path(40_000_000, 16_000, age_ns=90 * MS), Gaps(0.2 * MS, 0.5))
    assert rate is not None
    assert rate.past_bps == 0
