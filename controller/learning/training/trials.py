"""Runs of an input in virtual time: training an agent, evaluating deciders, and comparing them."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from zlib import crc32

import msgspec
import numpy as np

from controller.learning.agent.agents import Agent, agent_of
from controller.learning.agent.inference.on_numpy import TokensInference
from controller.learning.agent.records import Checkpoint, RunRecord
from controller.learning.errors import LearningError
from controller.learning.training.figures import Figures, Tally
from controller.learning.training.given import Given
from controller.learning.values import Bools, Chooser, Environment, Experience, Floats, Observation, Step

View = TypeVar("View")
_NO_FALLBACK: Final = frozenset({"random", "earliest-finish"})
"""Rules never used as fallbacks: one knows nothing, and one knows what only the environment does."""


_ASKED_ALL, _ASKED_NEAR = 1, 2


@dataclass(slots=True)
class _Taken:
    """The decisions of an episode so far, and what the fallback was asked for them, as `RunRecord` keeps it."""

    actions: array[int] = field(default_factory=lambda: array("I"))
    asked: bytearray = field(default_factory=bytearray)
    near: bytearray = field(default_factory=bytearray)

    def add(self, action: int, *, asked: bool, near: Bools | None) -> None:
        self.actions.append(action)
        self.asked.append(_ASKED_ALL * asked + _ASKED_NEAR * (near is not None))
        if near is not None:
            self.near += np.packbits(near).tobytes()

    def near_at(self, at: int, actions: int) -> tuple[Bools, int]:
        """Return the near-best candidates stored at a position, and the position of the next ones."""
        end = at + (actions + 7) // 8
        if end > len(self.near):
            raise LearningError("the episode has more actions than were saved")
        return np.unpackbits(np.frombuffer(self.near[at:end], np.uint8), count=actions).astype(np.bool_), end


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a learning curve: means of the decisions since the one before it, and the state of training.

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
    """Play the input `episodes` times, from `seed` on, and learn; report a point each `every` decisions and at ends."""
    return Run(given, agent, seed).play(episodes=episodes, every=every)


class Run(Generic[View]):
    """An agent that learns on an input, which each episode plays with the next seed.

    It can be saved between two decisions; a run resumed from its record takes the same decisions. With a `rule` the
    fallback begins anew with each episode, because the memory of rules is not saved.
    """

    def __init__(self, given: Given[View], agent: Agent[View], seed: int, rule: str = "") -> None:
        self._given = given
        self._agent = agent
        self._seed = seed
        self._rule = rule
        self._seen: Observation | None = None
        self._episodes = self._decisions = 0
        self._taken = _Taken()

    @property
    def record(self) -> RunRecord:
        """Current position."""
        expects = 0 if self._seen is None else crc32(self._seen.row.tobytes())
        return RunRecord(
            self._given.name,
            self._seed,
            self._rule,
            self._decisions,
            self._episodes,
            self._taken.actions.tobytes(),
            bytes(self._taken.asked),
            bytes(self._taken.near),
            expects,
        )

    def go_on(self, record: RunRecord) -> bool:
        """Resume a run; return False if its episode is not one of this input and starts over."""
        self._episodes, self._decisions = record.episodes, record.decisions
        if not record.actions:
            return True
        try:
            self._replay(_Taken(array("I", record.actions), bytearray(record.asked), bytearray(record.near)))
        except (LearningError, ValueError):
            self._seen = None
        # The replay must end at the very observation that was saved.
        is_same = self._seen is not None and crc32(self._seen.row.tobytes()) == record.expects
        if not is_same:
            self._begin()
        return is_same

    @property
    def progress(self) -> str:
        """Numbers of decisions, training steps and episodes so far, as words; may be read on any thread."""
        return (
            f"{self._decisions} decisions, {self._agent.status.steps} training steps, {self._episodes} episodes ended"
        )

    def play(self, *, episodes: int, every: int, is_stopping: Callable[[], bool] = lambda: False) -> Iterator[Point]:
        """Learn until so many episodes have ended, or it is told to stop after a decision; report points of the curve.

        A point is reported each `every` decisions and at ends.
        """
        for _ in range(episodes):
            if self._seen is None:
                self._begin()
            episode, steps, stops = self._episodes, list[Step](), False
            while self._seen is not None and not stops:
                steps.append(self._decide(self._seen))
                stops = is_stopping()
                if len(steps) == every or self._seen is None or stops:
                    yield _point(self._agent, self._decisions, episode, steps)
                    steps.clear()
            if stops:
                return

    def _begin(self) -> None:
        if self._rule:
            self._agent.decider.fall_back_on(self._given.rules(self._seed + self._episodes)[self._rule])
        self._seen = self._given.environment.start(self._seed + self._episodes)
        self._taken = _Taken()

    def _decide(self, seen: Observation) -> Step:
        environment, agent = self._given.environment, self._agent
        decision = agent.decide(seen, environment.view)
        step = environment.step(decision.action)
        agent.learn(Experience(seen, decision.action, step.reward, step.observation, step.elapsed_ns))
        self._decisions += 1
        self._take(step, decision.action, asked=decision.asked, near=decision.near)
        return step

    def _take(self, step: Step, action: int, *, asked: bool, near: Bools | None) -> None:
        self._seen = step.observation
        self._taken.add(action, asked=asked, near=near)
        if step.observation is None:
            self._episodes += 1
            self._taken = _Taken()

    def _replay(self, taken: _Taken) -> None:
        """Repeat an episode's decisions; raise LearningError if they are not possible here."""
        self._begin()
        environment, decider, at = self._given.environment, self._agent.decider, 0
        for action, asked in zip(taken.actions, taken.asked, strict=True):
            seen, near = self._seen, None
            if seen is None:
                raise LearningError("the episode ends earlier")
            if asked & _ASKED_ALL:
                decider.ask_fallback(seen, environment.view)
            if asked & _ASKED_NEAR:
                near, at = taken.near_at(at, seen.actions)
                decider.ask_among(near, seen, environment.view, action)
            self._take(environment.step(action), action, asked=bool(asked & _ASKED_ALL), near=near)


