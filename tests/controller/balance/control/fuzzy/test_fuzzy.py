"""Words, rules and both inference methods, checked against scikit-fuzzy and the exact area."""

from __future__ import annotations

import csv
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.balance.control.fuzzy.adaptation import FuzzySettings, Method, adapted, infer
from controller.balance.control.fuzzy.tables import KD, KI, KP, PEAKS, SPACING, WORDS, Tables, memberships, rules_of
from controller.balance.errors import GainsError
from controller.balance.values import Gains
from dataplane.config import loads
from dataplane.errors import ConfigError

TABLES = tuple(rules_of(gain, lines) for gain, lines in (("kp", KP), ("ki", KI), ("kd", KD)))
SHARES = st.floats(-1.2, 1.2)
RECORDED = Path(__file__).parent / "scikit_fuzzy.csv"
"""Output of scikit-fuzzy 0.5.0's control interface for these rules at 40 random points: minimum as "and", centre of
area; input terms' triangles sampled at 601 points from -1 to 1, those of the results at 2401."""


@given(SHARES)
def test_memberships_are_triangles_that_add_to_1(value: float) -> None:
    fits = dict(memberships(value))
    inside = min(max(value, -1.0), 1.0)
    for index, word in enumerate(WORDS):
        assert fits.get(index, 0.0) == pytest.approx(max(1.0 - abs(inside - PEAKS[word]) / SPACING, 0.0), abs=1e-9)
    assert sum(fits.values()) == pytest.approx(1.0)


def test_rules_are_symmetric_as_a_loop_has_no_better_side() -> None:
    for rules in TABLES:
        assert rules == tuple(row[::-1] for row in rules[::-1])


@pytest.mark.parametrize("method", list(Method))
def test_fully_matching_rule_gives_its_word(method: Method) -> None:
    for row, error in enumerate(WORDS):
        for column, change in enumerate(WORDS):
            wanted = tuple(PEAKS[WORDS[rules[row][column]]] for rules in TABLES)
            assert infer(method, TABLES, error.peak, change.peak) == pytest.approx(wanted, abs=1e-6)


def test_mamdani_equals_scikit_fuzzy() -> None:
    with RECORDED.open(encoding="utf-8") as file:
        rows = [{name: float(text) for name, text in row.items()} for row in csv.DictReader(file)]
    assert len(rows) == 40
    for row in rows:
        gains = infer(Method.MAMDANI, TABLES, row["error"], row["change"])
        assert gains == pytest.approx((row["kp"], row["ki"], row["kd"]), abs=1e-4)


@given(SHARES, SHARES)
def test_mamdani_is_the_centre_of_the_area_computed_exactly(error: float, change: float) -> None:
    (result,) = infer(Method.MAMDANI, TABLES[:1], error, change)
    strengths = dict.fromkeys(range(7), 0.0)
    for row, error_fits in memberships(error):
        for column, change_fits in memberships(change):
            word = TABLES[0][row][column]
            strengths[word] = max(strengths[word], min(error_fits, change_fits))

    def height(at: float) -> float:
        return max(min(strengths[index], max(1 - abs(at - word.peak) / SPACING, 0)) for index, word in enumerate(WORDS))

    kinks = {word.peak + side * part * SPACING for word in WORDS for side in (-1, 1) for part in (0.0, 0.5, 1.0)} | {
        word.peak + side * (1.0 - cut) * SPACING for word in WORDS for side in (-1, 1) for cut in strengths.values()
    }
    area = moment = 0.0
    for low, high in pairwise(sorted(kinks)):  # linear between two of them
        middle, width = 0.5 * (low + high), high - low
        area += width * height(middle)
        moment += width * (low * height(low) + 4.0 * middle * height(middle) + high * height(high)) / 6.0
    assert result == pytest.approx(moment / area, abs=5e-4)


@given(st.floats(-1.0, 1.0), st.floats(-1.0, 1.0))
def test_sugeno_goes_from_rule_to_rule_without_steps(error: float, change: float) -> None:
    here = infer(Method.SUGENO, TABLES, error, change)
    beside = infer(Method.SUGENO, TABLES, min(error + 1e-6, 1.0), change)
    assert here == pytest.approx(beside, abs=1e-4)


@pytest.mark.parametrize("method", list(Method))
def test_all_three_gains_are_adapted(method: Method) -> None:
    start = largest = Gains(1.0, 0.05, 0.1)
    settings = FuzzySettings(method=method)
    quiet, far = adapted(settings, start, largest, 0.0, 0.0), adapted(settings, start, largest, 0.9, 0.0)
    assert (quiet.kp, quiet.ki, quiet.kd) == pytest.approx((1.0, 0.075, 0.1))
    assert far.kp == pytest.approx(1.2)
    assert far.ki == pytest.approx(0.025)
    assert far.kd == pytest.approx(0.1 * (1 - 0.5 * 2 / 3))


def test_adapted_gains_never_fall_below_0() -> None:
    assert adapted(FuzzySettings(), Gains(1.0, 0.0, 0.1), Gains(1.0, 0.05, 0.1), 0.9, 0.0).ki == 0.0


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (("PB " * 7,) * 6, "fuzzy rules of kp: 6 lines, expected 7"),
        (("PB " * 7,) * 6 + ("PB PB",), "fuzzy rules of kp, line 7: 2 words, expected 7"),
        (
            ("PB " * 7,) * 6 + ("PB " * 6 + "XL",),
            "fuzzy rules of kp, line 7: unknown word 'XL'; known: NB, NM, NS, ZO, PS, PM, PB",
        ),
    ],
)
def test_wrong_rules_are_refused_by_gain_and_line(lines: tuple[str, ...], says: str) -> None:
    with pytest.raises(GainsError, match=f"^{says}$"):
        Tables(kp=lines)


def test_wrong_rules_in_a_file_are_refused_by_its_line() -> None:
    line = "ZO ZO ZO ZO ZO ZO"
    text = "method: mamdani\nrules:\n  kd:\n" + f"    - {line}\n" * 7
    with pytest.raises(ConfigError, match=r"^x\.yaml:2: rules: fuzzy rules of kd, line 1: 6 words, expected 7$"):
        loads(text, FuzzySettings, file="x.yaml")
