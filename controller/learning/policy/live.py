"""A network in the live scheduler: its answers to observations, and its learning from the results of decisions.

Until it is opened it decides by its unchanged checkpoint. Opened, it trains in a process of its own, on everyone's
decisions: in shadow those of the other scores.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal
from zlib import crc32

import msgspec
import numpy as np

from controller.learning.agent.agents import new_checkpoint, training_of
from controller.learning.agent.deciding import alike, stands
from controller.learning.agent.inference.base import Inference
from controller.learning.agent.inference.making import inference_of
from controller.learning.agent.purpose import Kind, MadeFor
from controller.learning.agent.records import Checkpoint, save_checkpoint
from controller.learning.agent.training.base import Status, Training
from controller.learning.errors import LearningError, UnfamiliarError
from controller.learning.policy.files import Claim, check_place, load_own
from controller.learning.policy.settings import LiveSettings
from controller.learning.values import Bools, Experience, Floats, Observation
from controller.scheduling.framework.lessons import Outcome, Standing

LOGGER: Final = logging.getLogger("millrace.scheduler")
_SAVE_WITHIN_S: Final = 30.0
_CLOSE_WITHIN_S: Final = 3.0
"""Time limit for the last save when a daemon stops; if exceeded, the previous save remains."""
_KEPT: Final = 64
"""Number of cached answers: tasks that wait alike are asked about repeatedly."""
_MOST_LEFT_OUT: Final = 1024
"""Maximum number of answers to skip: each further late answer of a network doubles the number."""
Problem = Literal["", "untrained", "late", "not finite", "does not fit", "unfamiliar"]
Usual = Callable[[Floats, Bools], int]
"""The fallback's choice among some candidates; among equals, the one of the highest value."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """Answer of a network: the value of every action, or None because of the problem."""

    observation: Observation
    version: int
    values: Floats | None
    problem: Problem = ""
    explored: int | None = None
    """The candidate tried instead of the first choice."""
    usual: int | None = None
    """The fallback's choice, if it stands because the best one is little better."""
    near: int | None = None
    """The fallback's choice among those nearly as good as the best one."""

    @property
    def first(self) -> int:
        """The first choice: the one that stands, else the best candidate; values and a candidate must exist."""
        return self.best if self.wanted is None else self.wanted

    @property
    def wanted(self) -> int | None:
        """The fallback's choice, among all or among near-best candidates; None where neither applies."""
        return self.near if self.usual is None else self.usual

    @property
    def best(self) -> int:
        """The candidate with the highest value."""
        assert self.values is not None
        candidates = np.flatnonzero(self.observation.candidates)
        return int(candidates[np.argmax(self.values[candidates])])

    def is_first(self, action: int) -> bool:
        """Return whether an action is the first choice, or worth as much if nothing stands instead."""
        return self.lost(action) <= 0 if self.wanted is None else action == self.wanted

    def lost(self, action: int) -> float:
        """Return how much less an action is worth than the best candidate; values must exist."""
        assert self.values is not None
        return float(self.values[self.observation.candidates].max() - self.values[action])


@dataclass(slots=True)
class _Lived:
    """A decision whose results are not all known yet."""

    observation: Observation
    actions: tuple[int, ...]
    at_ns: int
    reward: float | None = None
    following: Observation | None = None
    elapsed_ns: int = 0


