"""The loop of background training: take experience from a bounded queue, hand out weights and records."""

from __future__ import annotations

from collections.abc import Callable
from queue import SimpleQueue

from controller.learning.agent.learner import Learner
from controller.learning.agent.weights import WeightSet
from controller.learning.values import Experience

Ask = Callable[[Learner], None]
"""An action on the learner between two experiences."""


class Backlog:
    """Queue of experiences waiting for training; adding never blocks."""

    def __init__(self, most: int) -> None:
        self.dropped = 0
        self._most = most
        self._waiting: SimpleQueue[Experience | Ask | None] = SimpleQueue()
        self._first: SimpleQueue[Ask] = SimpleQueue()

    def add(self, experience: Experience) -> None:
        """Add an experience, or count it as dropped if too many wait."""
        if self._waiting.qsize() >= self._most:
            self.dropped += 1
        else:
            self._waiting.put(experience)

    def ask(self, question: Ask, *, at_once: bool = False) -> None:
        """Schedule an action after all that waits, or before it."""
        if at_once:
            self._first.put(question)
            self._waiting.put(_wake_up)
        else:
            self._waiting.put(question)

    def end(self) -> None:
        """Wake the loop up and end it."""
        self._waiting.put(None)

    def next(self) -> Experience | Ask | None:
        """Return the next item, None at the end; waits for it."""
        return self._waiting.get() if self._first.empty() else self._first.get()


def train(learner: Learner, backlog: Backlog, publish: Callable[[WeightSet], None]) -> None:
    """Learn until the backlog ends, or the learner is told to end."""
    while (item := backlog.next()) is not None and not learner.is_ending:
        if isinstance(item, Experience):
            weights = learner.take(item)
            if weights is not None:
                publish(weights)
        else:
            item(learner)


def _wake_up(learner: Learner) -> None:
    """Do nothing: urgent actions have already run."""
