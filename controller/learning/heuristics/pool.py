"""Rules that choose a node."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from controller.learning.environment.model import LOAD_BITS, LOAD_UNIT_NS
from controller.learning.environment.view import NodesView, PoolView
from controller.learning.values import Observation

_LEAVING, _EVICTING, _COST = 4, 6, 7
"""Rows of `Observation.load`."""


class Turns:
    """Takes the possible action with the least key, among equals the next in turn."""

    def __init__(self) -> None:
        self._last = -1

    def least(self, observation: Observation, key: Callable[[int], float]) -> int:
        """Return the possible action with the least key; each key is computed once."""
        count, last = observation.actions, self._last
        possible: list[int] = np.flatnonzero(observation.candidates).tolist()
        # On a tie take turns: the action after the last one chosen comes first.
        self._last = min(possible, key=lambda action: (key(action), (action - last - 1) % count))
        return self._last


class Random:
    """Any node that can run the task, drawn by the seed."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(f"random/{seed}")

    def choose(self, observation: Observation, view: object) -> int:  # noqa: ARG002 - nothing else is looked at
        """Return any candidate."""
        return int(self._rng.choice(np.flatnonzero(observation.candidates)))


class RoundRobin:
    """One node after another, except those that cannot run the task."""

    def __init__(self) -> None:
        self._turns = Turns()

    def choose(self, observation: Observation, view: object) -> int:  # noqa: ARG002 - nothing else is looked at
        """Return the next candidate."""
        return self._turns.least(observation, lambda _: 0)


class LeastLoaded:
    """The node with the fewest unfinished tasks per slot."""

    def __init__(self) -> None:
        self._turns = Turns()

    def choose(self, observation: Observation, view: NodesView) -> int:
        """Return the least loaded candidate."""
        return self._turns.least(observation, lambda action: load(view, action))


class DataLocal:
    """The node with most of the task's data, on any medium; among equals the least loaded."""

    def __init__(self) -> None:
        self._turns = Turns()

    def choose(self, observation: Observation, view: NodesView) -> int:
        """Return the candidate with most of the data."""
        nearest = observation.similarity
        best = nearest[observation.candidates].max()
        return self._turns.least(
            observation, lambda action: load(view, action) if nearest[action] == best else float("inf")
        )


class FastOnly:
    """A node whose free fast memory holds all of the task's data, so that nothing is evicted; the least loaded.

    If there is none: the one with the largest free part.
    """

    def __init__(self) -> None:
        self._turns = Turns()

    def choose(self, observation: Observation, view: NodesView) -> int:
        """Return a candidate with room."""
        needed, free = view.needed_bytes, observation.free

        def key(action: int) -> float:
            has_room = free[action] * view.fast_bytes(action) >= needed
            return load(view, action) if has_room else 1e9 - float(free[action])

        return self._turns.least(observation, key)


class EarliestFinish:
    """The node on which the task ends first, as the model predicts; no scheduler of a real system knows this."""

    def __init__(self) -> None:
        self._turns = Turns()

    def choose(self, observation: Observation, view: PoolView) -> int:
        """Return the candidate on which the task ends first."""
        return self._turns.least(observation, lambda action: view.predict(action).end_ns)


class ForetoldLocal:
    """Choose the node with most of a task's data among those with nearly the least predicted cost.

    The cost is the last of `load_features` with `foretold`, plus `eviction_ns` for each byte that has to make room; up
    to `near` times the least counts as nearly the least. Ties on data go to the node whose outbound transfers end
    first, remaining ties to the next node in turn. The observation contains all of it.
    """

    def __init__(self, near: float = 3.0, eviction_ns: float = 1.0) -> None:
        self._near, self._eviction_ns = near, eviction_ns
        self._turns = Turns()

    def choose(self, observation: Observation, view: object) -> int:  # noqa: ARG002 - it looks at what is seen alone
        """Return a candidate that costs little more than the least."""
        leaving, evicting, cost = observation.load[[_LEAVING, _EVICTING, _COST]].astype(np.float64)
        costs = _figures(cost) + self._eviction_ns * _figures(evicting)
        least = costs[observation.candidates].min()
        near = np.flatnonzero(observation.candidates & (costs <= self._near * least))
        for figures in (-observation.similarity, leaving):
            near = near[figures[near] == figures[near].min()]
        wanted = set(near.tolist())
        return self._turns.least(observation, lambda action: float(action not in wanted))


def _figures(seen: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the times in ns, or bytes, that features of the load show: log2(1 + n / unit), straight between powers."""
    whole = np.floor(seen * LOAD_BITS)
    return (np.exp2(whole) * (1.0 + seen * LOAD_BITS - whole) - 1.0) * LOAD_UNIT_NS


def load(view: NodesView, action: int) -> float:
    """Return a node's unfinished tasks per slot."""
    return view.queued(action) / view.slots(action)
