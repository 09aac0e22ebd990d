"""The built-in scores."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from controller.cluster.cost_map import UNREACHABLE_NS
from controller.scheduling.framework.policies import MOST_POINTS, Ids, Longs, NoSettings
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import Peer, PendingPod
from dataplane.config import Strict

Floats = npt.NDArray[np.float64]
_NS_PER_BYTE_AT_1_BPS = 8e9


class LeastUsed:
    """Prefers nodes with the most left once the pod is there: spreads load."""

    class Settings(Strict, frozen=True):
        """Set to skip pods that request devices: spreading them over nodes leaves no node with several free devices."""

        but_for_devices: bool = False

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def is_neutral(self, pod: PendingPod, snapshot: Snapshot) -> bool:  # noqa: ARG002 - a score's signature
        """Return whether the pod is skipped."""
        return self.settings.but_for_devices and bool(pod.request.devices)

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return the mean free share, in thousandths, of the cores, memory and devices that the pod asks for."""
        if self.is_neutral(pod, snapshot):
            return np.full(len(nodes), MOST_POINTS, np.int64)
        return _free_milli(pod, snapshot, nodes)

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the free share."""
        return self.reasons(pod, snapshot, np.array([node]), self.points(pod, snapshot, np.array([node])))[0]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:
        """Return the free shares, which are the points."""
        if self.is_neutral(pod, snapshot):
            return ["applies only to pods without devices"] * len(nodes)
        return [f"{milli / 10:.1f} % of it stays free" for milli in points.tolist()]


class MostUsed:
    """Prefers nodes with the least left once the pod is there (bin packing): whole nodes stay free."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return the complement of `LeastUsed`."""
        return MOST_POINTS - _free_milli(pod, snapshot, nodes)

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the used share."""
        return self.reasons(pod, snapshot, np.array([node]), self.points(pod, snapshot, np.array([node])))[0]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the used shares, which are the points."""
        return [f"{milli / 10:.1f} % of it would be used" for milli in points.tolist()]


class Spread:
    """Prefers nodes with fewer pods of the pod's group."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def is_neutral(self, pod: PendingPod, snapshot: Snapshot) -> bool:
        """Return whether no pod of the group is placed."""
        return not (pod.group and snapshot.groups.get(pod.group))

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return `MOST_POINTS` over 1 plus the group's pods there."""
        counts = snapshot.groups.get(pod.group, {}) if pod.group else {}
        members = np.zeros(len(snapshot.columns.nodes), np.int64)
        for node, count in counts.items():
            members[node] = count
        points: Longs = MOST_POINTS // (1 + members[nodes])
        return points

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return how many pods of the group are there."""
        if not pod.group:
            return "the pod has no group"
        return f"{snapshot.groups.get(pod.group, {}).get(node, 0)} pods of group {pod.group}"

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the reasons for several nodes."""
        if not pod.group:
            return [self.reason(pod, snapshot, 0)] * len(nodes)
        return [self.reason(pod, snapshot, node) for node in nodes.tolist()]


