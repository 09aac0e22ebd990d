"""The pod policy by which operators choose devices: by their modelled time on each node's devices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from controller.acceleration.network.hardware import OPTIONAL
from controller.acceleration.policies.choosing import Chooser, Placed, key_of
from controller.acceleration.values import Accelerator, Network
from controller.apiserver.resources.operator_devices import MOST_OPERATORS, OperatorDevice
from controller.cluster.hardware import WHOLE, DeviceRequest, Node
from controller.cluster.hardware.values import Device
from controller.scheduling.framework.policies import MOST_POINTS, Floats, Ids, Longs
from controller.scheduling.pods import PendingPod, Snapshot
from controller.scheduling.pods.columns import NodeColumns
from controller.scheduling.pods.kinds import settled
from dataplane.config import Strict

_GB: Final = 1e9
_ALONE: Final = Network(math.inf)

Accelerators = tuple[Accelerator, ...]


@dataclass(frozen=True, eq=False)
class _Kinds:
    """Nodes by what a pod with some request finds there: the index of each one's accelerators among all."""

    of_node: Ids
    accelerators: tuple[Accelerators, ...]


class PodDevices:
    """Prefers nodes whose devices give the pod's operators the least time, with the model choosing each device.

    The pod counts as one machine, with those of the node's devices that it asks for: the one with the slowest bus and
    the least memory, and for a part of a device that part. A pod that asks for no device, or does not state its
    operators, is skipped.
    """

    class Settings(Strict, frozen=True):
        """The file of the nodes' hardware, and of a calibration; as for tasks.

        An accelerator with a name applies to the model of that name, one without a name to all others.
        """

        hardware: str = ""
        calibration: str = ""

    def __init__(self, settings: Settings) -> None:
        self._chooser = Chooser(settings.hardware, settings.calibration)
        hardware = self._chooser.hardware
        self._given = dict(
            zip((accelerator.label for accelerator in hardware.accelerators), hardware.given, strict=False)
        )
        self._columns: NodeColumns | None = None
        self._kinds: dict[tuple[DeviceRequest, ...], _Kinds] = {}

    def is_neutral(self, pod: PendingPod, snapshot: Snapshot) -> bool:  # noqa: ARG002 - a score's signature
        """Return whether the pod is skipped."""
        return not pod.operators or not pod.request.devices or len(pod.operators) > MOST_OPERATORS

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return the most points for the least time, half of them for twice as much."""
        if self.is_neutral(pod, snapshot):
            return np.full(len(nodes), MOST_POINTS, np.int64)
        return _points(self._seconds(pod, snapshot, nodes))

    def kind_points(self, pods: Sequence[PendingPod], snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return the points for each kind of device: the most for the least time of all."""
        if any(self.is_neutral(pod, snapshot) for pod in pods):
            return np.full((len(pods), len(nodes)), MOST_POINTS, np.int64)
        return _points(np.array([self._seconds(pod, snapshot, nodes) for pod in pods]))

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return each operator's device, and the time relative to the CPU alone."""
        if not pod.request.devices:
            return "counts only for pods with devices"
        return self._of(pod, snapshot, node).reason

    def operator_devices(self, pod: PendingPod, snapshot: Snapshot, node: int) -> tuple[OperatorDevice, ...]:
        """Return the kind of device of each operator on a node; nothing if unknown."""
        return self._of(pod, snapshot, node).devices(self._chooser.kinds)

    def _seconds(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Floats:
        """Return the time of a pod's operators on each of these nodes."""
        if pod.request.is_open:
            return np.array([self._of(pod, snapshot, node).seconds for node in nodes.tolist()])
        kinds, key = self._kinds_of(pod, snapshot.columns), key_of(pod.operators)
        numbers, where = np.unique(kinds.of_node[nodes], return_inverse=True)
        seconds = np.array([self._place(pod, kinds.accelerators[number], key).seconds for number in numbers.tolist()])
        by_node: Floats = seconds[where]
        return by_node

    def _of(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Placed:
        pod = settled(pod, snapshot, node)
        kinds = self._kinds_of(pod, snapshot.columns)
        return self._place(pod, kinds.accelerators[int(kinds.of_node[node])], key_of(pod.operators))

    def _place(self, pod: PendingPod, accelerators: Accelerators, key: bytes) -> Placed:
        return self._chooser.place(pod.operators, key, accelerators, _ALONE, 1)

    def _kinds_of(self, pod: PendingPod, columns: NodeColumns) -> _Kinds:
        """Return the result of a request for all nodes, cached until nodes change."""
        if columns is not self._columns:
            self._columns, self._kinds = columns, {}
        request = pod.request.devices
        if (kinds := self._kinds.get(request)) is None:
            numbers: dict[Accelerators, int] = {}
            of_node = [numbers.setdefault(self._found(request, node), len(numbers)) for node in columns.nodes]
            kinds = self._kinds[request] = _Kinds(np.array(of_node, np.int64), tuple(numbers))
        return kinds

    def _found(self, request: tuple[DeviceRequest, ...], node: Node) -> Accelerators:
        """Return the accelerators for a pod's operators on a node, each listed once."""
        accelerators = {
            accelerator.label: accelerator for wanted in request for accelerator in self._serving(wanted, node)
        }
        return tuple(accelerators.values())

    def _serving(self, wanted: DeviceRequest, node: Node) -> Iterator[Accelerator]:
        devices = [device for device in node.devices if wanted.accepts(device)]
        mine = [accelerator for accelerator in self._chooser.hardware.accelerators if accelerator.kind in wanted.kinds]
        models = {device.model for device in devices}
        named = [accelerator for accelerator in mine if accelerator.name in models]
        unnamed = [accelerator for accelerator in mine if not accelerator.name]
        for accelerator in (named or unnamed) if devices else ():
            of_it = [device for device in devices if device.model == accelerator.name] or devices
            yield _part(self._completed(accelerator, of_it), wanted)

    def _completed(self, accelerator: Accelerator, devices: list[Device]) -> Accelerator:
        """Return an accelerator with the slowest bus and the least memory of devices, if its file has no value."""
        given = self._given.get(accelerator.label, OPTIONAL)
        buses = [device.bus.bytes_per_s for device in devices if device.bus is not None and device.bus.bytes_per_s]
        memories = [device.memory_bytes for device in devices if device.memory_bytes]
        if "bus" not in given and buses:
            accelerator = replace(accelerator, bus_gb_per_s=min(buses) / _GB)
        if "memory" not in given and memories:
            accelerator = replace(accelerator, memory_gb=min(memories) / _GB)
        return accelerator


def _points(seconds: Floats) -> Longs:
    """Return the most points for the least time, half of them for twice as much."""
    least = float(seconds.min(initial=math.inf)) + 1e-9
    points: Longs = np.rint(MOST_POINTS * least / (seconds + 1e-9)).astype(np.int64)
    return points


def _part(accelerator: Accelerator, wanted: DeviceRequest) -> Accelerator:
    """Return the requested part of an accelerator: that share of its arithmetic and memory."""
    if wanted.memory_bytes:
        accelerator = replace(accelerator, memory_gb=min(accelerator.memory_gb, wanted.memory_bytes / _GB))
    if wanted.thousandths == WHOLE:
        return accelerator
    share = wanted.thousandths / WHOLE
    factors = tuple((kind, factor * share) for kind, factor in accelerator.speed_up)
    return replace(accelerator, parallelism=accelerator.parallelism * share, speed_up=factors)
