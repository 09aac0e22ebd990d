"""Price of a task: units times seconds times the price of the measured score."""

from __future__ import annotations

import pytest

from controller.scheduling.tasks.prices import PriceSettings, PriceStep, cost_of, price_of
from dataplane.config import loads
from dataplane.errors import ConfigError

STEPS = PriceSettings(
    steps=(PriceStep(score=10, per_unit_s=1.0), PriceStep(score=60, per_unit_s=4.0)), unscored_per_unit_s=0.25
)


@pytest.mark.parametrize(("score", "price"), [(None, 0.25), (9.9, 0.25), (10, 1.0), (59.9, 1.0), (60, 4.0), (1e9, 4.0)])
def test_the_price_is_that_of_the_step_that_a_score_reaches(score: float | None, price: float) -> None:
    assert price_of(STEPS, score) == price


def test_cost_lists_its_factors() -> None:
    cost = cost_of(STEPS, 3, 20.0, 70)
    assert (cost.amount, cost.reason) == (240.0, "3 units x 20 s x 4 (score 70)")


def test_steps_stand_in_order() -> None:
    with pytest.raises(ConfigError, match=r"steps\[1\].score: 5 is not greater than 10"):
        loads("steps: [{score: 10, per_unit_s: 1}, {score: 5, per_unit_s: 2}]", PriceSettings)
