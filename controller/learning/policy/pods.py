"""The policy `learned` of pods: a network ranks nodes, or only says how it would, and learns from the results."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from controller.cluster.hardware import Cluster, Node
from controller.learning.agent.purpose import MadeFor
from controller.learning.policy.learning import LearningPolicy
from controller.learning.policy.live import Answer
from controller.learning.policy.observing import observe
from controller.learning.policy.ranking import points_of, reasons_of, usual_of
from controller.learning.policy.settings import LiveSettings
from controller.learning.values import Observation
from controller.scheduling.framework.lessons import Note
from controller.scheduling.framework.plugins import PODS, make_policy
from controller.scheduling.framework.policies import MOST_POINTS, Ids, Longs, Score
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import PendingPod


class Learned(LearningPolicy):
    """Prefers nodes by the values of a network; the other scores, or the fallback, decide if it has none.

    In shadow, all nodes get the same points, and reasons tell what the network would have preferred. It is told of
    decisions once they stand, and of their results; before it is opened it learns nothing.
    """

    def __init__(self, settings: LiveSettings, clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        super().__init__(settings, "pods", _example, clock_ns)
        self._fallback: Score[PendingPod, Snapshot] | None = None
        if settings.fallback:
            self._fallback = make_policy(PODS, settings.fallback, {}, ("points", "reason"))
        self._asked: tuple[PendingPod, Snapshot, Ids, Answer] | None = None

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return `MOST_POINTS` for the node with the highest value, 0 for the lowest; all the same in shadow."""
        answer = self._answer(pod, snapshot, nodes)
        if self.settings.shadow:
            return np.full(len(nodes), MOST_POINTS, np.int64)
        if answer.values is None and answer.explored is None and self._fallback is not None:
            return self._fallback.points(pod, snapshot, nodes)
        return points_of(answer, nodes)

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the node's value and its rank among all nodes."""
        nodes = np.arange(len(snapshot.columns.nodes))
        return self.reasons(pod, snapshot, nodes, nodes)[node]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the nodes' values and ranks, or why there are none."""
        asked = self._asked
        if asked is None or asked[0] is not pod or asked[1] is not snapshot or not np.isin(nodes, asked[2]).all():
            self._answer(pod, snapshot, nodes)
            asked = self._asked
        assert asked is not None
        answer = asked[3]
        if answer.values is None and self._fallback is not None and not self.settings.shadow:
            problem = f"the network is not used: {self.network.why_not(answer)}; {self.settings.fallback}: "
            return [problem + self._fallback.reason(pod, snapshot, node) for node in nodes.tolist()]
        return reasons_of(self.network, answer, nodes)

    def note(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, node: int) -> Note:
        """Return a callback that records that a pod got one of the possible nodes."""
        answer = self._answer(pod, snapshot, nodes)
        return lambda key: self.network.decided(key, answer, node)

    def _answer(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Answer:
        """Return the network's answer, computed once for the same pod, snapshot and nodes."""
        asked = self._asked
        if asked is not None and asked[0] is pod and asked[1] is snapshot and np.array_equal(asked[2], nodes):
            return asked[3]
        shown = self.network.made_for
        seen = observe(pod, snapshot, nodes, has_network=shown.network, has_load=shown.load)
        usual = None
        if self.network.asks_fallback and self._fallback is not None and len(nodes):
            usual = usual_of(self._fallback.points(pod, snapshot, nodes), nodes)
        answer = self.network.answer(seen, pod.name, usual)
        self._asked = (pod, snapshot, nodes, answer)
        return answer


def _example(made_for: MadeFor) -> Observation:
    snapshot = Snapshot.of(Cluster.of([Node("any", 1)]))
    return observe(PendingPod("any"), snapshot, np.arange(1), has_network=made_for.network, has_load=made_for.load)