class NetworkCost:
    """Prefers nodes that get the bytes of the pod's peers soonest, by the cost map: delay and free bandwidth."""

    class Settings(Strict, frozen=True):
        """Bytes assumed for a peer that does not state them."""

        default_bytes: int = 1 << 20

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def is_neutral(self, pod: PendingPod, snapshot: Snapshot) -> bool:
        """Return whether there are no peers, or the network is unknown."""
        return not pod.peers or snapshot.costs is None

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return `MOST_POINTS` for the node with the shortest sum of transfers, half of it for twice as long."""
        if self.is_neutral(pod, snapshot) or snapshot.costs is None:
            return np.full(len(nodes), MOST_POINTS, np.int64)
        cost_ns = self._cost_ns(pod, snapshot, nodes)
        points = np.zeros(len(nodes), np.int64)
        reached = np.isfinite(cost_ns)
        if reached.any():
            # One nanosecond more keeps the quotient defined where the least cost is 0.
            points[reached] = np.rint(MOST_POINTS * (cost_ns[reached].min() + 1) / (cost_ns[reached] + 1))
        return points

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the path between each peer and the node, and whether it was measured."""
        if snapshot.costs is None:
            return "the network is unknown"
        if not pod.peers:
            return "the pod has no peers"
        return "; ".join(self._between(peer, snapshot, node) for peer in pod.peers)

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the reasons for several nodes; without peers or figures, they share one reason."""
        if self.is_neutral(pod, snapshot):
            return [self.reason(pod, snapshot, 0)] * len(nodes)
        return [self.reason(pod, snapshot, node) for node in nodes.tolist()]

    def _cost_ns(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Floats:
        assert snapshot.costs is not None
        pairs, numbers = snapshot.costs.pairs, snapshot.costs.model.host_number
        to = snapshot.host[nodes]
        total_ns = np.zeros(len(nodes), np.float64)
        for peer in pod.peers:
            if (row := numbers.get(peer.host)) is None:
                continue
            nbytes = peer.nbytes or self.settings.default_bytes
            delay_ns, free_bps = pairs.delay_ns[row, to], pairs.available_bps[row, to]
            reached = (delay_ns != UNREACHABLE_NS) & (free_bps > 0) & (to >= 0)
            cost_ns = delay_ns + nbytes * _NS_PER_BYTE_AT_1_BPS / np.maximum(free_bps, 1)
            total_ns += np.where(to == row, 0.0, np.where(reached, cost_ns, np.inf))
        return total_ns

    def _between(self, peer: Peer, snapshot: Snapshot, node: int) -> str:
        assert snapshot.costs is not None
        name, numbers = snapshot.host_name(node), snapshot.costs.model.host_number
        if peer.host not in numbers or name not in numbers:
            return f"{peer.host}: not in the topology"
        if peer.host == name:
            return f"{peer.host}: the same host"
        cost = snapshot.costs.cost(peer.host, name)
        if not cost.is_reachable:
            return f"{peer.host}: unreachable"
        nbytes = peer.nbytes or self.settings.default_bytes
        note = ", less reservations of bound pods" if snapshot.costs.is_predicted else ""
        return (
            f"{peer.host}: {nbytes} bytes over {cost.delay_ns / 1e6:.3f} ms ({cost.delay_basis}) "
            f"and {cost.available_bps / 1e6:.1f} Mbit/s free ({cost.available_basis}{note})"
        )


def _free_milli(pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
    """Return the free share of nodes with the pod, in thousandths: the mean over the resources it requests."""
    request, columns, free = pod.request, snapshot.columns, snapshot.free
    parts = []
    if request.cpu_milli or not (request.memory_bytes or request.devices):
        parts.append(_milli(free.cpu_milli[nodes] - request.cpu_milli, columns.cpu_milli[nodes]))
    if request.memory_bytes:
        parts.append(_milli(free.memory_bytes[nodes] - request.memory_bytes, columns.memory_bytes[nodes]))
    if request.devices:
        wanted = sum(device.count * device.thousandths for device in request.devices)
        total = np.concatenate(([0], np.cumsum(free.device_milli)))[columns.device_start]
        device_free = (total[1:] - total[:-1])[nodes]
        capacity = (columns.device_start[1:] - columns.device_start[:-1])[nodes] * MOST_POINTS
        parts.append(_milli(device_free - wanted, capacity))
    mean: Longs = sum(parts) // len(parts)  # type: ignore[assignment]
    return mean


def _milli(part: Longs, whole: Longs) -> Longs:
    """Return parts of wholes in thousandths, 0 to 1000; if the whole is 0, all of it is free."""
    milli: Longs = np.maximum(part, 0) * MOST_POINTS // np.maximum(whole, 1)
    milli[whole == 0] = MOST_POINTS
    return np.minimum(milli, MOST_POINTS)
