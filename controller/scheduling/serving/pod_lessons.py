"""Outcomes of pods' bindings, from the pods' records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from controller.apiserver.resources import Pod
from controller.apiserver.resources.pod import Phase
from controller.scheduling.framework.deciding import Examined
from controller.scheduling.framework.lessons import Learner
from controller.scheduling.pods import PodChoice, PodProfile, Snapshot
from controller.scheduling.serving.lessons import Lessons
from controller.scheduling.serving.view import ClusterView, is_ready

_ENDED: Final = (Phase.SUCCEEDED, Phase.FAILED, Phase.LOST)


def utilisation_of(view: ClusterView) -> float:
    """Return the share of the cores of all ready nodes that running pods have requested."""
    nodes = {name: node for name, node in view.nodes.items() if is_ready(node) and node.value is not None}
    cores = sum(node.value.cpu_milli for node in nodes.values() if node.value is not None)
    running = (pod for pod in view.pods.values() if pod.status.phase is Phase.RUNNING and pod.status.node in nodes)
    return min(sum(pod.spec.request.cpu_milli for pod in running) / cores, 1.0) if cores else 0.0


def bound(
    lessons: Lessons,
    view: ClusterView,
    profile: PodProfile,
    choices: Sequence[PodChoice],
    examined: Sequence[Examined[Snapshot]],
) -> None:
    """Tell a profile's learning policy which pods were bound, and track the outcomes.

    The measured time is from a pod's creation to its start; for a pod that is placed again, from its new binding.
    """
    learner = lessons.learners.get(profile.name)
    if not isinstance(learner, Learner):
        return
    for choice, seen in zip(choices, examined, strict=True):
        pod = view.pods.get(choice.subject.name)
        if pod is None or pod.status.node is None:
            continue
        name, status = pod.metadata.name, pod.status
        key = f"{name}/{status.epoch}"
        learner.note(choice.subject, seen.candidates, seen.passing, choice.candidate)(key)
        asked_ns = pod.metadata.created_ns if status.epoch <= 1 else status.bound_ns or 0
        lessons.record(name, learner, key=key, epoch=status.epoch, asked_ns=asked_ns)
        read_outcome(lessons, pod)


def read_outcome(lessons: Lessons, pod: Pod) -> None:
    """Read the outcome of a pod's last binding from its record."""
    name, status = pod.metadata.name, pod.status
    if (awaited := lessons.awaited(name)) is None:
        return
    if status.epoch != awaited.epoch:
        lessons.failed(name)
        return
    if status.started_ns is not None and status.started_ns >= (status.bound_ns or 0):
        lessons.started(name, status.started_ns)
    elif status.phase is Phase.SUCCEEDED and status.finished_ns is not None:
        # It ended before its node saw it run.
        lessons.started(name, status.finished_ns)
    if status.phase in _ENDED and status.finished_ns is not None:
        lessons.ended(name, status.finished_ns)
    elif status.phase in _ENDED or status.node is None:
        lessons.failed(name)


def read_outcomes(lessons: Lessons, view: ClusterView) -> None:
    """Read all pods' records after they were listed again."""
    for name in lessons.subjects():
        if (pod := view.pods.get(name)) is None:
            lessons.gone(name)
        else:
            read_outcome(lessons, pod)
