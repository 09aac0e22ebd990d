"""Windows begin alike for all deciders, whatever creating one does to the environment."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from controller.learning.environment.pool import Pool
from controller.learning.inputs.bursty import BurstySettings
from controller.learning.inputs.systems import PoolSystem
from controller.learning.training.given import Given, LearningSettings, read_given
from controller.learning.values import Chooser
from tests.benchmarks.scheduling.cases import Windows
from tests.benchmarks.scheduling.windows import ORACLE, costs

SETTINGS = LearningSettings(bursty=BurstySettings(tasks=120, objects=64, system=PoolSystem(nodes=3)))
WINDOWS = Windows(count=3, tasks=4, width=81)
"""Three nodes and four tasks give 81 combinations: the beam drops none."""


@pytest.fixture
def given() -> Given[Any]:
    return read_given("bursty", SETTINGS, 1)


def test_all_begin_at_the_same_moment(given: Given[Any]) -> None:
    def anew(name: str) -> Chooser[Any]:
        given.environment.start(7)
        return given.rules(1)[name]

    def as_it_is(name: str) -> Chooser[Any]:
        return given.rules(1)[name]

    names = ("data-local", "earliest-finish", "least-loaded", "random")
    windows = [
        costs(given, WINDOWS, 1, {name: partial(make, name) for name in names}, search=True)
        for make in (anew, as_it_is)
    ]
    assert windows[0] == windows[1]
    assert [window.first for window in windows[0]] == [30, 60, 90]
    for window in windows[0]:
        assert all(window.costs_ns[ORACLE] <= window.costs_ns[name] for name in names)


def test_what_moments_show_is_what_the_driver_comes_to(given: Given[Any]) -> None:
    cost = costs(given, WINDOWS, 1, {"round-robin": lambda: given.rules(1)["round-robin"]}, search=False)
    pool, rule = given.environment, given.rules(1)["round-robin"]
    assert isinstance(pool, Pool)
    seen = pool.start(1)
    responses = []
    for number in range(34):
        if number == 30:
            rule = given.rules(1)["round-robin"]
        step = pool.step(rule.choose(seen, pool))
        assert step.observation is not None
        responses.append(step.response_ns)
        seen = step.observation
    assert cost[0].costs_ns["round-robin"] == sum(responses[30:])
