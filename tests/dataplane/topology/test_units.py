from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.topology.units import (
    MAX_DELAY_NS,
    MAX_RATE_BPS,
    format_delay,
    format_rate,
    parse_delay_ns,
    parse_rate_bps,
)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [("1 bit/s", 1), ("9.92 Gbit/s", 9_920_000_000), ("155Mbit/s", 155_000_000), ("100 Tbit/s", 10**14)],
)
def test_rates_are_exact(text: str, rate_bps: int) -> None:
    assert parse_rate_bps(text) == rate_bps


@pytest.mark.parametrize(
    ("text", "delay_ns"),
    [("0 ns", 0), ("5.7 ms", 5_700_000), ("10us", 10_000), ("0.000000001 s", 1), ("60 s", 6 * 10**10)],
)
def test_delays_are_exact(text: str, delay_ns: int) -> None:
    assert parse_delay_ns(text) == delay_ns


@pytest.mark.parametrize(
    "text",
    ["", "10", "10 G", "10 Gbps", "10 gbit/s", "-1 bit/s", "0 bit/s", "1.5 bit/s", "101 Tbit/s", "1e9 bit/s",
     " 1 bit/s", "1  bit/s", "\u0661 bit/s", "1 bit/s\n", "1. Gbit/s", "5 ms"],
)  # fmt: skip
def test_what_is_not_a_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|whole"):
        parse_rate_bps(text)


@pytest.mark.parametrize("text", ["5", "5 m", "-5 ms", "0.5 ns", "61 s", "5 µs", "5 Gbit/s", "nan s"])
def test_what_is_not_a_delay_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"delay|whole"):
        parse_delay_ns(text)


@settings(deadline=None)
@given(st.integers(1, MAX_RATE_BPS))
def test_every_rate_survives_its_text(rate_bps: int) -> None:
    assert parse_rate_bps(format_rate(rate_bps)) == rate_bps


@settings(deadline=None)
@given(st.integers(0, MAX_DELAY_NS))
def test_every_delay_survives_its_text(delay_ns: int) -> None:
    assert parse_delay_ns(format_delay(delay_ns)) == delay_ns


def test_text_uses_the_largest_unit() -> None:
    assert format_rate(9_920_000_000) == "9.92 Gbit/s"
    assert format_rate(999) == "999 bit/s"
    assert format_delay(0) == "0 ns"
    assert format_delay(5_158_000) == "5.158 ms"
