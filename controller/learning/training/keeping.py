"""The best of what an agent was while it learned: its last weights are not always those that decide best."""

from __future__ import annotations

import math
from typing import Any

from controller.learning.agent.records import Checkpoint
from controller.learning.training.given import Given
from controller.learning.training.trials import evaluate, greedy


class Best:
    """Tries checkpoints between two episodes, as they would be evaluated with a seed; keeps the one that did best.

    `rule` decides where the network cannot. `checkpoint` is None before one that was trained was tried.
    """

    def __init__(self, given: Given[Any], seed: int, rule: str) -> None:
        self._given = given
        self._seed = seed
        self._rule = rule
        self.checkpoint: Checkpoint | None = None
        self.mean_response_ns = math.inf

    def look_at(self, tried: Checkpoint) -> bool:
        """Try a checkpoint; return whether its mean response is the least so far. What is untrained is not tried."""
        if not tried.version:
            return False
        rules = self._given.rules(self._seed)
        found = evaluate(self._given, greedy(self._given, tried, rules[self._rule]), self._seed).mean_response_ns
        if found >= self.mean_response_ns:
            return False
        self.checkpoint, self.mean_response_ns = tried, found
        return True
