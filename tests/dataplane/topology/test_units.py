from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataplane.topology.units import (
    MAX_BYTES_PER_S,
    MAX_DELAY_NS,
    MAX_OPS_PER_S,
    MAX_RATE_BPS,
    MAX_SIZE_BYTES,
    format_bytes_per_s,
    format_delay,
    format_ops_per_s,
    format_rate,
    format_share,
    format_size,
    parse_bytes_per_s,
    parse_data_bytes,
    parse_delay_ns,
    parse_ops_per_s,
    parse_rate_bps,
    parse_share_ppb,
    parse_size_bytes,
)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("1 bit/s", 1),
        ("9.92 Gbit/s", 9_920_000_000),
        ("10G", 10**10),
        ("40Gbps", 4 * 10**10),
        ("155Mbit/s", 155_000_000),
        ("100 Tbit/s", 10**14),
    ],
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
    ["", "10", "10 g", "10 GB", "10 gbit/s", "-1 bit/s", "0 bit/s", "1.5 bit/s", "101 Tbit/s", "1e9 bit/s",
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
    assert format_size(40 << 30) == "40 GiB"
    assert format_size((1 << 30) + 1024) == "1048577 KiB"
    assert format_bytes_per_s(12_800_000_000) == "12.8 GB/s"
    assert format_ops_per_s(19_500_000_000_000) == "19.5 Top/s"


def test_sizes_and_rates_of_devices_are_exact() -> None:
    assert parse_size_bytes("1.5 KiB") == 1536
    assert parse_bytes_per_s("12.8 GB/s") == 12_800_000_000
    assert parse_ops_per_s("312 Top/s") == 312 * 10**12


@pytest.mark.parametrize("text", ["0 B", "1.5 B", "40 GB", "40", "-1 GiB", "1048577 TiB", "1 gib"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"size|whole"):
        parse_size_bytes(text)


@pytest.mark.parametrize(
    ("text", "nbytes"), [("2.4 GB", 2_400_000_000), ("2.4GB", 2_400_000_000), ("2 GiB", 2 << 30), ("0 B", 0)]
)
def test_data_is_said_in_powers_of_ten_or_of_two(text: str, nbytes: int) -> None:
    assert parse_data_bytes(text) == nbytes


@pytest.mark.parametrize("text", ["2.4", "2.4 gb", "1.5 B", "-1 GB", "2000 PB", "2.4 GB/s"])
def test_what_is_no_amount_of_data_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"amount|whole|above"):
        parse_data_bytes(text)


@pytest.mark.parametrize("text", ["0 B/s", "1 GiB/s", "10 Gbit/s", "10001 TB/s", "1.5 B/s"])
def test_what_is_not_a_rate_in_bytes_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|whole"):
        parse_bytes_per_s(text)


@pytest.mark.parametrize("text", ["0 op/s", "1 Tflop/s", "100 TOPS", "1000001 Pop/s"])
def test_what_is_not_a_rate_of_operations_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"rate|whole"):
        parse_ops_per_s(text)


@settings(deadline=None)
@given(st.integers(1, MAX_SIZE_BYTES), st.integers(1, MAX_BYTES_PER_S), st.integers(1, MAX_OPS_PER_S))
def test_every_size_and_rate_of_devices_survives_its_text(size: int, rate: int, ops: int) -> None:
    # A size that is not whole in any larger unit is written in bytes: fifteen digits hold what a host has.
    size = min(size, 10**15 - 1)
    assert parse_size_bytes(format_size(size)) == size
    assert parse_bytes_per_s(format_bytes_per_s(rate)) == rate
    assert parse_ops_per_s(format_ops_per_s(ops)) == ops


@pytest.mark.parametrize(
    ("given", "share_ppb"),
    [
        ("0%", 0),
        ("0.1%", 10**6),
        ("1 %", 10**7),
        ("0.001", 10**6),
        (0.001, 10**6),
        (1e-06, 1000),
        (0, 0),
        ("100%", 10**9),
        (1.0, 10**9),
        ("0.0000001%", 1),
    ],
)
def test_shares_are_exact(given: str | float, share_ppb: int) -> None:
    assert parse_share_ppb(given) == share_ppb


@pytest.mark.parametrize(
    "given",
    [
        "",
        "%",
        "-1%",
        "1e-3%%",
        "101%",
        1.5,
        -0.1,
        "0.00000001%",
        "1/1000",
        "nan",
        float("nan"),
        float("inf"),
        "\u0661%",
    ],
)
def test_what_is_not_a_share_is_refused(given: str | float) -> None:
    with pytest.raises(ValueError, match=r"share|100%|whole"):
        parse_share_ppb(given)


@given(st.integers(0, 10**9))
def test_a_share_is_read_back(share_ppb: int) -> None:
    assert parse_share_ppb(format_share(share_ppb)) == share_ppb
