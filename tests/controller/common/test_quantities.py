"""Quantities, against the official client's own parser."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.utils.quantity import parse_quantity

from controller.common.quantities import milli, whole

UNITS = ("", "k", "M", "G", "T", "m", "u", "n", "Ki", "Mi", "Gi", "Ti")


@given(st.decimals(0, 10**9, places=3), st.sampled_from(UNITS))
def test_all_units_as_the_official_client_reads_them(number: Decimal, unit: str) -> None:
    text = f"{number}{unit}"
    expected = parse_quantity(text)
    # The client's decimals have 28 digits; ours are exact, up to what a column of nodes holds.
    assert abs(whole(text) - min(math.ceil(expected), 1 << 62)) <= expected * Decimal("1e-20")
    assert abs(milli(text) - min(math.ceil(expected * 1000), 1 << 62)) <= expected * Decimal("1e-17")


@pytest.mark.parametrize(
    ("text", "bytes_", "thousandths"),
    [
        ("100m", 1, 100),
        ("1.5", 2, 1500),
        ("0.0001", 1, 1),
        (".5Gi", 1 << 29, 500 << 30),
        ("5e3", 5000, 5_000_000),
        ("1E2", 100, 100_000),
        ("+2", 2, 2000),
        ("129e-1", 13, 12_900),
        ("1Ei", 1 << 60, 1 << 62),
        ("0", 0, 0),
    ],
)
def test_forms_of_the_specification(text: str, bytes_: int, thousandths: int) -> None:
    assert (whole(text), milli(text)) == (bytes_, thousandths)
    assert whole("1E") == 10**18


def test_numbers_of_json_will_do() -> None:
    assert (whole(4), milli(0.25)) == (4, 250)


@pytest.mark.parametrize("text", ["", "1 Gi", "1gi", "1e999999999", "ten", "0x10", "1" * 41, "NaN", "1_000", "\u0661"])
def test_invalid_quantities_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        whole(text)


def test_less_than_nothing() -> None:
    with pytest.raises(ValueError, match="'-1' is negative"):
        whole("-1")
