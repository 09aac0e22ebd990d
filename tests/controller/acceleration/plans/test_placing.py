"""Joint placement of a plan's operators: exact for trees (dynamic programming), checked by exhaustive search."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.acceleration.plans.placing import exhaustive, place
from controller.acceleration.plans.values import Method, Problem

SECONDS = st.one_of(st.integers(0, 8).map(float), st.floats(0, 10))


@st.composite
def problems(draw: st.DrawFn, *, is_tree: bool, most_devices: int = 3) -> Problem:
    operators, devices = draw(st.integers(1, 6)), draw(st.integers(1, most_devices))
    if is_tree:
        edges = [(at, draw(st.integers(at + 1, operators - 1))) for at in range(operators - 1) if draw(st.booleans())]
    else:
        pairs = [(src, dst) for dst in range(operators) for src in range(dst)]
        edges = sorted(draw(st.lists(st.sampled_from(pairs), unique=True))) if pairs else []
    seconds = np.array(draw(st.lists(SECONDS, min_size=operators * devices, max_size=operators * devices)))
    seconds = seconds.reshape(operators, devices)
    refused = np.array(draw(st.lists(st.booleans(), min_size=seconds.size, max_size=seconds.size)))
    seconds[:, 1:] = np.where(refused.reshape(seconds.shape)[:, 1:], np.inf, seconds[:, 1:])
    moves = np.zeros((len(edges), devices, devices))
    for at in range(len(edges)):
        leaves, comes = ([0.0, *draw(st.lists(SECONDS, min_size=devices - 1, max_size=devices - 1))] for _ in range(2))
        stays = np.array([True, *draw(st.lists(st.booleans(), min_size=devices - 1, max_size=devices - 1))])
        moves[at] = np.array(leaves)[:, None] + np.array(comes)[None]
        moves[at][np.diag(stays)] = 0.0
    return Problem(seconds, tuple(edges), moves)


def is_least(problem: Problem, most: int = 4096) -> Method:
    placement, best = place(problem, most), exhaustive(problem)
    assert placement.cost_s == problem.cost_s(placement.devices)
    assert placement.cost_s <= best.cost_s * (1 + 1e-9)
    return placement.method


@given(problems(is_tree=True))
@settings(max_examples=150, deadline=None)
def test_dynamic_programming_is_exact_for_trees(problem: Problem) -> None:
    assert is_least(problem) is Method.TREE


@given(problems(is_tree=False))
@settings(max_examples=150, deadline=None)
def test_graph_with_few_shared_results_is_placed_exactly(problem: Problem) -> None:
    assert is_least(problem) in {Method.TREE, Method.CONDITIONED}


@given(problems(is_tree=False, most_devices=2).filter(lambda problem: problem.seconds.shape[1] == 2))
@settings(max_examples=100, deadline=None)
def test_minimum_cut_between_two_devices_is_exact_for_any_graph(problem: Problem) -> None:
    assert is_least(problem, most=0) in {Method.TREE, Method.CUT}


@given(problems(is_tree=False))
@settings(max_examples=60, deadline=None)
def test_a_search_never_costs_more_than_one_device_for_all(problem: Problem) -> None:
    placement = place(problem, most=0)
    for device in range(problem.seconds.shape[1]):
        same = tuple(device if np.isfinite(own[device]) else 0 for own in problem.seconds)
        assert placement.cost_s <= problem.cost_s(same) * (1 + 1e-9)


def test_operators_stay_together_if_moving_costs_more() -> None:
    seconds = np.array([[10.0, 1.0], [1.0, 1.5], [10.0, 1.0]])
    moves = np.array([[[0.0, 2.0], [2.0, 0.0]]] * 2)
    assert place(Problem(seconds, ((0, 1), (1, 2)), moves)).devices == (1, 1, 1)
    assert place(Problem(seconds, ((0, 1), (1, 2)), moves / 100)).devices == (1, 0, 1)


def test_equal_costs_take_the_cpu() -> None:
    assert place(Problem(np.ones((3, 2)), ((0, 2), (1, 2)), np.zeros((2, 2, 2)))).devices == (0, 0, 0)
    shared = Problem(np.ones((4, 2)), ((0, 1), (0, 2), (1, 3), (2, 3)), np.zeros((4, 2, 2)))
    assert place(shared).devices == place(shared, most=0).devices == (0, 0, 0, 0)


def test_many_shared_results_of_three_devices_are_searched() -> None:
    random = np.random.default_rng(5)
    seconds = random.random((30, 3))
    edges = tuple((src, dst) for dst in range(30) for src in range(max(0, dst - 3), dst))
    moves = np.where(np.eye(3, dtype=bool), 0.0, 0.3)[None].repeat(len(edges), axis=0)
    placement = place(Problem(seconds, edges, moves))
    assert placement.method is Method.SEARCH
    assert placement.cost_s <= min(float(seconds[:, device].sum()) for device in range(3))
