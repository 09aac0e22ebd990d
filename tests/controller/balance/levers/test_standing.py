"""Allowed positions of a lever: never beyond the wanted one or its ends, only on steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.balance.levers.values import Moved, Standing, moved, refused

CLOCKS = (345.0, 1000.0, 1200.0, 1400.0, 1500.0)


@pytest.mark.parametrize(
    ("standing", "wanted", "expected"),
    [
        (Standing(10, 1, 100), 6, 6),
        (Standing(10, 1, 100), 200, 100),
        (Standing(10, 1, 100), -5, 1),
        (Standing(10, 1, 100, 3), 12, 10),
        (Standing(10, 1, 100, 3), 14, 13),
        (Standing(200, 1, 100), 199, 100),
        (Standing(1500, 345, 1500, points=CLOCKS), 1350, 1400),
        (Standing(1200, 345, 1500, points=CLOCKS), 1450, 1400),
        (Standing(1200, 345, 1500, points=CLOCKS), 1100, 1200),
        (Standing(5, 9, 3), 7, 5),
    ],
)
def test_places(standing: Standing, wanted: float, expected: float) -> None:
    assert standing.place(wanted) == expected


@given(
    st.floats(0, 100), st.floats(-300, 300), st.floats(0.5, 20), st.lists(st.floats(0, 100), max_size=6, unique=True)
)
def test_a_lever_never_goes_too_far_nor_the_other_way(
    value: float, by: float, step: float, points: list[float]
) -> None:
    reached = Standing(value, 0, 100, step, points=tuple(sorted(points))).place(value + by)
    assert 0 <= reached <= 100
    assert min(value, value + by) - 1e-6 <= reached <= max(value, value + by) + 1e-6


def test_unmet_move_is_handed_on_with_the_reason() -> None:
    standing = Standing(98, 1, 100)
    assert moved(standing, 4, 100) == Moved(2, 2, "at its limit of 100")
    assert moved(Standing(10, 1, 100, 3), 2, 10) == Moved(0, 2, "no step in between", between=True)
    assert moved(standing, -3, 95) == Moved(-3, 0)
    assert moved(Standing(200, 1, 100), -2, 100) == Moved(-100, 0)


def test_unsettable_lever_says_why_and_changes_nothing() -> None:
    standing = Standing(98, 1, 100, may_set=False, why_not="no")
    assert refused(standing, 4) == Moved(0, 4, "no")
    assert refused(standing, 0) == Moved(0, 0)
    assert refused(Standing(98, 1, 100), 4) is None