def evaluate(
    given: Given[View], chooser: Chooser[View], seed: int, watch: Callable[[int], None] | None = None
) -> Figures:
    """Return the figures of an input decided on by `chooser`; `watch` gets the number of decisions after each."""
    tally = Tally()
    for step in _played(given.environment, chooser, seed):
        tally.add(step)
        if watch is not None:
            watch(len(tally.rewards))
    return given.settle(tally)


def best_rule(given: Given[Any], seed: int, wanted: str = "", evaluated: Mapping[str, Figures] | None = None) -> str:
    """Return the rule to fall back on: the wanted one, else the one with the least mean response on the input.

    Rules in `evaluated` are not evaluated again. Random choice and predictions by the environment are not considered.
    Raises LearningError for a rule that the input lacks.
    """
    rules = given.rules(seed)
    if wanted:
        if wanted not in rules:
            raise LearningError(f"{given.name} has no rule {wanted!r}; known: {', '.join(rules)}")
        return wanted
    evaluated = (
        {name: evaluate(given, rules[name], seed) for name in rules if name not in _NO_FALLBACK}
        if evaluated is None
        else evaluated
    )
    return min((name for name in rules if name not in _NO_FALLBACK), key=lambda name: evaluated[name].mean_response_ns)


def greedy(given: Given[View], checkpoint: Checkpoint, fallback: Chooser[View]) -> Agent[View]:
    """Return a checkpoint's agent for evaluation: without exploration, without training, never late.

    Raises LearningError if its network does not fit the input's observations.
    """
    checkpoint.shape.check(given.environment.start(0))
    decisions = msgspec.structs.replace(checkpoint.settings.decisions, exploration=0.0)
    settings = msgspec.structs.replace(checkpoint.settings, decisions=decisions)
    tried = msgspec.structs.replace(checkpoint, settings=settings, decider=None)
    return agent_of(tried, fallback, "none", clock_ns=lambda: 0)


def attention_of(given: Given[View], checkpoint: Checkpoint, chooser: Chooser[View], seed: int, most: int) -> Floats:
    """Return tokens' attention, [layers, heads, tokens, tokens]: the mean of at most `most` first decisions.

    If numbers of actions differ, only the most frequent number counts. Raises LearningError as `check_attention` does.
    """
    check_attention(checkpoint)
    inference, environment = TokensInference(checkpoint.weights()), given.environment
    seen: Observation | None = environment.start(seed)
    attentions: list[Floats] = []
    while seen is not None and len(attentions) < most:
        attentions.append(inference.attention(seen))
        seen = environment.step(chooser.choose(seen, environment.view)).observation
    (shape, _), *_ = Counter(attention.shape for attention in attentions).most_common(1)
    mean: Floats = np.mean([attention for attention in attentions if attention.shape == shape], axis=0)
    return mean


def check_attention(checkpoint: Checkpoint) -> None:
    """Raise LearningError for a network that is not `tokens`: one token looks at itself."""
    if checkpoint.shape.form != "tokens":
        raise LearningError(f"a network {checkpoint.shape.form} has no attention between tokens: only `tokens` has")


class Timed:
    """Decides as another chooser does, and records how long each decision took, by a clock of real time."""

    def __init__(self, chooser: Chooser[View], clock_ns: Callable[[], int]) -> None:
        self._chooser: Chooser[Any] = chooser
        self._clock_ns = clock_ns
        self.took_ns: list[int] = []

    def choose(self, observation: Observation, view: object) -> int:
        """Return the other chooser's choice."""
        begin_ns = self._clock_ns()
        action = self._chooser.choose(observation, view)
        self.took_ns.append(self._clock_ns() - begin_ns)
        return action

    def percentile_ns(self, percent: float) -> float:
        """Return a percentile of the decision times."""
        return float(np.percentile(self.took_ns, percent))


def _played(environment: Environment[View], chooser: Chooser[View], seed: int) -> Iterator[Step]:
    seen: Observation | None = environment.start(seed)
    while seen is not None:
        step = environment.step(chooser.choose(seen, environment.view))
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
