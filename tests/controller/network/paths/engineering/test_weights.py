"""Integer weights from shares: small, and within the stated error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.network.paths.engineering.weights import TOLERANCE, quantise, quantise_rows
from controller.network.tables.routing import MAX_GROUP_SIZE

Quantise = Callable[[list[float]], tuple[int, ...]]


def one_row(shares: list[float]) -> tuple[int, ...]:
    """Return the vectorised twin's weights of one group among others, in lowest terms."""
    rows = np.array([[1.0] * len(shares), shares, shares[::-1]])
    weights = quantise_rows(rows)[1]
    return tuple((weights // np.gcd.reduce(weights)).tolist())


both = pytest.mark.parametrize("twin", [quantise, one_row], ids=["reference", "rows"])


@both
@pytest.mark.parametrize(
    ("shares", "weights"),
    [
        ((1.0,), (1,)),
        ((0.5, 0.5), (1, 1)),
        ((0.25, 0.75), (1, 3)),
        ((1 / 3, 2 / 3), (1, 2)),
        ((0.0, 4.0), (0, 1)),
        ((0.996, 0.004), (1, 0)),
        ((0.2, 0.3, 0.5), (2, 3, 5)),
    ],
)
def test_shares_become_the_smallest_close_weights(
    shares: tuple[float, ...], weights: tuple[int, ...], twin: Quantise
) -> None:
    assert twin(list(shares)) == weights


@both
@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=12).filter(lambda shares: sum(shares) > 1e-3))
def test_no_share_is_off_by_more_than_the_bound(twin: Quantise, shares: list[float]) -> None:
    weights = twin(shares)
    total = sum(weights)
    assert 1 <= total <= MAX_GROUP_SIZE
    worst = max(abs(weight / total - share / sum(shares)) for weight, share in zip(weights, shares, strict=True))
    assert worst < 1 / MAX_GROUP_SIZE
    if len(shares) == 2:
        assert worst <= TOLERANCE + 1e-12


@both
@given(shares=st.lists(st.floats(0, 1), min_size=1, max_size=6).filter(lambda shares: sum(shares) > 1e-3))
def test_shares_that_weights_already_make_keep_these_weights(twin: Quantise, shares: list[float]) -> None:
    weights = twin(shares)
    assert twin([weight / sum(weights) for weight in weights]) == weights
