"""Groups that reduce gradients in the network: one pod per host, close to one another in the reduction tree."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from controller.cluster.cost_map import UNREACHABLE_NS
from controller.scheduling.framework.policies import MOST_POINTS, Flags, Floats, Ids, Longs, NoSettings
from controller.scheduling.pods import PendingPod, Snapshot
from dataplane.config import Strict

_NS_PER_BYTE_AT_1_BPS = 8e9


class OneANode:
    """Refuses nodes that already have a pod of the group if it reduces in the network: one worker per host."""

    Settings = NoSettings
    # Simulations have no groups that reduce in the network; all others pass everywhere.
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return the nodes whose host has no pod of the group."""
        members = _members(pod, snapshot) if pod.is_reduced else []
        if not members:
            return None
        hosts = {snapshot.host_name(node) for node in members}
        return np.array([snapshot.host_name(node) not in hosts for node in range(len(snapshot.columns.nodes))])

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:  # noqa: ARG002 - a filter's signature
        """Return which group already has a pod there."""
        return f"its host already has a worker of group {pod.group}: in-network reduction takes one per host"


class TreeCost:
    """Prefers nodes that join the group's reduction tree at least cost: the path to the nearest host in it.

    Joining at the nearest host each time is Prim's rule, whose tree costs at most twice the optimum. The first pod has
    nothing to join: it prefers nodes with as many others nearby as the group still needs.
    """

    class Settings(Strict, frozen=True):
        """Number of bytes that travel up and down the tree in one piece."""

        nbytes: Annotated[int, Meta(ge=1)] = 1 << 20

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def is_neutral(self, pod: PendingPod, snapshot: Snapshot) -> bool:
        """Return whether the pod joins no tree, or the network is unknown."""
        return not pod.is_reduced or snapshot.costs is None

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return `MOST_POINTS` for the cheapest node, half of it for one that costs twice as much."""
        if not pod.is_reduced or snapshot.costs is None:
            return np.full(len(nodes), MOST_POINTS, np.int64)
        cost_ns = self._cost_ns(pod, snapshot, nodes)
        points = np.zeros(len(nodes), np.int64)
        reached = np.isfinite(cost_ns)
        if reached.any():
            # One nanosecond more keeps the quotient defined where the least cost is 0.
            points[reached] = np.rint(MOST_POINTS * (cost_ns[reached].min() + 1) / (cost_ns[reached] + 1))
        return points

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return where the node would join, and whether the path was measured."""
        if not pod.is_reduced:
            return "the pod's group does not reduce in the network"
        if snapshot.costs is None:
            return "the network is unknown"
        members = [member for member in _members(pod, snapshot) if snapshot.host[member] >= 0]
        if snapshot.host[node] < 0 or not members:
            return "the first pod of its group" if not members else "not in the topology"
        name = snapshot.host_name(node)
        near = min(members, key=lambda member: self._between(snapshot, np.array([member]), node).item())
        cost = snapshot.costs.cost(name, snapshot.host_name(near))
        if not cost.is_reachable:
            return f"{snapshot.host_name(near)}: unreachable"
        return (
            f"joins at {cost.dst}: {cost.delay_ns / 1e6:.3f} ms ({cost.delay_basis}) "
            f"and {cost.available_bps / 1e6:.1f} Mbit/s free ({cost.available_basis})"
        )

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the reasons for several nodes; if there is no tree to join, they share one reason."""
        if self.is_neutral(pod, snapshot):
            return [self.reason(pod, snapshot, 0)] * len(nodes)
        return [self.reason(pod, snapshot, node) for node in nodes.tolist()]

    def _cost_ns(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Floats:
        members = np.array(_members(pod, snapshot), np.int64)
        if len(members):
            joined: Floats = np.min([self._between(snapshot, nodes, member) for member in members.tolist()], axis=0)
            return joined
        wanted = min(max(pod.companions, 0), len(nodes) - 1)
        if not wanted:
            return np.zeros(len(nodes))
        between = np.array([self._between(snapshot, nodes, node) for node in nodes.tolist()])
        # A node is not its own companion.
        np.fill_diagonal(between, np.inf)
        nearest: Floats = np.partition(between, wanted - 1, axis=1)[:, :wanted].sum(axis=1)
        return nearest

    def _between(self, snapshot: Snapshot, nodes: Ids, other: int) -> Floats:
        """Return the time of a piece between nodes and another node, in the slower direction; inf if unreachable."""
        assert snapshot.costs is not None
        pairs, hosts, end = snapshot.costs.pairs, snapshot.host[nodes], snapshot.host[other]
        longest_ns = np.zeros(len(nodes), np.float64)
        for src, dst in ((hosts, end), (end, hosts)):
            delay_ns, free_bps = pairs.delay_ns[src, dst], pairs.available_bps[src, dst]
            reached = (delay_ns != UNREACHABLE_NS) & (free_bps > 0) & (hosts >= 0) & (end >= 0)
            cost_ns = delay_ns + self.settings.nbytes * _NS_PER_BYTE_AT_1_BPS / np.maximum(free_bps, 1)
            longest_ns = np.maximum(longest_ns, np.where(reached, cost_ns, np.inf))
        return np.where(hosts == end, np.where(hosts >= 0, 0.0, np.inf), longest_ns)


def _members(pod: PendingPod, snapshot: Snapshot) -> list[int]:
    return sorted(node for node, count in snapshot.groups.get(pod.group, {}).items() if count)
