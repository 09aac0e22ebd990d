"""Evictions: ask pods that hold shares to stop, to make room for others; no storage access.

An evicted pod keeps its share until its node has stopped and released it; then it enters the phase `then`. A group
that is evicted whole is placed whole again. A request takes effect as a whole or not at all.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from controller.apiserver.registry.placements import NewDecision, State
from controller.apiserver.resources import Pod
from controller.apiserver.resources.base import Count, Line, Name
from controller.apiserver.resources.pod import Phase
from controller.apiserver.resources.pod_group import MOST_PODS, GroupPhase
from controller.common.errors import InvalidError, NotFoundError, StaleError
from dataplane.config import Strict

_AFTERWARDS = (Phase.PENDING, Phase.FAILED)


class Eviction(Strict, frozen=True):
    """Stop a pod if it is still bound with this epoch; once released it is placed again, or has failed."""

    pod: Name
    epoch: Count
    reason: Line = ""
    then: Phase = Phase.PENDING

    def __post_init__(self) -> None:
        if self.then not in _AFTERWARDS:
            raise ValueError(f"then: an evicted pod must become pending or failed, not {self.then.value}")


class Nomination(Strict, frozen=True):
    """Reserve the room that becomes free on a node for a waiting pod: no pod of a lower priority takes it."""

    pod: Name
    node: Name


class EvictionRequest(Strict, frozen=True):
    """Evictions that take effect together, the pods they make room for, and the decision behind them."""

    evictions: Annotated[tuple[Eviction, ...], Meta(min_length=1, max_length=MOST_PODS)]
    nominations: Annotated[tuple[Nomination, ...], Meta(max_length=MOST_PODS)] = ()
    decision: NewDecision | None = None

    @property
    def pods(self) -> tuple[str, ...]:
        """All pods concerned."""
        return (*(item.pod for item in self.evictions), *(item.pod for item in self.nominations))


def evict(state: State, request: EvictionRequest) -> State:
    """Return the state after a request; raise StaleError if a pod is no longer bound with that epoch."""
    names = request.pods
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise InvalidError(f"Pod {twice} is given twice")
    made = State(groups=dict(state.groups))
    for item in request.evictions:
        pod = _pod(state, item.pod)
        _check_bound(pod, item)
        reasons = (item.reason,) if item.reason else ()
        status = replace(pod.status, phase=Phase.STOPPING, then=item.then, reasons=reasons)
        made.pods[item.pod] = replace(pod, status=status)
    for nomination in request.nominations:
        pod = _pod(state, nomination.pod)
        if pod.status.node is not None or pod.status.phase is not Phase.PENDING:
            raise StaleError(f"Pod {nomination.pod} no longer waits: it is {pod.status.phase.value}")
        if nomination.node not in state.nodes:
            raise NotFoundError(f"there is no Node {nomination.node}")
        made.pods[nomination.pod] = replace(pod, status=replace(pod.status, nominated=nomination.node))
    _end_groups(made, request)
    return made


def _end_groups(made: State, request: EvictionRequest) -> None:
    """Return groups that lose all bound pods to pending, to be placed whole, not member by member."""
    evicted = (made.pods[item.pod] for item in request.evictions if item.then is Phase.PENDING)
    counts = Counter(pod.spec.group for pod in evicted if pod is not None and pod.spec.group is not None)
    for name, group in list(made.groups.items()):
        if group.status.phase is GroupPhase.BOUND and counts[name] >= group.status.bound:
            status = replace(group.status, phase=GroupPhase.PENDING, bound=0)
            made.groups[name] = replace(group, status=status)
        else:
            del made.groups[name]


def _check_bound(pod: Pod, item: Eviction) -> None:
    status = pod.status
    if status.node is None:
        raise StaleError(f"Pod {item.pod} is on no node")
    if status.epoch != item.epoch:
        raise StaleError(f"Pod {item.pod} is in epoch {status.epoch}, no longer in {item.epoch}")
    if pod.metadata.deleting_ns is not None or status.then is not None:
        what = "being evicted" if status.then is not None else "being deleted"
        raise StaleError(f"Pod {item.pod} is already {what}")


def _pod(state: State, name: str) -> Pod:
    pod = state.pods.get(name)
    if pod is None:
        raise NotFoundError(f"there is no Pod {name}")
    return pod
