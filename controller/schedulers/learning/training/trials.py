"""Runs of an input in virtual time: an agent that trains, deciders that are tried, and all of them side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from controller.schedulers.learning.agent.agents import Agent, agent_of
from controller.schedulers.learning.agent.inference.on_numpy import TokensInference
from controller.schedulers.learning.agent.records import Checkpoint
from controller.schedulers.learning.errors import LearningError
from controller.schedulers.learning.training.figures import Figures, Tally
from controller.schedulers.learning.training.given import Given
from controller.schedulers.learning.values import Chooser, Environment, Experience, Floats, Observation, Step

View = TypeVar("View")
_NO_FALLBACK: Final = frozenset({"random", "earliest-finish"})
"""Rules that nothing falls back on: one that knows nothing, and one that knows what only the environment does."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a learning curve: means of the decisions since the one before it, and how training stood.

    `loss` and `error` are of the newest training step, 0 before the first. `version` counts published weights.
    """

    decisions: int
    episode: int
    mean_reward: float
    mean_response_ns: float
    loss: float
    error: float
    steps: int
    version: int


def train(given: Given[View], agent: Agent[View], *, episodes: int, seed: int, every: int) -> Iterator[Point]:
    """Play the input `episodes` times, from `seed` on, and learn; tell a point each `every` decisions and at ends."""
    decisions = 0
    for episode in range(episodes):
        steps: list[Step] = []
        for step in _played(given.environment, agent, seed + episode, agent.learn):
            decisions += 1
            steps.append(step)
            if len(steps) == every or step.observation is None:
                yield _point(agent, decisions, episode, steps)
                steps.clear()


def evaluate(given: Given[View], chooser: Chooser[View], seed: int) -> Figures:
    """Return what comes of an input decided on by `chooser`."""
    tally = Tally()
    for step in _played(given.environment, chooser, seed):
        tally.add(step)
    return given.settle(tally)


def best_rule(given: Given[Any], seed: int, wanted: str = "", known: Mapping[str, Figures] | None = None) -> str:
    """Return the rule to fall back on: the wanted one, else that of the least mean response on the input.

    What is `known` of rules is not tried again. Random choice and foretelling by the environment are not looked at.
    Raises LearningError for a rule that the input has not.
    """
    rules = given.rules(seed)
    if wanted:
        if wanted not in rules:
            raise LearningError(f"{given.name} has no rule {wanted!r}: it has {', '.join(rules)}")
        return wanted
    known = (
        {name: evaluate(given, rules[name], seed) for name in rules if name not in _NO_FALLBACK}
        if known is None
        else known
    )
    return min((name for name in rules if name not in _NO_FALLBACK), key=lambda name: known[name].mean_response_ns)


def greedy(given: Given[View], checkpoint: Checkpoint, fallback: Chooser[View]) -> Agent[View]:
    """Return a checkpoint's agent as it is tried: without exploration, without training, never late.

    Raises LearningError where its network does not fit what the input shows.
    """
    checkpoint.shape.check(given.environment.start(0))
    decisions = msgspec.structs.replace(checkpoint.settings.decisions, exploration=0.0)
    settings = msgspec.structs.replace(checkpoint.settings, decisions=decisions)
    tried = msgspec.structs.replace(checkpoint, settings=settings, decider=None)
    return agent_of(tried, fallback, "none", clock_ns=lambda: 0)


def attention_of(given: Given[View], checkpoint: Checkpoint, chooser: Chooser[View], seed: int, most: int) -> Floats:
    """Return what tokens look at, [layers, heads, tokens, tokens]: the mean of at most `most` first decisions.

    Raises LearningError for a network that is not `tokens`: one token looks at itself.
    """
    if checkpoint.shape.form != "tokens":
        raise LearningError(f"a network {checkpoint.shape.form} has no attention between tokens: only tokens has")
    inference, environment = TokensInference(checkpoint.weights()), given.environment
    seen: Observation | None = environment.start(seed)
    found: list[Floats] = []
    while seen is not None and len(found) < most:
        found.append(inference.attention(seen))
        seen = environment.step(chooser.choose(seen, environment.view)).observation
    mean: Floats = np.mean(found, axis=0)
    return mean


class Timed:
    """Decides as another does, and keeps how long each decision took, by a clock of real time."""

    def __init__(self, chooser: Chooser[View], clock_ns: Callable[[], int]) -> None:
        self._chooser: Chooser[Any] = chooser
        self._clock_ns = clock_ns
        self.took_ns: list[int] = []

    def choose(self, observation: Observation, view: object) -> int:
        """Return what the other chooses."""
        begin_ns = self._clock_ns()
        found = self._chooser.choose(observation, view)
        self.took_ns.append(self._clock_ns() - begin_ns)
        return found

    def percentile_ns(self, percent: float) -> float:
        """Return how long so many in a hundred decisions took at most."""
        return float(np.percentile(self.took_ns, percent))


def _played(
    environment: Environment[View],
    chooser: Chooser[View],
    seed: int,
    learn: Callable[[Experience], None] = lambda _: None,
) -> Iterator[Step]:
    seen: Observation | None = environment.start(seed)
    while seen is not None:
        action = chooser.choose(seen, environment.view)
        step = environment.step(action)
        learn(Experience(seen, action, step.reward, step.observation, step.elapsed_ns))
        seen = step.observation
        yield step


def _point(agent: Agent[Any], decisions: int, episode: int, steps: list[Step]) -> Point:
    status = agent.status
    return Point(
        decisions,
        episode,
        float(np.mean([step.reward for step in steps])),
        float(np.mean([step.response_ns for step in steps])),
        status.loss,
        status.error,
        status.steps,
        agent.published.weights.version,
    )
