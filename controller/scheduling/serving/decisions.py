"""Explanations as Decision resources."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import Final

from controller.apiserver.resources.decision import DecisionSpec, Outcome, Placement, Refusal, Score
from controller.apiserver.resources.hardware import device_shares
from controller.cluster.cost_map import Basis
from controller.cluster.hardware import Shares
from controller.scheduling.framework.explaining import Explanation
from controller.scheduling.pods import PendingPod, Snapshot

_LINE: Final = 1024
_NOT_IN_NAMES: Final = re.compile(r"[^a-z0-9.-]")


def decision_of(
    explanations: Sequence[Explanation],
    shares: Sequence[Shares],
    *,
    subject_kind: str,
    subjects: Sequence[str],
    scheduler: str,
    reason: str,
    begun_ns: int,
    decided_ns: int,
) -> DecisionSpec:
    """Return the decision with the reasons of the last explanation: the pod's own, or that of a group's last pod.

    With `shares`, one for each explanation, the pods are bound; without, they were refused.
    """
    last = explanations[-1] if explanations else None
    placements = tuple(
        Placement(pod=why.subject, node=why.choice, devices=device_shares(pod_shares))
        for why, pod_shares in zip(explanations, shares, strict=False)
        if why.choice is not None
    )
    return DecisionSpec(
        subject_kind=subject_kind,
        subjects=tuple(subjects),
        outcome=Outcome.BOUND if shares else Outcome.REFUSED,
        profile="default" if last is None else last.profile,
        scheduler=line(scheduler),
        reason=line(reason),
        placements=placements,
        refused=() if last is None else refusals_of(last),
        scores=() if last is None else scores_of(last),
        begun_ns=begun_ns,
        decided_ns=decided_ns,
    )


def refusals_of(why: Explanation) -> tuple[Refusal, ...]:
    """Return refused nodes by their reason."""
    ordered = sorted(why.refused, key=lambda refused: (refused.policy, refused.reason, refused.name))
    return tuple(
        Refusal(reason=line(reason), policy=policy, nodes=tuple(refused.name for refused in group))
        for (policy, reason), group in groupby(ordered, key=lambda refused: (refused.policy, refused.reason))
    )


def scores_of(why: Explanation) -> tuple[Score, ...]:
    """Return the candidates' scores, the best first."""
    return tuple(
        Score(
            node=candidate.name,
            total=float(candidate.points),
            parts={scored.policy: float(scored.weight * scored.points) for scored in candidate.scores},
            reasons=tuple(_reason_of(scored.policy, scored.reason) for scored in candidate.scores),
        )
        for candidate in why.candidates
    )


@lru_cache(maxsize=4096)
def _reason_of(policy: str, reason: str) -> str:
    """Return a score's reason as one line; most reasons are shared by many nodes and pods."""
    return line(f"{policy}: {reason}")


def is_measured(snapshot: Snapshot, pod: PendingPod, node: str) -> bool | None:
    """Return whether the paths to a pod's peers are measured; None if there are no paths.

    Traffic to a peer on the same node does not cross the network.
    """
    if snapshot.costs is None or node not in snapshot.costs.model.host_number:
        return None
    numbers = snapshot.costs.model.host_number
    costs = [snapshot.costs.cost(peer.host, node) for peer in pod.peers if peer.host in numbers and peer.host != node]
    return all(cost.delay_basis is not Basis.NOMINAL for cost in costs) if costs else None


def decision_name(subject: str, suffix: str) -> str:
    """Return a name for a decision that includes its subject."""
    return f"{_NOT_IN_NAMES.sub('-', subject)[:80].strip('-.')}-{suffix}"


def line(text: str) -> str:
    """Return a text as one line of limited length."""
    if not text.isprintable() or "  " in text:
        text = " ".join(text.split())
    return text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."
