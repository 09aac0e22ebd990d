"""Explanations of a pod's node."""

from __future__ import annotations

import numpy as np

from controller.scheduling.framework.deciding import PASSES, Choice, Examined, examine
from controller.scheduling.framework.explaining import Explanation, refusals_in_words, scores_in_words
from controller.scheduling.framework.policies import Ids, Longs
from controller.scheduling.pods.profiles import PodProfile
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import PendingPod


def explain(
    profile: PodProfile,
    pod: PendingPod,
    snapshot: Snapshot,
    *,
    choice: Choice[PendingPod] | None = None,
    most: int = 16,
) -> Explanation:
    """Return the explanation of `decide` for a pod; the chosen node is always among the candidates."""
    decided, examined = examine(profile, pod, snapshot)
    return explained(profile, choice or decided, examined, most=most)


def explained(
    profile: PodProfile, choice: Choice[PendingPod], examined: Examined[Snapshot], *, most: int = 16
) -> Explanation:
    """Return the explanation of results: the best `most` candidates, best first, and as many refused nodes."""
    pod, names, nodes = choice.subject, examined.candidates.columns.names, examined.passing
    best = _best(examined.total, nodes != choice.candidate, most)
    refused = np.flatnonzero(examined.refuser != PASSES)[:most]
    node = names[choice.candidate] if choice.is_placed else None
    candidates = tuple(scores_in_words(profile, pod, examined, best, names.__getitem__)) if len(nodes) else ()
    return Explanation(
        subject=pod.name,
        profile=profile.name,
        choice=node,
        candidates=candidates,
        refused=tuple(refusals_in_words(profile, pod, examined, refused, names.__getitem__)),
        refused_by=choice.refused,
        passed=len(nodes),
        equal=choice.equal,
        summary=_summary(node, choice, len(nodes), candidates[0].points if candidates else 0),
    )


def _best(total: Longs, is_other: Ids, most: int) -> Ids:
    """Return the positions of the most points, most first; the chosen one before its equals, else in order."""
    if len(total) > most:
        least = np.partition(total, len(total) - most)[len(total) - most]
        places = np.flatnonzero(total >= least)
    else:
        places = np.arange(len(total))
    return places[np.lexsort((places, is_other[places], -total[places]))[:most]]


def _summary(node: str | None, choice: Choice[PendingPod], passed: int, points: int) -> str:
    nodes = passed + sum(count for _, count in choice.refused)
    if node is None:
        why = ", ".join(f"{count} by {name}" for name, count in choice.refused) or "there are none"
        return f"none of {nodes} nodes: {why}"
    drawn = f", one of {choice.equal} tied" if choice.equal > 1 else ""
    return f"{node}: {points} points, {passed} of {nodes} nodes could run it{drawn}"
