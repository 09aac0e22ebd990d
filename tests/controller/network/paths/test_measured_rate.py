"""A flow's sending rate measured by telemetry, and its uncertainty."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address

import pytest

from collectors.values import FlowKey, PathState
from controller.network.paths.deciding.decide import Assignment
from controller.network.paths.seen_flows import MeasuredRate

MS = 1_000_000
FLOW = FlowKey(IPv4Address("10.0.0.1"), IPv4Address("10.0.0.2"), 17, 1, 2)


def path(
    rate_bps: int | None,
    nbytes: int,
    *,
    young: bool = False,
    age_ns: int = 0,
    gap_ns: int | None = None,
    variation: float = 1.0,
) -> PathState:
    state = PathState(FLOW, ("a", "b"), 0, 0, age_ns, rate_bps, measured_bytes=nbytes, is_young=young)
    return replace(state, gap_mean_ns=gap_ns, gap_variation=variation)


def test_rates_add_up_with_their_uncertainties() -> None:
    old = MeasuredRate.of(path(400_000, 16_000))
    young = MeasuredRate.of(path(1_000_000, 4_000, young=True, gap_ns=10 * MS, variation=0.25))
    assert old is not None
    assert young is not None
    flow = (old + young).given_to(Assignment(("a", "b")))
    assert (flow.rate_bps, flow.measured_bytes, flow.past_bps) == (1_400_000, 20_000, 250_000)
    assert flow.uncertain_bps == pytest.approx((100_000**2 + 250_000**2) ** 0.5, abs=1)


def test_a_flow_without_a_rate_has_none() -> None:
    assert MeasuredRate.of(path(None, 0)) is None


@pytest.mark.parametrize(("age_ms", "is_over"), [(150, False), (250, True)])
def test_a_flow_that_has_fallen_silent_is_not_in_sums(age_ms: int, is_over: bool) -> None:
    rate = MeasuredRate.of(path(400_000, 16_000, age_ns=age_ms * MS, gap_ns=25 * MS, variation=0.5))
    assert rate is not None
    assert rate.rate_bps == 400_000
    assert rate.past_bps == (400_000 if is_over else 0)
    assert (rate.variance == 0.0) is is_over


def test_reports_that_are_late_together_silence_no_flow() -> None:
    rate = MeasuredRate.of(path(40_000_000, 16_000, age_ns=90 * MS, gap_ns=200_000, variation=0.5))
    assert rate is not None
    assert rate.past_bps == 0
