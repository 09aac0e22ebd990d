"""Decisions: the best candidate with probability 1 - e, else another; the fallback where the network has no answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from controller.learning.agent.deciding import Decider
from controller.learning.agent.inference.base import Late, never
from controller.learning.agent.settings import DecisionSettings
from controller.learning.errors import LearningError
from controller.learning.values import Floats, Observation

Observe = Callable[..., Observation]


@dataclass
class Known:
    """Known values, from weights of a version."""

    told: list[float]
    version: int = 1
    parts: int = 2

    def values(self, observation: Observation, late: Late = never) -> Floats | None:
        if observation.actions != len(self.told):
            raise LearningError("does not fit")
        return None if any(late() for _ in range(self.parts)) else np.array(self.told, np.float32)


class Last:
    """A fallback that always takes the last action."""

    def choose(self, observation: Observation, view: None) -> int:
        return observation.actions - 1


def _decider(exploration: float = 0.0, clock: Iterator[int] | None = None) -> Decider[None]:
    settings = DecisionSettings(exploration=exploration, deadline_ns=100)
    return Decider(settings, Last(), np.random.default_rng(1), lambda: next(clock) if clock else 0)


def _with(observation: Observation, *candidates: int) -> Observation:
    possible = np.zeros(observation.actions, np.bool_)
    possible[list(candidates)] = True
    return Observation(observation.row, possible)


def test_the_best_value_of_those_possible_is_chosen(observe: Observe) -> None:
    observation = _with(observe(np.random.default_rng(1)), 0, 1, 3)
    decision = _decider().decide(Known([1, 3, 9, 2]), observation, None)
    assert (decision.action, decision.source, decision.version) == (1, "network", 1)


@pytest.mark.parametrize(("told", "action"), [([1, 3.4, 9, 3], 3), ([1, 3.6, 9, 3], 1), ([1, 2, 9, 3], 3)])
def test_fallback_choice_is_kept_within_the_margin(observe: Observe, told: list[float], action: int) -> None:
    observation = _with(observe(np.random.default_rng(1)), 0, 1, 3)
    decider = Decider(DecisionSettings(exploration=0, margin=0.5), Last(), np.random.default_rng(1), lambda: 0)
    decision = decider.decide(Known(told), observation, None)
    assert decision.action == action
    assert (decision.source, decision.reason) == (("fallback", "close") if told[1] == 3.4 else ("network", ""))


@pytest.mark.parametrize(
    ("told", "action", "near"),
    [
        ([1, 3.4, 9, 3], 3, [1, 3]),
        ([3.1, 3.4, 9, 3], 3, [0, 1, 3]),
        ([3, 3.4, 9, 2.8], 1, [0, 1]),
        ([1, 3.6, 9, 3], 1, []),
        ([1, 2, 9, 3], 3, []),
    ],
)
def test_fallback_chooses_within_the_tolerance(
    observe: Observe, told: list[float], action: int, near: list[int]
) -> None:
    """It always prefers the last action: if that is not nearly as good, the best one is taken."""
    observation = _with(observe(np.random.default_rng(1)), 0, 1, 3)
    decider = Decider(DecisionSettings(exploration=0, tolerance=0.5), Last(), np.random.default_rng(1), lambda: 0)
    decision = decider.decide(Known(told), observation, None)
    assert (decision.action, decision.source, decision.reason) == (action, "network", "")
    assert (decision.asked, [] if decision.near is None else np.flatnonzero(decision.near).tolist()) == (False, near)


def test_a_margin_goes_before_a_tolerance(observe: Observe) -> None:
    class InTurn:
        last = -1

        def choose(self, observation: Observation, view: None) -> int:
            possible = np.flatnonzero(observation.candidates)
            self.last = int(possible[np.searchsorted(possible, self.last, side="right") % len(possible)])
            return self.last

    observation = observe(np.random.default_rng(1))
    settings = DecisionSettings(exploration=0, margin=1.0, tolerance=0.5)
    decider = Decider(settings, InTurn(), np.random.default_rng(1), lambda: 0)
    told = np.full(observation.actions, -9.0)
    told[:3] = (2.5, 9.0, 8.75)
    # The first action is far worse than the best, so one of the two best is taken: the next in turn.
    decisions = [decider.decide(Known(told.tolist()), observation, None) for _ in range(3)]
    assert [(decision.action, decision.reason) for decision in decisions] == [(1, ""), (2, "close"), (1, "")]
    assert all(decision.asked for decision in decisions)


def test_a_random_other_candidate_is_chosen_with_probability_e(observe: Observe) -> None:
    observation, decider = _with(observe(np.random.default_rng(1)), 0, 1, 3), _decider(exploration=0.05)
    actions = [decider.decide(Known([1, 3, 9, 2]), observation, None).action for _ in range(20_000)]
    assert actions.count(1) / len(actions) == pytest.approx(0.95, abs=0.005)
    assert actions.count(0) / len(actions) == pytest.approx(0.025, abs=0.004)
    assert actions.count(3) / len(actions) == pytest.approx(0.025, abs=0.004)


def test_an_only_candidate_is_chosen(observe: Observe) -> None:
    observation = _with(observe(np.random.default_rng(1)), 2)
    assert _decider(exploration=1.0).decide(Known([1, 3, 9, 2]), observation, None).action == 2


@pytest.mark.parametrize(
    ("inference", "reason"),
    [
        (Known([1, 2, 3, 0], version=0), "untrained"),
        (Known([1, np.nan, 3, 0]), "not finite"),
        (Known([1, 2, np.inf, 0]), "not finite"),
        (Known([1, 2, 3]), "does not fit"),
    ],
)
def test_fallback_decides_if_the_network_has_no_answer(observe: Observe, inference: Known, reason: str) -> None:
    decision = _decider().decide(inference, observe(np.random.default_rng(1)), None)
    assert (decision.action, decision.source, decision.reason) == (3, "fallback", reason)


@pytest.mark.parametrize("times_ns", [[0, 50, 100], [0, 50, 99, 100]], ids=["between parts", "at the end"])
def test_fallback_decides_if_the_network_is_late(observe: Observe, times_ns: list[int]) -> None:
    decider = _decider(clock=iter(times_ns))
    decision = decider.decide(Known([1, 2, 3, 0]), observe(np.random.default_rng(1)), None)
    assert (decision.action, decision.reason) == (3, "late")
    assert decider.counts == {"fallback": 1, "late": 1}


def test_infinite_features_are_the_fallbacks(observe: Observe) -> None:
    observation = observe(np.random.default_rng(1))
    row = observation.row.copy()
    row[-1] = np.inf
    assert _decider().decide(Known([1, 2, 3, 0]), Observation(row, observation.candidates), None).source == "fallback"


def test_no_possible_action_is_an_error(observe: Observe) -> None:
    with pytest.raises(LearningError, match="none of 4 actions is possible"):
        _decider().decide(Known([1, 2, 3, 0]), _with(observe(np.random.default_rng(1))), None)


def test_a_fallback_that_chooses_no_candidate_is_an_error(observe: Observe) -> None:
    observation = _with(observe(np.random.default_rng(1)), 0, 1)
    with pytest.raises(LearningError, match="the fallback chose action 3"):
        _decider().decide(Known([1, 2, 3, 0], version=0), observation, None)
