"""Groups of pods that are placed as a whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from controller.cluster.hardware import Shares
from controller.scheduling.framework.deciding import decide
from controller.scheduling.pods.profiles import PodProfile
from controller.scheduling.pods.searching import GroupChoice, has_needs, search_group, with_mates
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import PendingPod, PodChoice

MOST_ORDERS: Final = 8
"""Number of pod orders to try before a group is refused."""


def place_group(
    profile: PodProfile, pods: Sequence[PendingPod], snapshot: Snapshot, *, least: int | None = None
) -> GroupChoice:
    """Decide about pods one after the other, each given what those before it took; place `least` of them or none.

    `least` defaults to all of them. If there cannot be room for that many, no policy is called and the result has no
    choices. If a pod does not fit after others have chosen, other orders are tried: the largest requests first, and
    then, each time, the pod that did not fit first. Groups with network requirements are placed by a search
    instead, because no order may find an existing placement (`search_group`). The reported refusal is that of the
    group's own order.
    """
    needed = len(pods) if least is None else least
    if room_for(snapshot, pods) < needed:
        return GroupChoice((), (), is_placed=False)
    first, blocked = _placed(profile, pods, snapshot, needed)
    if first.is_placed or blocked is None or len(pods) == 1 or blocked == 0:
        return first
    if needed == len(pods) and has_needs(pods):
        return search_group(profile, pods, snapshot) or first
    order = sorted(range(len(pods)), key=lambda index: (_size(pods[index], snapshot), -index), reverse=True)
    tried = {tuple(range(len(pods)))}
    for _ in range(MOST_ORDERS):
        if tuple(order) in tried:
            break
        tried.add(tuple(order))
        result, blocked = _placed(profile, [pods[index] for index in order], snapshot, needed)
        if result.is_placed:
            return _in_order(result, order)
        if not blocked:
            break  # the first pod does not fit: no order will help
        order.insert(0, order.pop(blocked))
    return first


def _placed(
    profile: PodProfile, pods: Sequence[PendingPod], snapshot: Snapshot, needed: int
) -> tuple[GroupChoice, int | None]:
    """Place pods in this order; also return the number of the first one that does not fit."""
    choices: list[PodChoice] = []
    shares: list[Shares] = []
    blocked: int | None = None
    hosts: dict[str, str] = {}
    for index, member in enumerate(pods):
        pod = replace(with_mates(member, pods, hosts), companions=len(pods) - index - 1)
        choice = decide(profile, pod, snapshot)
        choices.append(choice)
        if choice.is_placed:
            taken = profile.shares(pod, snapshot, choice.candidate)
            shares.append(taken)
            hosts[member.name] = snapshot.host_name(choice.candidate)
            snapshot = snapshot.taking(choice.candidate, taken, pod.group, pod.peers)
            continue
        blocked = index if blocked is None else blocked
        # Give up once the number is out of reach even if all remaining pods fit.
        if len(shares) + len(pods) - index - 1 < needed:
            break
    return GroupChoice(tuple(choices), tuple(shares), len(shares) >= needed), blocked


def _size(pod: PendingPod, snapshot: Snapshot) -> tuple[int, int, int, int]:
    """Return how hard a pod is to place: whether nodes were stated, its devices, its peers' bandwidth, its cores."""
    stated = len(pod.locations) or len(snapshot.columns.nodes)
    devices = sum(wanted.count * wanted.thousandths for wanted in pod.request.devices)
    needs = sum(peer.min_bps for peer in pod.peers) + sum(mate.min_bps for mate in pod.mates)
    return -stated, devices, needs, pod.request.cpu_milli


def _in_order(result: GroupChoice, order: Sequence[int]) -> GroupChoice:
    """Return the result of another order in the group's own order."""
    at = {index: number for number, index in enumerate(order[: len(result.choices)])}
    shares = iter(result.shares)
    by = {index: next(shares) for index, choice in zip(order, result.choices, strict=False) if choice.is_placed}
    places = sorted(at)
    return GroupChoice(
        tuple(result.choices[at[index]] for index in places),
        tuple(by[index] for index in places if index in by),
        result.is_placed,
    )


def room_for(snapshot: Snapshot, pods: Sequence[PendingPod]) -> int:
    """Return an upper bound of the pods that fit, from the smallest request for each resource."""
    free, most = snapshot.free, np.full(len(snapshot.columns.nodes), len(pods), np.int64)
    if cpu_milli := min((pod.request.cpu_milli for pod in pods), default=0):
        most = np.minimum(most, free.cpu_milli // cpu_milli)
    if memory_bytes := min((pod.request.memory_bytes for pod in pods), default=0):
        most = np.minimum(most, free.memory_bytes // memory_bytes)
    return min(int(np.maximum(most, 0).sum()), len(pods))
