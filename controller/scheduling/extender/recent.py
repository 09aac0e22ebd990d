"""The extender's newest decisions, for people who ask why a pod is on its node."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence

import msgspec

from controller.scheduling.extender import objects
from controller.scheduling.extender.deciding import Filtered, NodeScore


class Decision(msgspec.Struct, omit_defaults=True):
    """The decision about a pod: refused nodes with the kept reasons, and the number refused by each policy."""

    pod: str
    uid: str
    profile: str
    asked: int = 0
    passed: int = 0
    refused_by: dict[str, int] = {}
    refused: dict[str, str] = {}
    scores: tuple[NodeScore, ...] = ()
    bound: str = ""
    error: str = ""
    decided_ns: int = 0
    """Since 1970."""


class Recent:
    """Decisions by NAMESPACE/NAME of the pod; when full, the least recently updated are evicted."""

    def __init__(self, most: int, explained: int) -> None:
        self._most, self._explained = most, explained
        self._kept: OrderedDict[str, tuple[Decision, objects.Pod | None]] = OrderedDict()

    def get(self, pod: str) -> Decision | None:
        """Return the last decision about a pod, None if none is kept."""
        entry = self._kept.get(pod)
        return None if entry is None else entry[0]

    def pod(self, full_name: str, uid: str) -> objects.Pod | None:
        """Return the record of a pod under decision."""
        _, pod = self._kept.get(full_name, (None, None))
        return pod if pod is not None and pod.metadata.uid == uid else None

    def filtered(self, pod: objects.Pod, profile: str, result: Filtered, now_ns: int) -> Decision:
        """Record which nodes were refused, and why."""
        counts = Counter(refusal.policy for refusal in result.refused.values())
        kept = dict(list(result.refused.items())[: self._explained])
        decision = Decision(
            pod=pod.full_name,
            uid=pod.metadata.uid,
            profile=profile,
            asked=len(result.passed) + len(result.refused),
            passed=len(result.passed),
            refused_by=dict(counts),
            refused={name: str(refusal) for name, refusal in kept.items()},
            decided_ns=now_ns,
        )
        self._keep(decision, pod)
        return decision

    def scored(self, pod: objects.Pod, profile: str, scores: Sequence[NodeScore], now_ns: int) -> Decision:
        """Add the best nodes' scores to the record of the same pod."""
        best = sorted(scores, key=lambda score: -score.points)[: self._explained]
        decision = self.get(pod.full_name)
        if decision is None or decision.uid != pod.metadata.uid:
            decision = Decision(pod=pod.full_name, uid=pod.metadata.uid, profile=profile)
        decision.scores, decision.decided_ns = tuple(best), now_ns
        self._keep(decision, pod)
        return decision

    def failed(self, pod: str, uid: str, error: str, now_ns: int) -> None:
        """Record that no decision was possible, and why."""
        self._keep(Decision(pod=pod, uid=uid, profile="", error=error, decided_ns=now_ns), None)

    def bound(self, pod: str, uid: str, node: str, error: str, now_ns: int) -> None:
        """Record the node a pod was bound to, or why binding failed."""
        decision = self.get(pod)
        if decision is None or decision.uid != uid:
            decision = Decision(pod=pod, uid=uid, profile="")
        decision.bound, decision.error, decision.decided_ns = "" if error else node, error, now_ns
        self._keep(decision, self.pod(pod, uid))

    def _keep(self, decision: Decision, pod: objects.Pod | None) -> None:
        self._kept[decision.pod] = decision, pod
        self._kept.move_to_end(decision.pod)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)
