"""The rule by which a benchmark says which of two places is the quicker one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.benchmarks.probing.ranking import TIE, Score, is_near, quicker, score

RUNS = st.lists(st.floats(0.01, 100.0), min_size=1, max_size=5)


def test_places_differ_where_their_means_do_by_more_than_a_tie() -> None:
    assert quicker([1.0], [1.06]) == -1
    assert quicker([1.06], [1.0]) == 1
    assert not is_near([1.0], [1.06])
    assert is_near([1.0], [1.04])


def test_near_places_are_told_apart_only_by_repeated_runs() -> None:
    assert quicker([1.0], [1.04]) == 0, "one run each says nothing about how much they scatter"
    assert quicker([1.0, 1.001, 0.999], [1.04, 1.041, 1.039]) == -1
    assert quicker([0.9, 1.1, 1.0], [0.94, 1.14, 1.04]) == 0, "they scatter by more than they differ"
    assert quicker([1.0, 1.0001], [1.009, 1.0091]) == 0, "less than 1 % is a tie however sure"


@given(RUNS, RUNS)
def test_quicker_is_antisymmetric(one: list[float], other: list[float]) -> None:
    assert quicker(one, other) == -quicker(other, one)


@given(RUNS, st.floats(0.001, 1000.0))
def test_the_unit_of_time_does_not_matter(one: list[float], factor: float) -> None:
    slower = [each * (1 + 2 * TIE) for each in one]
    assert quicker(one, slower) == quicker([each * factor for each in one], [each * factor for each in slower]) == -1


def test_pairs_are_counted_as_right_wrong_or_tied() -> None:
    real = {"a": [1.0], "b": [2.0], "c": [2.02]}
    assert score(real, {"a": 10.0, "b": 20.0, "c": 30.0}) == Score(right=2, decided=2, tied=1)
    assert score(real, {"a": 25.0, "b": 20.0, "c": 30.0}) == Score(right=1, decided=2, tied=1)
    assert score(real, {"a": 30.0, "b": 20.0, "c": 10.0}) == Score(right=0, decided=2, tied=1)


def test_equal_figures_rank_nothing_rightly() -> None:
    assert score({"a": [1.0], "b": [2.0]}, {"a": 5.0, "b": 5.0}) == Score(right=0, decided=1, tied=0)
    assert score({"a": [2.0], "b": [1.0]}, {"a": 5.0, "b": 5.0}) == Score(right=0, decided=1, tied=0)


def test_scores_add_up_and_share_counts_pairs_that_differ() -> None:
    both = Score(1, 2, 3) + Score(2, 2, 0)
    assert both == Score(3, 4, 3)
    assert both.share == pytest.approx(0.75)
    assert Score(0, 0, 7).share is None
