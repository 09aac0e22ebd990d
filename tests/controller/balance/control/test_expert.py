"""The expert rule's four ranges and the relations between its gains."""

from __future__ import annotations

from typing import Any

import pytest

from controller.balance.control.expert import ExpertRule, around
from controller.balance.errors import GainsError
from controller.balance.values import Gains

RULE = ExpertRule(far=0.5, near=0.2, moving=0.05, kp=(1.0, 0.8, 1.1), ki=(0.0, 0.02, 0.05), kd=(0.1, 0.11, 0.2, 0.09))


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(
    ("error", "change", "gains"),
    [
        (0.5, 0.0, Gains(1.0, 0.0, 0.1)),
        (0.9, 0.3, Gains(1.0, 0.0, 0.1)),
        (0.49, 0.3, Gains(0.8, 0.02, 0.11)),
        (0.2, 0.0, Gains(0.8, 0.02, 0.11)),
        (0.19, 0.05, Gains(1.1, 0.05, 0.2)),
        (0.19, -0.05, Gains(1.1, 0.05, 0.2)),
        (0.19, 0.04, Gains(1.1, 0.05, 0.09)),
        (0.0, 0.0, Gains(1.1, 0.05, 0.09)),
    ],
)
def test_start_gains_are_those_of_the_range(error: float, change: float, gains: Gains, sign: float) -> None:
    assert RULE.gains(sign * error, sign * change) == gains


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"near": 0.5}, "e1 > e2 > 0 required, got 0.5 and 0.5"),
        ({"near": 0.0}, "e1 > e2 > 0 required, got 0.5 and 0"),
        ({"moving": 0.0}, "d1 > 0 required, got 0"),
        ({"kp": (1.0, 0.8, 2.0)}, "kp1 must be about kp3, got 1 and 2"),
        ({"kp": (1.0, 1.0, 1.0)}, "kp2 must be below kp1 and kp3, got 1"),
        ({"ki": (0.01, 0.02, 0.05)}, "ki1 must be 0, got 0.01"),
        ({"ki": (0.0, 0.05, 0.05)}, "0 < ki2 < ki3 required, got 0.05 and 0.05"),
        ({"kd": (0.1, 0.1, 0.2, 0.3)}, "kd1, kd2, kd4 must be about equal, got 0.1, 0.1, 0.3"),
        ({"kd": (0.1, 0.1, 0.1, 0.1)}, "kd3 must be above kd1, kd2 and kd4, got 0.1"),
        ({"kp": (-1.0, 0.8, 1.0)}, "-1 is not a finite number >= 0"),
    ],
)
def test_gains_against_the_rules_relations_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(GainsError) as caught:
        ExpertRule(**wrong)
    assert str(caught.value) == f"expert rule: {says}"


def test_a_rule_around_gains_has_them_near_the_balance() -> None:
    assert around(Gains(2.0, 0.3, 0.4)).gains(0.0, 0.0) == Gains(2.0, 0.3, 0.4)


def test_a_rule_around_kp_alone_takes_the_built_in_shares() -> None:
    assert around(Gains(2.0)).gains(0.0, 0.0) == Gains(2.0, 0.1, 0.2)
