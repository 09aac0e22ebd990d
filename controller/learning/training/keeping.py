"""The best checkpoint of an agent during training: its last weights are not always the best."""

from __future__ import annotations

import math
from typing import Any

from controller.learning.agent.records import Checkpoint
from controller.learning.training.given import Given
from controller.learning.training.trials import evaluate, greedy


class Best:
    """Evaluates checkpoints between episodes, with one seed, and keeps the best.

    `rule` decides if the network cannot. `checkpoint` is None until a trained one was evaluated.
    """

    def __init__(self, given: Given[Any], seed: int, rule: str) -> None:
        self._given = given
        self._seed = seed
        self._rule = rule
        self.checkpoint: Checkpoint | None = None
        self.mean_response_ns = math.inf

    def look_at(self, tried: Checkpoint) -> bool:
        """Evaluate a checkpoint; return whether its mean response is the least so far. Untrained ones are skipped."""
        if not tried.version:
            return False
        rules = self._given.rules(self._seed)
        mean_response_ns = evaluate(
            self._given, greedy(self._given, tried, rules[self._rule]), self._seed
        ).mean_response_ns
        if mean_response_ns >= self.mean_response_ns:
            return False
        self.checkpoint, self.mean_response_ns = tried, mean_response_ns
        return True
