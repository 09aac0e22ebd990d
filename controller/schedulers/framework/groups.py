"""Groups of pods that are placed whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.cluster.hardware import Shares
from controller.schedulers.framework.deciding import Choice, decide
from controller.schedulers.framework.profiles import Profile
from controller.schedulers.framework.snapshot import Snapshot
from controller.schedulers.framework.values import PendingPod


@dataclass(frozen=True, slots=True)
class GroupChoice:
    """What each pod of a group gets, in the group's order; if not all were placed, nothing is to be bound.

    `shares` are beside `choices`, one for each that was placed.
    """

    choices: tuple[Choice, ...]
    shares: tuple[Shares, ...]
    is_placed: bool


def place_group(
    profile: Profile, pods: Sequence[PendingPod], snapshot: Snapshot, *, least: int | None = None
) -> GroupChoice:
    """Decide about pods one after the other, each with what those before it took, and place `least` of them or none.

    `least` is all of them unless given. Where there cannot be room for so many, no policy is asked, and there are no
    choices. The order is the group's: another order may place a group that this one does
    not.
    """
    needed = len(pods) if least is None else least
    if room_for(snapshot, pods) < needed:
        return GroupChoice((), (), is_placed=False)
    choices: list[Choice] = []
    shares: list[Shares] = []
    for place, member in enumerate(pods):
        pod = replace(member, companions=len(pods) - place - 1)
        choice = decide(profile, pod, snapshot)
        choices.append(choice)
        if choice.is_placed:
            taken = profile.shares(pod, snapshot, choice.node)
            shares.append(taken)
            snapshot = snapshot.taking(choice.node, taken, pod.group)
        elif len(shares) + len(pods) - place - 1 < needed:
            break
    return GroupChoice(tuple(choices), tuple(shares), len(shares) >= needed)


def room_for(snapshot: Snapshot, pods: Sequence[PendingPod]) -> int:
    """Return at most how many of the pods there is room for, by what the least of them asks for of each resource."""
    free, most = snapshot.free, np.full(len(snapshot.columns.nodes), len(pods), np.int64)
    if cpu_milli := min((pod.request.cpu_milli for pod in pods), default=0):
        most = np.minimum(most, free.cpu_milli // cpu_milli)
    if memory_bytes := min((pod.request.memory_bytes for pod in pods), default=0):
        most = np.minimum(most, free.memory_bytes // memory_bytes)
    return min(int(np.maximum(most, 0).sum()), len(pods))