class LiveNetwork:
    """See the module. `example` makes an observation like those that the network is made for."""

    def __init__(
        self,
        settings: LiveSettings,
        kind: Kind,
        example: Callable[[MadeFor], Observation],
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        """Raise LearningError for an invalid checkpoint or settings."""
        self.settings = settings
        self._clock_ns, self._kind, self._example = clock_ns, kind, example
        self._path = Path(settings.checkpoint)
        if settings.learn is not None:
            settings.learn.check()
        self._checkpoint = self._loaded()
        self._inference: Inference = inference_of(self._checkpoint.weights(), self._checkpoint.settings.decisions)
        self._training: Training | None = None
        self._claim: Claim | None = None
        self._status = Status()
        self._cached: dict[tuple[int, bytes, bytes], Answer] = {}
        self._late = self._left_out = self._held = 0
        self._lived: dict[str, _Lived] = {}
        self._last: _Lived | None = None
        self._decisions, self._unanswered, self._experiences = Counter[str](), Counter[str](), Counter[str]()
        self._compared = self._agreed = self._saved = 0
        self._regret, self._problem = 0.0, ""

    @property
    def training(self) -> Training | None:
        """Training back end; None before opening and after closing."""
        return self._training

    @property
    def asks_fallback(self) -> bool:
        """True if the policy needs the fallback's choice."""
        decisions = self._checkpoint.settings.decisions
        return max(decisions.margin, decisions.tolerance) > 0

    def answer(self, observation: Observation, subject: str, usual: Usual | None = None) -> Answer:
        """Return the network's answer to an observation, within the deadline; repeated ones are cached.

        `subject` identifies what is decided on: another candidate, tried now and then, is tried again if it is asked
        again. `usual` returns the fallback's choice, if there is one.
        """
        result = self._guarded(self._answer(observation))
        if usual is not None and result.values is not None and observation.candidates.any():
            result = self._with_usual(result, result.values, usual)
        explored = self._explored(result, subject)
        return result if explored is None else replace(result, explored=explored)

    def _with_usual(self, answer: Answer, values: Floats, usual: Usual) -> Answer:
        """Return an answer with the fallback's choice, if it stands or is one of those nearly as good."""
        candidates, decisions = answer.observation.candidates, self._checkpoint.settings.decisions
        if decisions.margin:
            choice = usual(values, candidates)
            if stands(values, answer.best, choice, decisions.margin):
                return replace(answer, usual=choice)
        if not decisions.tolerance:
            return answer
        near = np.zeros(len(candidates), np.bool_)
        near[alike(values, np.flatnonzero(candidates), decisions.tolerance)] = True
        return replace(answer, near=usual(values, near)) if np.count_nonzero(near) > 1 else answer

    def _guarded(self, answer: Answer) -> Answer:
        """Return an answer; for some decisions after an unfamiliar observation, one without values."""
        if answer.problem == "unfamiliar":
            self._held = self._checkpoint.settings.decisions.guard_hold + 1
        elif self._held and answer.values is not None:
            return replace(answer, values=None, problem="unfamiliar")
        return answer

    def _answer(self, observation: Observation) -> Answer:
        training = self._training
        inference = self._inference if training is None else training.published.inference
        version = inference.version
        if version == 0:
            return Answer(observation, version, None, "untrained")
        if not np.isfinite(observation.row).all():
            return Answer(observation, version, None, "not finite")
        key = (version, observation.row.tobytes(), observation.candidates.tobytes())
        if (cached := self._cached.get(key)) is not None:
            return cached
        if self._left_out > 0:
            self._left_out -= 1
            return Answer(observation, version, None, "late")
        until_ns = self._clock_ns() + self.settings.deadline_ns
        try:
            values = inference.values(observation, lambda: self._clock_ns() >= until_ns)
        except UnfamiliarError:
            return Answer(observation, version, None, "unfamiliar")
        except LearningError:
            return Answer(observation, version, None, "does not fit")
        if values is None or self._clock_ns() >= until_ns:
            self._late += 1
            # Each late answer in a row doubles how many decisions are skipped.
            self._left_out = min(2 ** (self._late - 1), _MOST_LEFT_OUT) - 1
            return Answer(observation, version, None, "late")
        self._late = 0
        if not np.isfinite(values[observation.candidates]).all():
            return Answer(observation, version, None, "not finite")
        answer = Answer(observation, version, values)
        if len(self._cached) >= _KEPT:
            self._cached.clear()
        self._cached[key] = answer
        return answer

    def why_not(self, answer: Answer) -> str:
        """Return the reason for missing values."""
        actions, shape = answer.observation.actions, self._checkpoint.shape
        return {
            "untrained": "it is untrained",
            "late": f"it takes more than {self.settings.deadline_ns} ns",
            "not finite": "figures are not finite",
            "unfamiliar": "figures are outside the range seen in training",
            "does not fit": f"it is {shape.form}, for {shape.actions} actions, and there are {actions}",
        }.get(answer.problem, "")

    def decided(self, key: str, answer: Answer, action: int, *others: int) -> None:
        """Record that an action was chosen, no matter by whom: compare it, and await its outcome.

        A decision for a set of actions is an experience of each; the first is compared.
        """
        self._decisions[self._who(answer, action)] += 1
        if answer.problem:
            self._unanswered[answer.problem] += 1
            # Counted here, as one decision may ask several times.
            self._held -= bool(self._held and answer.problem == "unfamiliar")
        if answer.usual is not None:
            self._unanswered["close"] += 1
        if answer.values is not None and np.count_nonzero(answer.observation.candidates) > 1:
            lost = answer.lost(action)
            self._compared, self._agreed = self._compared + 1, self._agreed + answer.is_first(action)
            self._regret += lost
        if self._training is None:
            return
        now_ns = self._clock_ns()
        if self._last is not None:
            self._last.following = answer.observation
            self._last.elapsed_ns = now_ns - self._last.at_ns
            self._give(self._last)
        self._last = self._lived[key] = _Lived(answer.observation, (action, *others), now_ns)

    def came(self, key: str, outcome: Outcome | None) -> None:
        """Take the result of a decision; an experience is complete once the next decision is known, too."""
        lived = self._lived.pop(key, None)
        learn = self.settings.learn
        if lived is None or learn is None:
            return
        if outcome is None:
            self._experiences["abandoned"] += 1
            return
        started = outcome.latency_ns is not None
        self._experiences["started" if started else "never started"] += 1
        lived.reward = learn.reward(outcome)
        self._give(lived)

    @property
    def standing(self) -> Standing:
        """Status of the policy; training figures are the last ones reported."""
        training = self._training
        status = self._status if training is None else training.status
        version = self._inference.version if training is None else training.published.weights.version
        figures = ("decisions", "steps", "loss", "error", "dropped", "refused", "duplicates", "restarts")
        return Standing(
            version=version,
            is_shadow=self.settings.shadow,
            decisions=dict(self._decisions),
            unanswered=dict(self._unanswered),
            compared=self._compared,
            agreed=self._agreed,
            regret=self._regret,
            experiences=dict(self._experiences),
            waiting=len(self._lived),
            training={
                **{name: getattr(status, name) for name in figures},
                "saved": self._saved,
                "unsaved": bool(self._problem),
            },
            problem=self._problem or status.problem,
        )

    def open(self) -> None:
        """Begin to learn from the checkpoint's state; raise LearningError on failure."""
        claim = Claim(self._path)
        try:
            # Another scheduler may have learned on since it was read.
            self._checkpoint = self._loaded()
            training = training_of(self._checkpoint, "process")
        except BaseException:
            claim.release()
            raise
        self._claim, self._training = claim, training

    def save(self, within_s: float = _SAVE_WITHIN_S) -> None:
        """Write the checkpoint; raise LearningError if training reports no state in time, or on a failed write."""
        if self._training is None:
            return
        try:
            weights, learner = self._training.record(within_s)
            checkpoint = msgspec.structs.replace(
                self._checkpoint, version=weights.version, published=weights.to_bytes(), learner=learner
            )
            save_checkpoint(self._path, checkpoint)
        except LearningError as error:
            self._problem = str(error)
            raise
        self._saved, self._problem = self._saved + 1, ""

    def close(self) -> None:
        """Save and end training; a failed save is logged, and the last one stays."""
        if self._training is None:
            return
        try:
            self.save(_CLOSE_WITHIN_S)
        except LearningError as error:
            LOGGER.warning("last save failed: %s", error)
        training, self._training = self._training, None
        self._inference, self._status = training.published.inference, training.status
        training.close()
        self._lived.clear()
        self._last = None
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    @property
    def made_for(self) -> MadeFor:
        """Kind of decision, and the features observed beyond the six."""
        return self._checkpoint.made_for

    def _loaded(self) -> Checkpoint:
        checkpoint = self._load_or_new()
        for key in ("margin", "tolerance"):
            figure = getattr(checkpoint.settings.decisions, key)
            if figure and not self.settings.fallback:
                because = "but fallback names no score"
                raise LearningError(f"{self._path}: its agent's decisions.{key} is {figure:g}, {because}")
        return checkpoint

    def _load_or_new(self) -> Checkpoint:
        learn = self.settings.learn
        check_place(self._path)
        if learn is not None and not self._path.exists():
            if learn.agent.network.form != "tokens":
                raise LearningError(
                    f"{self._path}: does not exist, and a network {learn.agent.network.form} serves one number of"
                    " actions only: set learn.agent.network.form to tokens"
                )
            made_for = MadeFor(self._kind, network=learn.has_network, load=learn.load_features)
            return new_checkpoint(learn.agent, self._example(made_for), self._kind)
        checkpoint = load_own(self._path)
        try:
            checkpoint.made_for.check(
                MadeFor(self._kind, network=checkpoint.made_for.network, load=checkpoint.made_for.load)
            )
        except LearningError as error:
            raise LearningError(f"{self._path}: {error}") from error
        return checkpoint

    def _give(self, lived: _Lived) -> None:
        training = self._training
        if lived.reward is not None and lived.following is not None and training is not None:
            for action in lived.actions:
                training.give(Experience(lived.observation, action, lived.reward, lived.following, lived.elapsed_ns))

    def _explored(self, answer: Answer, subject: str) -> int | None:
        """Return a candidate to try, now and then, if its result is learned."""
        candidates = np.flatnonzero(answer.observation.candidates)
        if self._training is None or self.settings.shadow or len(candidates) < 2:
            return None
        settings = self._checkpoint.settings
        generator = np.random.default_rng([settings.seed, 3, crc32(subject.encode())])
        if generator.random() >= settings.decisions.exploration:
            return None
        if answer.values is not None:
            candidates = candidates[candidates != answer.first]
        return int(candidates[generator.integers(len(candidates))])

    def _who(self, answer: Answer, action: int) -> str:
        if self.settings.shadow:
            return "others"
        if answer.explored == action:
            return "exploration"
        if answer.values is None:
            return "fallback"
        if not answer.is_first(action):
            return "others"
        return "network" if answer.usual is None else "fallback"
