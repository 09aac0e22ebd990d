"""The policy `learned`: a checkpoint's network ranks nodes for pods, or only says how it would."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from controller.schedulers.framework.columns import Ids, Longs
from controller.schedulers.framework.snapshot import Snapshot
from controller.schedulers.framework.values import MOST_POINTS, PendingPod
from controller.schedulers.learning.agent.inference.making import inference_of
from controller.schedulers.learning.agent.records import load_checkpoint
from controller.schedulers.learning.errors import LearningError
from controller.schedulers.learning.policy.observing import observe
from controller.schedulers.learning.values import COMMON, Floats
from dataplane.config import Strict

_NETWORK_TOKEN: Final = COMMON + 4
"""Figures of a token with the network's features."""


class Learned:
    """Prefers nodes by the values that a trained network gives them; the other scores decide where it cannot.

    In shadow, all nodes get the same points, and reasons tell what the network would have preferred. It neither learns
    nor explores here. An answer that is late, not finite or of a network that does not fit the cluster is none.
    """

    class Settings(Strict, frozen=True):
        """A checkpoint's file; whether it only watches; how long an answer may take."""

        checkpoint: str
        shadow: bool = True
        deadline_ns: int = 3_000_000

    def __init__(self, settings: Settings, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.settings = settings
        self._clock_ns = clock_ns
        checkpoint = load_checkpoint(Path(settings.checkpoint))
        shape = checkpoint.shape
        self._has_network = shape.inputs == _NETWORK_TOKEN
        if shape.form != "tokens":
            self._has_network = shape.inputs == COMMON + 4 * shape.actions
        self._inference = inference_of(checkpoint.weights(), checkpoint.settings.decisions)

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return `MOST_POINTS` for the node of the highest value, 0 for the lowest; all the same in shadow."""
        found = np.full(len(nodes), MOST_POINTS, np.int64)
        values = None if self.settings.shadow else self._values(pod, snapshot, nodes)[0]
        if values is None or not len(values) or values.max() == values.min():
            return found
        found[:] = np.rint(MOST_POINTS * (values - values.min()) / (values.max() - values.min()))
        return found

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the node's value and its place among all nodes."""
        nodes = np.arange(len(snapshot.columns.nodes))
        return self.reasons(pod, snapshot, nodes, nodes)[node]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the nodes' values and their places among one another, or why there are none."""
        values, problem = self._values(pod, snapshot, nodes)
        if values is None:
            return [f"the network is not asked: {problem}"] * len(nodes)
        places = np.argsort(np.argsort(-values, kind="stable"), kind="stable") + 1
        mode = "in shadow, " if self.settings.shadow else ""
        return [
            f"{mode}version {self._inference.version} gives it {value:.4g}, place {place} of {len(nodes)}"
            for value, place in zip(values.tolist(), places.tolist(), strict=True)
        ]

    def _values(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> tuple[Floats | None, str]:
        """Return the value of each of `nodes`, or None and why."""
        if not self._inference.version:
            return None, "it is untrained"
        until_ns = self._clock_ns() + self.settings.deadline_ns
        seen = observe(pod, snapshot, nodes, has_network=self._has_network)
        try:
            values = self._inference.values(seen, lambda: self._clock_ns() >= until_ns)
        except LearningError as error:
            return None, str(error)
        if values is None or self._clock_ns() >= until_ns:
            return None, f"it took more than {self.settings.deadline_ns} ns"
        found: Floats = values[nodes]
        return (found, "") if np.isfinite(found).all() else (None, "its values are not finite")
