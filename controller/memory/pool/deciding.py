"""Decision where a request runs: a rule of the simulated pool, or the live network, with that rule as its fallback."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.learning.agent.purpose import MadeFor
from controller.learning.environment.view import NodesView
from controller.learning.errors import LearningError
from controller.learning.heuristics.pool import DataLocal, FastOnly, LeastLoaded, Random, RoundRobin
from controller.learning.policy.learning import LearningPolicy
from controller.learning.policy.live import Answer
from controller.learning.policy.settings import LiveSettings
from controller.learning.values import Chooser, Observation
from controller.memory.pool.catalogue import Catalogue
from controller.memory.pool.observing import example
from controller.memory.pool.settings import Rule
from controller.memory.pool.values import Place, Result
from controller.scheduling.framework.lessons import Outcome, Standing

_SIX: Final = MadeFor("nodes", network=False, load=False)


def rule_of(name: Rule, seed: int = 0) -> Chooser[NodesView]:
    """Return a rule; `lru` takes hosts in turn, and leaves it to eviction to keep what is used."""
    rules: dict[Rule, Callable[[], Chooser[NodesView]]] = {
        "lru": RoundRobin,
        "least-loaded": LeastLoaded,
        "data-local": DataLocal,
        "fast-only": FastOnly,
        "random": lambda: Random(seed),
    }
    return rules[name]()


@dataclass(frozen=True, slots=True)
class View:
    """State that rules read."""

    catalogue: Catalogue
    actors: tuple[int, ...]
    assigned: tuple[int, ...]
    block_bytes: int
    blocks: int

    def queued(self, action: int) -> int:
        """Return how many requests are assigned to a host and have not ended."""
        return self.assigned[action]

    def slots(self, action: int) -> int:
        """Return how many requests a host runs at a time."""
        return self.catalogue.hosts[self.actors[action]].cores

    def fast_bytes(self, action: int) -> int:
        """Return the capacity of a host's fast memory."""
        return self.catalogue.capacity(Place(self.actors[action], 0)) * self.block_bytes

    @property
    def needed_bytes(self) -> int:
        """Size of all data of the request."""
        return self.blocks * self.block_bytes


@dataclass(frozen=True, slots=True)
class Decision:
    """A host's number among the actors, and the network's answer, if there is a network."""

    action: int
    answer: Answer | None = None


class Decider:
    """Decides requests one after another, and learns from their results; its owner holds a lock."""

    def __init__(self, rule: Chooser[NodesView], policy: LearningPolicy | None = None) -> None:
        self.rule, self.policy = rule, policy

    @property
    def made_for(self) -> MadeFor:
        """Features that observations need beyond the six."""
        return _SIX if self.policy is None else self.policy.network.made_for

    def decide(self, observation: Observation, view: NodesView, subject: str) -> Decision:
        """Return one of the candidates; raise LearningError if there is none."""
        if not observation.candidates.any():
            raise LearningError("no host can run it")
        if self.policy is None:
            return Decision(self.rule.choose(observation, view))
        network = self.policy.network

        def usual(_: object, among: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
            return self.rule.choose(Observation(observation.row, among), view)

        answer = network.answer(observation, subject, usual if network.asks_fallback else None)
        if self.policy.settings.shadow or (answer.values is None and answer.explored is None):
            return Decision(self.rule.choose(observation, view), answer)
        return Decision(answer.first if answer.explored is None else answer.explored, answer)

    def note(self, key: str, decision: Decision) -> None:
        """Note that a decision stands."""
        if self.policy is not None and decision.answer is not None:
            self.policy.network.decided(key, decision.answer, decision.action)

    def came(self, key: str, utilisation: float, result: Result | None) -> None:
        """Take the result of a decision; None if it tells nothing about it."""
        if self.policy is None:
            return
        outcome = None
        if result is not None:
            outcome = Outcome(
                latency_ns=max(result.latency_ns, 1),
                utilisation=utilisation,
                response_ns=max(result.response_ns, 1),
                eviction_ns=result.eviction_ns if result.evicted_bytes else None,
            )
        self.policy.came(key, outcome)

    @property
    def standing(self) -> Standing | None:
        """Status of the network, if there is one."""
        return None if self.policy is None else self.policy.standing

    def open(self) -> None:
        """Begin to learn, if settings say so; raise LearningError on failure."""
        if self.policy is not None and self.policy.is_learning:
            self.policy.open()

    def close(self) -> None:
        """Save, and end learning."""
        if self.policy is not None:
            self.policy.close()


def policy_of(settings: LiveSettings, clock_ns: Callable[[], int] = time.monotonic_ns) -> LearningPolicy:
    """Return the network of a pool; raise LearningError for an unusable checkpoint.

    Agents that `millrace scheduler train blocks:FILE` made are taken: their actions are the nodes of a pool, too. Those
    that observe foretold costs do not fit, and their fallback decides.
    """
    return LearningPolicy(settings, "nodes", example, clock_ns)
