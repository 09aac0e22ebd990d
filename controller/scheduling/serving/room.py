"""Room made and kept for pods of a higher priority: holders, leaving pods, and promises."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from controller.apiserver.registry.evictions import Eviction, EvictionRequest, Nomination
from controller.apiserver.registry.placements import NewDecision
from controller.apiserver.resources import Pod
from controller.apiserver.resources.pod_group import MOST_PODS
from controller.cluster.cost_map import CostMap
from controller.cluster.hardware.errors import HardwareError
from controller.scheduling.containers.preemption import Cluster, Holder, Room
from controller.scheduling.containers.reservations import Reservation
from controller.scheduling.framework.deciding import filtered
from controller.scheduling.pods import PodProfile, Snapshot
from controller.scheduling.serving.view import ClusterView, is_waiting


def cluster_of(view: ClusterView, snapshot: Snapshot, unreserved: CostMap | None) -> Cluster:
    """Return the holders of shares; shares of deleted pods are left to the cleanup."""
    numbers, needs = snapshot.columns.number, defaultdict[str, list[Reservation]](list)
    for pod, reservation in view.reservations():
        needs[pod.metadata.name].append(reservation)
    holders = []
    for name, row in numbers.items():
        for share in view.nodes[name].shares:
            if (holder := view.pods.get(share.pod)) is not None:
                leaving = holder.status.then is not None or holder.metadata.deleting_ns is not None
                group, reserved = holder.spec.group or "", tuple(needs.get(share.pod, ()))
                holders.append(Holder(share.pod, row, share.value, priority_of(view, holder), group, leaving, reserved))
    return Cluster(snapshot, tuple(holders), unreserved)


def priority_of(view: ClusterView, pod: Pod) -> int:
    """Return the priority that a pod is placed by: its group's, if it has one."""
    group = None if pod.spec.group is None else view.groups.get(pod.spec.group)
    return pod.spec.priority if group is None else group.spec.priority


def promised(
    view: ClusterView, profiles: Mapping[str, PodProfile], pods: Sequence[Pod], snapshot: Snapshot
) -> Snapshot:
    """Return the snapshot without the room promised to other pods of the same or a higher priority.

    A promise counts while its pod waits and would fit there once the leaving pods have left.
    """
    mine, priority = {pod.metadata.name for pod in pods}, priority_of(view, pods[0])
    others = [
        pod
        for pod in view.nominated()
        if is_waiting(pod) and pod.metadata.name not in mine and priority_of(view, pod) >= priority
    ]
    others = [pod for pod in others if pod.status.nominated in snapshot.columns.number]
    if not others:
        return snapshot
    cluster = cluster_of(view, snapshot, None)
    soon, free = cluster.without(cluster.leaving), snapshot.free.copy()
    for pod in sorted(others, key=lambda pod: (-priority_of(view, pod), pod.metadata.name)):
        node, pending = soon.columns.number[str(pod.status.nominated)], view.pending(pod)
        profile = profiles.get(pod.spec.profile)
        if profile is None or not filtered(profile, pending, profile.seen(pending, soon))[0][node]:
            continue
        try:
            shares = profile.shares(pending, soon, node)
        except HardwareError:
            continue
        soon = soon.taking(node, shares)
        free.add(snapshot.columns, node, shares, -1)
    # Promised room may still be held by the pods that are leaving, which makes it negative.
    for column in (free.cpu_milli, free.memory_bytes, free.device_milli, free.device_memory_bytes):
        np.maximum(column, 0, out=column)
    return replace(snapshot, free=free)


def eviction_of(
    view: ClusterView, pods: Sequence[Pod], room: Room, names: Iterable[str], *, decision: NewDecision, subject: str
) -> EvictionRequest | None:
    """Return the request that evicts pods and promises the room; None if it exceeds one request."""
    if len(room.victims) + len(pods) > MOST_PODS:
        return None
    reason = f"room for {subject} of priority {priority_of(view, pods[0])}"
    return EvictionRequest(
        evictions=tuple(Eviction(pod=name, epoch=view.pods[name].status.epoch, reason=reason) for name in room.victims),
        nominations=tuple(Nomination(pod=pod.metadata.name, node=node) for pod, node in zip(pods, names, strict=True)),
        decision=decision,
    )
