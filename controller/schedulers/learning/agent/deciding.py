"""One decision: the published network's best candidate, sometimes another, or the fallback without an answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

import numpy as np

from controller.schedulers.learning.agent.inference.base import Inference
from controller.schedulers.learning.agent.settings import DecisionSettings
from controller.schedulers.learning.errors import LearningError
from controller.schedulers.learning.values import Chooser, Floats, Observation

View = TypeVar("View")
Source = Literal["network", "exploration", "fallback"]
Reason = Literal["", "untrained", "late", "not finite", "does not fit", "close"]


@dataclass(frozen=True, slots=True)
class Decision:
    """What was chosen, by whom, why not by the network, by which version, and each action's value where known."""

    action: int
    source: Source
    reason: Reason = ""
    version: int = 0
    values: Floats | None = None


def stands(values: Floats, best: int, usual: int, margin: float) -> bool:
    """Return whether the usual choice is taken: the best value is less than a margin above that choice's own."""
    return best != usual and bool(values[best] - values[usual] < margin)


class Decider(Generic[View]):
    """Chooses candidates: best predicted value, or by `exploration` another one at random, drawn from `generator`.

    The fallback decides where the network is untrained (version 0), late, gives no finite values or does not fit what
    is seen; random other candidates are chosen of its answers, too, as something has to be learned. `counts` says how
    often which. With a `margin` the fallback's choice stands, too, where the best value is not so much above that
    choice's own.
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

    def fall_back_on(self, fallback: Chooser[View]) -> None:
        """Have another one decide where the network does not."""
        self._fallback = fallback

    def decide(self, inference: Inference, observation: Observation, view: View) -> Decision:
        """Return a candidate; raise LearningError where none is possible, or the fallback chose none."""
        candidates = np.flatnonzero(observation.candidates)
        if not len(candidates):
            raise LearningError(f"none of {observation.actions} actions is possible")
        values, reason = self._values(inference, observation)
        if values is None:
            best = self.ask_fallback(observation, view)
        else:
            best = int(candidates[np.argmax(values[candidates])])
            if self._settings.margin:
                usual = self.ask_fallback(observation, view)
                if stands(values, best, usual, self._settings.margin):
                    best, reason = usual, "close"
        source: Source = "fallback" if reason else "network"
        if len(candidates) > 1 and self.generator.random() < self._settings.exploration:
            others = candidates[candidates != best]
            best, source = int(others[self.generator.integers(len(others))]), "exploration"
        self.counts[source] += 1
        if reason:
            self.counts[reason] += 1
        return Decision(best, source, reason, inference.version, values)

    def ask_fallback(self, observation: Observation, view: View) -> int:
        """Return the fallback's choice; raise LearningError where that is no candidate."""
        action = self._fallback.choose(observation, view)
        if not (0 <= action < observation.actions and observation.candidates[action]):
            raise LearningError(f"the fallback chose action {action}, which is no candidate")
        return action

    def _values(self, inference: Inference, observation: Observation) -> tuple[Floats | None, Reason]:
        if inference.version == 0:
            return None, "untrained"
        if not np.isfinite(observation.row).all():
            return None, "not finite"
        until_ns = self._clock_ns() + self._settings.deadline_ns
        try:
            values = inference.values(observation, lambda: self._clock_ns() >= until_ns)
        except LearningError:
            return None, "does not fit"
        if values is None or self._clock_ns() >= until_ns:
            return None, "late"
        return (values, "") if np.isfinite(values).all() else (None, "not finite")
