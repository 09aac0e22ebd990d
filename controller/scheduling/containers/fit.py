"""Scores by fit: devices close to the requested size, and the common packing rules used for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

import numpy as np

from controller.cluster.hardware import WHOLE, DeviceRequest
from controller.scheduling.framework.policies import MOST_POINTS, Floats, Ids, Longs, NoSettings
from controller.scheduling.pods import PendingPod, Snapshot
from controller.scheduling.pods.columns import NodeColumns
from controller.scheduling.pods.kinds import settled
from dataplane.config import Strict


class DeviceFit:
    """Prefers devices with little more memory than requested, then those on fast buses; bare nodes for pods without."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings
        self._reasons: tuple[NodeColumns, dict[tuple[DeviceRequest, ...], dict[int, str]]] | None = None

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return the mean of the known parts: requested over actual memory, and bus rate over the fastest bus's."""
        columns = snapshot.columns
        if not pod.request.devices:
            bare: Longs = (columns.device_start[1:] == columns.device_start[:-1])[nodes] * MOST_POINTS
            return bare
        if not columns.device_bus_rate.any() and not any(wanted.memory_bytes for wanted in pod.request.devices):
            return np.full(len(nodes), MOST_POINTS, np.int64)
        parts = [_best(columns, _fit(wanted, snapshot)) for wanted in pod.request.devices]
        points: Longs = np.rint(MOST_POINTS * np.mean(parts, axis=0)[nodes]).astype(np.int64)
        return points

    def kind_points(self, pods: Sequence[PendingPod], snapshot: Snapshot, nodes: Ids) -> list[Longs]:
        """Return the points for each kind of device."""
        return [self.points(pod, snapshot, nodes) for pod in pods]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the reasons for several nodes; they depend on the nodes' hardware and are cached until it changes.

        Only of an open kind they depend on what is free.
        """
        if pod.request.is_open:
            return [self.reason(pod, snapshot, node) for node in nodes.tolist()]
        if self._reasons is None or self._reasons[0] is not snapshot.columns:
            self._reasons = snapshot.columns, {}
        cached = self._reasons[1].setdefault(pod.request.devices, {})
        numbers = nodes.tolist()
        for node in numbers:
            if node not in cached:
                cached[node] = self.reason(pod, snapshot, node)
        return [cached[node] for node in numbers]

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the devices that fit."""
        devices = snapshot.columns.nodes[node].devices
        if not pod.request.devices:
            return f"the pod requests no devices; the node has {len(devices)}"
        parts = []
        for wanted in settled(pod, snapshot, node).request.devices:
            good = [device for device in devices if wanted.accepts(device)]
            best = min(good, key=lambda device: device.memory_bytes or 0, default=None)
            if best is not None:
                bus = "" if best.bus is None else f" on {best.bus.kind}"
                memory = "" if best.memory_bytes is None else f" of {best.memory_bytes / 2**30:.0f} GiB"
                memory_wanted = f" for {wanted.memory_bytes / 2**30:.1f} GiB" if wanted.memory_bytes else ""
                parts.append(f"{best.kind} {best.model}{memory}{bus}{memory_wanted}".replace("  ", " "))
        return "; ".join(parts) or "none of its devices fits"


def _fit(wanted: DeviceRequest, snapshot: Snapshot) -> Floats:
    """Return how well each device fits, 0 to 1; -1 for one that does not."""
    columns, free = snapshot.columns, snapshot.free
    good = columns.accepted(wanted) & (free.device_milli >= wanted.thousandths)
    good &= free.device_memory_bytes >= wanted.memory_bytes
    fit, parts = np.zeros(len(good), np.float64), 0
    if wanted.memory_bytes:
        fit += wanted.memory_bytes / np.maximum(columns.device_memory_bytes, wanted.memory_bytes)
        parts += 1
    rate = columns.device_bus_rate
    if rate.any():
        fit += rate / rate.max()
        parts += 1
    return np.where(good, fit / parts if parts else 1.0, -1.0)


def _best(columns: NodeColumns, by_device: Floats) -> Floats:
    """Return the best value among each node's devices, 0 for a node without devices."""
    best = np.zeros(len(columns.nodes), np.float64)
    np.maximum.at(best, columns.device_node, by_device)
    return best


class BestFit:
    """Prefers nodes with the least left: the mean of cores and devices, each relative to the largest node."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return `MOST_POINTS` minus the thousandths that are left."""
        cpu, devices = _shares_of_most(snapshot)
        asked_cpu, asked_devices = _asked(pod, snapshot)
        left = (cpu[nodes] - asked_cpu + devices[nodes] - asked_devices) / 2
        return np.rint(MOST_POINTS * np.clip(1 - left, 0, 1)).astype(np.int64)

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the remaining share."""
        left = MOST_POINTS - int(self.points(pod, snapshot, np.array([node]))[0])
        return f"{left / 10:.1f} % of the largest node's cores and devices stay free"


class DotProduct:
    """Prefers nodes whose free resources align least with the request: the smallest dot product."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return `MOST_POINTS` minus half the dot product, each resource relative to the largest node."""
        cpu, devices = _shares_of_most(snapshot)
        asked_cpu, asked_devices = _asked(pod, snapshot)
        product = (cpu[nodes] * asked_cpu + devices[nodes] * asked_devices) / 2
        return np.rint(MOST_POINTS * np.clip(1 - product, 0, 1)).astype(np.int64)

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the product."""
        product = 1 - int(self.points(pod, snapshot, np.array([node]))[0]) / MOST_POINTS
        return f"dot product of free and requested resources: {product:.3f}"


class RandomFit:
    """Prefers no node: draws points from the seed and the pod's name."""

    class Settings(Strict, frozen=True):
        """A different seed gives different draws."""

        seed: int = 0

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return uniformly drawn points."""
        # Not hash(), which differs from process to process.
        rng = np.random.default_rng(crc32(f"{self.settings.seed}/{pod.name}".encode()))
        return rng.integers(0, MOST_POINTS + 1, len(snapshot.columns.nodes))[nodes]

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:  # noqa: ARG002 - a score's signature
        """Return a constant reason."""
        return "drawn"


def _shares_of_most(snapshot: Snapshot) -> tuple[Floats, Floats]:
    """Return the nodes' free cores and device thousandths as shares of the largest node's."""
    columns, free = snapshot.columns, snapshot.free
    devices = np.bincount(columns.device_node, free.device_milli, len(columns.nodes))
    most_cpu, most_devices = _most(columns)
    return free.cpu_milli / most_cpu, devices / most_devices


def _asked(pod: PendingPod, snapshot: Snapshot) -> tuple[float, float]:
    most_cpu, most_devices = _most(snapshot.columns)
    devices = sum(wanted.count * wanted.thousandths for wanted in pod.request.devices)
    return pod.request.cpu_milli / most_cpu, devices / most_devices


def _most(columns: NodeColumns) -> tuple[int, int]:
    counts = columns.device_start[1:] - columns.device_start[:-1]
    return max(int(columns.cpu_milli.max(initial=0)), 1), max(int(counts.max(initial=0)) * WHOLE, 1)
