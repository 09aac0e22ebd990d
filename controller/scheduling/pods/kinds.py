"""Choice of the kind of device, for pods that accept several: one kind on each node, the best by the scores there.

A score that can tell kinds apart has `kind_points(pods, snapshot, nodes)`: the points of each node for each of several
pods, which differ only in the kind that they request, so that points of different kinds can be compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from controller.cluster.hardware import DeviceRequest, Node, Request, Shares
from controller.common.errors import SchedulerError
from controller.scheduling.framework.policies import Flags, Ids, Longs
from controller.scheduling.framework.profiles import WeightedScore
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import PendingPod
from dataplane.topology.values import DeviceKind

Scores = Sequence[WeightedScore[PendingPod, Snapshot]]


def usable_kinds(scores: Scores, pod: PendingPod, snapshot: Snapshot) -> Flags:
    """Return the devices that a pod may get: on each node those of the chosen kind, for each part of its request."""
    columns = snapshot.columns
    usable = np.ones(len(columns.device_node), np.bool_)
    for at, wanted in enumerate(pod.request.devices):
        if not wanted.is_open:
            continue
        others = np.zeros(len(usable), np.bool_)
        for other in (*pod.request.devices[:at], *pod.request.devices[at + 1 :]):
            others |= columns.accepted(other)
        chosen = _chosen(scores, pod, at, snapshot)[columns.device_node]
        for number, kind in enumerate(wanted.kinds):
            # Devices that other parts of the request may take stay.
            usable &= ~columns.accepted(wanted.of_kind(kind)) | (chosen == number) | others
    return usable


def settled(pod: PendingPod, snapshot: Snapshot, node: int) -> PendingPod:
    """Return a pod that requests the kinds that it would get on a node; a snapshot narrowed to them has one each."""
    if not pod.request.is_open:
        return pod
    for at, wanted in enumerate(pod.request.devices):
        if wanted.is_open:
            kind = wanted.kinds[int(np.argmax(_available(pod, at, snapshot)[:, node]))]
            pod = _with_kind(pod, at, kind)
    return pod


def settled_by(pod: PendingPod, shares: Shares, node: Node) -> PendingPod:
    """Return a pod that requests the kinds that it has been given of a node."""
    if not pod.request.is_open:
        return pod
    given = Counter(node.devices[share.number].kind for share in shares.devices)
    needs = list(pod.request.devices)
    for at in sorted(range(len(needs)), key=lambda at: (needs[at].is_open, -needs[at].count)):
        kind = max(needs[at].kinds, key=lambda kind: given[kind])
        given[kind] -= needs[at].count
        needs[at] = needs[at].of_kind(kind)
    return _with_needs(pod, needs)


def _chosen(scores: Scores, pod: PendingPod, at: int, snapshot: Snapshot) -> Longs:
    """Return the number of the kind chosen on each node for a part of the request.

    That is the one with the most points among those with enough free devices, the first on a tie; without any the one
    with the most devices.
    """
    wanted = pod.request.devices[at]
    enough = _available(pod, at, snapshot) >= wanted.count
    there = np.array([snapshot.columns.device_counts(wanted.of_kind(kind)) for kind in wanted.kinds])
    # A kind with enough free devices has at least 0 points, and those without are below.
    rank = np.where(enough, 0, there - len(snapshot.columns.device_node) - 1)
    (contested,) = np.nonzero(enough.sum(axis=0) > 1)
    if len(contested):
        pods = [_with_kind(pod, at, kind) for kind in wanted.kinds]
        points = _kind_points(scores, pods, snapshot, contested)
        rank[:, contested] = np.where(enough[:, contested], points, rank[:, contested])
    chosen: Longs = np.argmax(rank, axis=0)
    return chosen


def _kind_points(scores: Scores, pods: Sequence[PendingPod], snapshot: Snapshot, nodes: Ids) -> Longs:
    total = np.zeros((len(pods), len(nodes)), np.int64)
    for score in scores:
        policy: Any = score.policy
        if not hasattr(policy, "kind_points"):
            continue
        try:
            total += score.weight * np.array(policy.kind_points(pods, snapshot, nodes), np.int64)
        except Exception as error:  # a plug-in may raise anything
            problem = " ".join(f"kind_points failed: {type(error).__name__}: {error}".split())
            raise SchedulerError(f"policy {score.name}: pod {pods[0].name}: {problem}") from error
    return total


def _available(pod: PendingPod, at: int, snapshot: Snapshot) -> Longs:
    """Return how many devices of each kind and node could serve a part of a request, less those for other parts."""
    wanted, free, columns = pod.request.devices[at], snapshot.free, snapshot.columns
    free_for = (free.device_milli >= wanted.thousandths) & (free.device_memory_bytes >= wanted.memory_bytes)
    counts = np.array([columns.counted(columns.accepted(wanted.of_kind(kind)) & free_for) for kind in wanted.kinds])
    for number, kind in enumerate(wanted.kinds):
        counts[number] -= sum(need.count for need in pod.request.devices if need.kind is kind)
    return counts


def _with_kind(pod: PendingPod, at: int, kind: DeviceKind) -> PendingPod:
    needs = pod.request.devices
    return _with_needs(pod, [*needs[:at], needs[at].of_kind(kind), *needs[at + 1 :]])


def _with_needs(pod: PendingPod, needs: Sequence[DeviceRequest]) -> PendingPod:
    request = pod.request
    return replace(pod, request=Request(request.cpu_milli, request.memory_bytes, tuple(needs)))
