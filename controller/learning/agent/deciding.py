"""One decision: the published network's best candidate, sometimes another, or the fallback's if it has no answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from controller.learning.agent.inference.base import Inference
from controller.learning.agent.settings import DecisionSettings
from controller.learning.errors import LearningError, UnfamiliarError
from controller.learning.values import Actions, Bools, Chooser, Floats, Observation

View = TypeVar("View")
Source = Literal["network", "exploration", "fallback"]
Reason = Literal["", "untrained", "late", "not finite", "does not fit", "unfamiliar", "close"]


@dataclass(frozen=True, slots=True)
class Decision:
    """A choice, its source, the reason to bypass the network, the weights' version, and each action's value if known.

    `asked`: the fallback chose among all candidates; `near`: among these near-best ones. It may remember both.
    """

    action: int
    source: Source
    reason: Reason = ""
    version: int = 0
    values: Floats | None = None
    asked: bool = False
    near: Bools | None = None


def stands(values: Floats, best: int, usual: int, margin: float) -> bool:
    """Return whether the usual choice stands: the best value exceeds its value by less than a margin."""
    return best != usual and bool(values[best] - values[usual] < margin)


def alike(values: Floats, candidates: Actions, tolerance: float) -> Actions:
    """Return the candidates whose values are at most `tolerance` below the best one's."""
    of_them = values[candidates]
    near: Actions = candidates[of_them >= of_them.max() - tolerance]
    return near


class Decider(Generic[View]):
    """Chooses candidates: the best by value, or with probability `exploration` a random other one, from `generator`.

    The fallback decides if the network is untrained (version 0), late, gives no finite values, does not fit the
    observation or, guarded, finds it unfamiliar; its answers are explored, too, because something must be learned.
    `counts` has the decisions by source. With a `margin` the fallback's choice also stands if the best value does not
    exceed its value by that much. With a `tolerance` the fallback chooses among candidates worth nearly as much as the
    best one, which is taken if it wants none of them.
    """

    def __init__(
        self,
        settings: DecisionSettings,
        fallback: Chooser[View],
        generator: np.random.Generator,
        clock_ns: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._fallback = fallback
        self._clock_ns = clock_ns
        self.generator = generator
        self.counts: Counter[str] = Counter()
        self.held = 0
        """Number of decisions that are still the fallback's after an unfamiliar observation."""

    def fall_back_on(self, fallback: Chooser[View]) -> None:
        """Replace the fallback."""
        self._fallback = fallback

    def decide(self, inference: Inference, observation: Observation, view: View) -> Decision:
        """Return a candidate; raise LearningError if none is possible, or if the fallback chose none."""
        candidates = np.flatnonzero(observation.candidates)
        if not len(candidates):
            raise LearningError(f"none of {observation.actions} actions is possible")
        values, reason = self._values(inference, observation)
        usual = None
        if values is None or self._settings.margin:
            usual = self.ask_fallback(observation, view)
        near = None if values is None else self._near(values, candidates, observation.actions)
        if values is None:
            assert usual is not None
            best = usual
        else:
            best = int(candidates[np.argmax(values[candidates])])
            if usual is not None and stands(values, best, usual, self._settings.margin):
                best, reason, near = usual, "close", None
            elif near is not None:
                best = self.ask_among(near, observation, view, best)
        source: Source = "fallback" if reason else "network"
        if len(candidates) > 1 and self.generator.random() < self._settings.exploration:
            others = candidates[candidates != best]
            best, source = int(others[self.generator.integers(len(others))]), "exploration"
        self.counts[source] += 1
        if reason:
            self.counts[reason] += 1
        return Decision(best, source, reason, inference.version, values, usual is not None, near)

    def _near(self, values: Floats, candidates: Actions, actions: int) -> Bools | None:
        """Return a mask of the actions nearly as good as the best one, None if it has no rival."""
        matches = alike(values, candidates, self._settings.tolerance) if self._settings.tolerance else ()
        if len(matches) < 2:
            return None
        near = np.zeros(actions, np.bool_)
        near[matches] = True
        return near

    def ask_among(self, near: Bools, observation: Observation, view: View, best: int) -> int:
        """Return the fallback's choice among some candidates; the best one if it wants none of them."""
        action = self._fallback.choose(Observation(observation.row, near), view)
        return action if 0 <= action < len(near) and near[action] else best

    def ask_fallback(self, observation: Observation, view: View) -> int:
        """Return the fallback's choice; raise LearningError if it is not a candidate."""
        action = self._fallback.choose(observation, view)
        if not (0 <= action < observation.actions and observation.candidates[action]):
            raise LearningError(f"the fallback chose action {action}, which is not a candidate")
        return action

    def _values(self, inference: Inference, observation: Observation) -> tuple[Floats | None, Reason]:
        if inference.version == 0:
            return None, "untrained"
        if not np.isfinite(observation.row).all():
            return None, "not finite"
        until_ns = self._clock_ns() + self._settings.deadline_ns
        try:
            values = inference.values(observation, lambda: self._clock_ns() >= until_ns)
        except UnfamiliarError:
            self.held = self._settings.guard_hold
            return None, "unfamiliar"
        except LearningError:
            return None, "does not fit"
        # The clock is checked only between layers, so the last one may end late.
        if values is None or self._clock_ns() >= until_ns:
            return None, "late"
        if self.held:
            # Network and rule taking turns are worse than either: a queue that one fills the other has to empty.
            self.held -= 1
            return None, "unfamiliar"
        return (values, "") if np.isfinite(values).all() else (None, "not finite")
