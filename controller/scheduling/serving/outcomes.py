"""Decisions about waiting pods, with their reasons; pure except for the clock used in decisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replace_outcome

from msgspec.structs import replace

from controller.apiserver.resources import Pod
from controller.apiserver.resources.decision import DecisionSpec
from controller.apiserver.resources.decision import Outcome as DecisionOutcome
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Shares
from controller.scheduling.containers.preemption import Room, make_room
from controller.scheduling.framework.deciding import Examined, examine
from controller.scheduling.framework.explaining import Explanation
from controller.scheduling.pods import PodChoice, PodProfile, Snapshot, explain, place_group
from controller.scheduling.pods.explaining import explained
from controller.scheduling.serving.decisions import decision_of, is_measured
from controller.scheduling.serving.room import cluster_of, priority_of, promised
from controller.scheduling.serving.view import ClusterView


@dataclass(frozen=True, slots=True)
class Outcome:
    """The decision about a pod or a group; without shares it was refused, and `room` may be made for it."""

    pods: tuple[Pod, ...]
    choices: tuple[PodChoice, ...]
    shares: tuple[Shares, ...]
    explanations: tuple[Explanation, ...]
    reason: str
    room: Room | None = None
    examined: tuple[Examined[Snapshot], ...] = ()
    """The policies' results for each pod that gets shares."""
    kind: str = ""
    """The reason without figures, which change constantly; empty if it has none."""


@dataclass(frozen=True, slots=True)
class Knowledge:
    """Inputs of decisions: the cluster, profiles by name, and the current network."""

    view: ClusterView
    profiles: Mapping[str, PodProfile]
    costs: CostMap | None

    @property
    def snapshot(self) -> Snapshot:
        """The cluster as policies see it."""
        return self.view.snapshot(self.costs)


def outcome_of(subject: str, pods: tuple[Pod, ...], knowledge: Knowledge, most: int) -> Outcome:
    """Return the decision about a pod, or the pods of a group, with the reasons of `most` nodes of each sort."""
    outcome = _decided(subject, pods, knowledge, most)
    if outcome.shares or not outcome.explanations:
        return outcome
    room = _room(pods, knowledge)
    if room is None:
        return outcome
    if not room.victims:
        more = "it waits for pods that are stopping"
    else:
        more = f"evicting pods of lower priority: {', '.join(room.victims)}"
    return replace_outcome(
        outcome, room=room, reason=f"{outcome.reason}; {more}", kind=outcome.kind and f"{outcome.kind}; {more}"
    )


def spec_of(
    kind: str, subject: str, outcome: Outcome, knowledge: Knowledge, *, scheduler: str, begun_ns: int, now_ns: int
) -> DecisionSpec:
    """Return a decision as it is stored; times are since 1970."""
    spec = decision_of(
        outcome.explanations,
        outcome.shares,
        subject_kind="pod" if kind == "pod" else "podgroup",
        subjects=[subject] if kind == "pod" else [pod.metadata.name for pod in outcome.pods],
        scheduler=scheduler,
        reason=outcome.reason,
        begun_ns=begun_ns,
        decided_ns=now_ns,
    )
    measured = None
    if outcome.shares:
        choice, snapshot = outcome.choices[-1], knowledge.snapshot
        measured = is_measured(snapshot, choice.subject, snapshot.columns.names[choice.candidate])
    group = subject if kind == "group" else None
    if outcome.room is not None and outcome.room.victims:
        spec = replace(spec, outcome=DecisionOutcome.PREEMPTING, preempted=outcome.room.victims)
    return replace(spec, profile=outcome.pods[0].spec.profile, measured=measured, group=group)


def _room(pods: tuple[Pod, ...], knowledge: Knowledge) -> Room | None:
    """Return the victims for pods that were refused, None if preemption helps none of them."""
    view = knowledge.view
    priority = priority_of(view, pods[0])
    held = (pod for pod in view.pods.values() if pod.status.node is not None)
    if not any(priority_of(view, pod) < priority or pod.status.then is not None for pod in held):
        return None
    snapshot = promised(view, knowledge.profiles, pods, knowledge.snapshot)
    pending = [view.pending(pod) for pod in pods]
    cluster = cluster_of(view, snapshot, knowledge.costs)
    return make_room(knowledge.profiles[pods[0].spec.profile], pending, cluster, priority)


def _decided(subject: str, pods: tuple[Pod, ...], knowledge: Knowledge, most: int) -> Outcome:
    view = knowledge.view
    snapshot = promised(view, knowledge.profiles, pods, knowledge.snapshot)
    if reason := _unsupported(pods):
        return Outcome(pods, (), (), (), reason)
    profile = knowledge.profiles[pods[0].spec.profile]
    pending = [view.pending(pod) for pod in pods]
    if len(pods) == 1:
        choice, examined = examine(profile, pending[0], snapshot)
        why = explained(profile, choice, examined, most=most)
        shares = (profile.shares(pending[0], snapshot, choice.candidate),) if choice.is_placed else ()
        return Outcome(pods, (choice,), shares, (why,), why.reason, examined=(examined,), kind=why.summary)
    group = place_group(profile, pending, snapshot)
    if not group.is_placed:
        blocked = next((choice.subject for choice in group.choices if not choice.is_placed), pending[0])
        why = explain(profile, blocked, snapshot, most=most)
        what = f"group {subject} does not fit as a whole: {blocked.name}"
        return Outcome(pods, (), (), (why,), f"{what}: {why.reason}", kind=f"{what}: {why.summary}")
    explained_all = list(_explained(profile, snapshot, group.choices, group.shares, most))
    explanations, examined_all = (
        tuple(why for why, _ in explained_all),
        tuple(examined for _, examined in explained_all),
    )
    reason = f"all {len(pods)} pods of group {subject}"
    return Outcome(pods, group.choices, group.shares, explanations, reason, examined=examined_all)


def _unsupported(pods: Sequence[Pod]) -> str:
    """Return the part of a request that this scheduler does not support; empty if there is none."""
    profiles = {pod.spec.profile for pod in pods}
    if len(profiles) > 1:
        return f"its pods have profiles {' and '.join(sorted(profiles))}: a group has one"
    return ""


def _explained(
    profile: PodProfile, snapshot: Snapshot, choices: Sequence[PodChoice], shares: Sequence[Shares], most: int
) -> Iterator[tuple[Explanation, Examined[Snapshot]]]:
    """Yield why each pod of a group was placed on its node, each after what those before it took."""
    for choice, pod_shares in zip(choices, shares, strict=True):
        examined = examine(profile, choice.subject, snapshot)[1]
        yield explained(profile, choice, examined, most=most), examined
        snapshot = snapshot.taking(choice.candidate, pod_shares, choice.subject.group, choice.subject.peers)
