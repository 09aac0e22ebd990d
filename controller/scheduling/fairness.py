"""Fair shares: each project, and each user without one, gets a weighted share of the resources; pure.

An account's share is its share of the resource that it holds most of (dominant resource fairness: Ghodsi et al., NSDI
2011), over its weight. Among accounts waiting at the same priority, the one with the smallest share is next, so unused
shares go to the others, and each gets its part as room is released. Nothing is taken away from an account.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import Final, TypeVar

from controller.apiserver.resources import Node, Pod, Project
from controller.apiserver.resources.base import Metadata

T = TypeVar("T")
_ANY: Final = "accelerator"
"""The resource of pods that accept several kinds of devices."""


class Weights:
    """The weights of projects, from their resources; all other accounts have weight 1."""

    def __init__(self) -> None:
        self._of: dict[str, float] = {}

    def take_all(self, projects: Iterable[Project]) -> None:
        """Replace all known projects."""
        self._of = {project.metadata.account: project.spec.weight for project in projects}

    def take(self, project: Project) -> None:
        """Add or update a project."""
        self._of[project.metadata.account] = project.spec.weight

    def remove(self, name: str) -> None:
        """Remove a project."""
        self._of.pop(Metadata(name=name, project=name).account, None)

    def of(self, account: str) -> float:
        """Return an account's weight."""
        return self._of.get(account, 1.0)


class PodShares:
    """Resources held by the pods of each account over all nodes, updated pod by pod and node by node.

    A pod holds resources if it is bound and a node shows its share. Pods and nodes arrive by separate watches, and a
    release counts as soon as either shows it: otherwise room that a node shows as free would go to the next account
    while the account that released it still seems to hold it.
    """

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self._held: dict[str, dict[str, int]] = {}
        self._total = Counter[str]()
        self._bound: dict[str, Pod] = {}
        self._shown = Counter[str]()
        """Shares on nodes by the names of their pods."""

    def replace_pod(self, before: Pod | None, now: Pod | None) -> None:
        """Replace a pod's previous state with its current one."""
        previous = None if before is None or before.status.node is None else before
        current = None if now is None or now.status.node is None else now
        if previous is not None and current is not None and _is_same(previous, current):
            self._bound[current.metadata.name] = current
            return  # usually just a report
        if previous is not None:
            self._bound.pop(previous.metadata.name, None)
            if self._shown[previous.metadata.name]:
                self._add(previous, -1)
        if current is not None:
            self._bound[current.metadata.name] = current
            if self._shown[current.metadata.name]:
                self._add(current, 1)

    def _add(self, pod: Pod, sign: int) -> None:
        account = pod.metadata.account
        held = self._held.setdefault(account, {})
        for name, amount in _request_of(pod).items():
            held[name] = held.get(name, 0) + sign * amount
        if sign < 0 and not any(held.values()):
            del self._held[account]

    def replace_node(self, before: Node | None, now: Node | None) -> None:
        """Replace a node's previous state with its current one."""
        if before is None or now is None or before.hardware != now.hardware:
            if before is not None:
                self._total.subtract(_hardware_of(before))
            if now is not None:
                self._total.update(_hardware_of(now))
        old_shares, new_shares = () if before is None else before.shares, () if now is None else now.shares
        if old_shares != new_shares:
            self._replace_shares({share.pod for share in old_shares}, {share.pod for share in new_shares})

    def _replace_shares(self, old: set[str], new: set[str]) -> None:
        for names, sign in ((new - old, 1), (old - new, -1)):
            for name in names:
                self._shown[name] += sign
                if self._shown[name] == 0:
                    del self._shown[name]
                # Add with the first share, subtract with the last one.
                if self._shown[name] == (1 if sign > 0 else 0) and (pod := self._bound.get(name)) is not None:
                    self._add(pod, sign)

    def of(self, account: str) -> float:
        """Return an account's share over its weight."""
        held = self._held.get(account)
        if held is None:
            return 0.0
        most = max((count / self._total[name] for name, count in held.items() if self._total[name] > 0), default=0.0)
        return most / self.weights.of(account)


def in_turn(
    subjects: Iterable[T], account_of: Callable[[T], str], size_of: Callable[[T], float], held: Mapping[str, float]
) -> list[T]:
    """Return subjects in the order in which accounts take turns, keeping each account's own order.

    `held` is what accounts hold over their weights, and `size_of` what a subject adds to that.
    """
    waiting: dict[str, list[T]] = {}
    for subject in subjects:
        waiting.setdefault(account_of(subject), []).append(subject)
    # On a tie the account that came first goes first.
    turns = [(held.get(account, 0.0), position, account, 0) for position, account in enumerate(waiting)]
    heapify(turns)
    ordered = list[T]()
    while turns:
        share, position, account, number = heappop(turns)
        subject = waiting[account][number]
        ordered.append(subject)
        if number + 1 < len(waiting[account]):
            heappush(turns, (share + size_of(subject), position, account, number + 1))
    return ordered


def _is_same(pod: Pod, other: Pod) -> bool:
    """Return whether two pods hold the same resources for the same account."""
    mine, theirs = pod.metadata, other.metadata
    is_one_account = mine.owner == theirs.owner and mine.project == theirs.project
    return is_one_account and pod.spec.requested == other.spec.requested


def _request_of(pod: Pod) -> dict[str, int]:
    request = pod.spec.requested
    amounts = {"cpu": request.cpu_milli, "memory": request.memory_bytes}
    for need in request.devices:
        # A pod of several kinds counts against all devices.
        kind = _ANY if need.kind is None else need.kind.value
        amounts[kind] = amounts.get(kind, 0) + need.count * need.thousandths
    return amounts


def _hardware_of(node: Node) -> dict[str, int]:
    hardware = node.hardware
    if hardware is None:
        return {}
    amounts = {"cpu": hardware.cpu_milli, "memory": sum(medium.capacity_bytes for medium in hardware.memory)}
    for device in hardware.devices:
        for kind in (device.kind.value, _ANY):
            amounts[kind] = amounts.get(kind, 0) + 1000
    return amounts
