"""Stranding: place a pod where it adds least to the device capacity expected to stay idle for good.

Two things leave devices idle. The remainder of a shared device may be too small for future pods: `value` gives, for
each remainder, the part expected to stay idle after `chances` more pods of the workload have been offered it. And free
devices are useless without enough cores or memory: `shortage` counts those that exceed what the free cores (memory)
serve at the workload's mean need per device. Nothing else counts: no forecast, no other node.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from controller.cluster.hardware import WHOLE, DeviceShare, Request, Shares
from controller.cluster.hardware.errors import HardwareError
from controller.scheduling.containers.kernels.compiled import compiled
from controller.scheduling.containers.kernels.stranded import IMPOSSIBLE, stranded_changes
from controller.scheduling.containers.kernels.structures import Demand
from controller.scheduling.containers.rooms import is_supported, kernel_request_of, room_of
from controller.scheduling.containers.typical import TypicalPod, assumed_workload, workload_of
from controller.scheduling.framework.policies import MOST_POINTS, Floats, Ids, Longs
from controller.scheduling.pods import PendingPod, Snapshot
from controller.scheduling.pods.columns import NodeColumns
from controller.scheduling.pods.workload import Workload
from dataplane.config import Strict
from dataplane.native import pointer_to
from dataplane.topology.values import DeviceKind

_MILLION: Final = 1_000_000
_KIB: Final = 1024


@dataclass(frozen=True, slots=True)
class KindDemand:
    """A workload's demand for devices of a kind: `value` by free thousandths, in millionths of a device.

    `cpu_milli` and `memory_kib` are its mean need along with a whole device.
    """

    value: tuple[int, ...]
    cpu_milli: int
    memory_kib: int


@lru_cache(maxsize=32)
def demands_of(workload: Workload, chances: int) -> dict[DeviceKind, KindDemand]:
    """Return a workload's demand for devices, by kind; skips requests for several sorts, or an open kind."""
    by_kind: defaultdict[DeviceKind, list[tuple[Request, int]]] = defaultdict(list)
    for request, count in workload.requests:
        if len(request.devices) == 1 and (kind := request.devices[0].kind) is not None:
            by_kind[kind].append((request, count))
    pods = sum(count for _, count in workload.requests)
    return {kind: _demand(requests, pods, chances) for kind, requests in by_kind.items()}


def _demand(requests: list[tuple[Request, int]], pods: int, chances: int) -> KindDemand:
    devices_milli = cpu_milli = memory_bytes = 0
    offered = np.zeros(WHOLE + 1, np.float64)
    for request, count in requests:
        wanted = request.devices[0]
        devices_milli += count * wanted.count * wanted.thousandths
        cpu_milli += count * request.cpu_milli
        memory_bytes += count * request.memory_bytes
        if wanted.count == 1:
            offered[wanted.thousandths] += count / pods
    return KindDemand(
        values_of(offered, chances),
        cpu_milli * WHOLE // devices_milli,
        memory_bytes * WHOLE // devices_milli // _KIB,
    )


def values_of(offered: Floats, chances: int) -> tuple[int, ...]:
    """Return the expected idle part of a remainder of 0 to 1000 thousandths, in millionths of a device.

    `offered` is the share of pods that ask for so many thousandths of one device. If none of `chances` pods fits, the
    whole remainder stays idle; otherwise the first one that fits leaves a smaller one.
    """
    sizes = np.flatnonzero(offered)
    idle = np.zeros(WHOLE + 1, np.float64)
    for remainder in range(1, WHOLE + 1):
        fit = sizes[sizes <= remainder]
        share = float(offered[fit].sum())
        if share <= 0:
            idle[remainder] = remainder
            continue
        never = (1 - min(share, 1)) ** chances
        idle[remainder] = never * remainder + (1 - never) * float(offered[fit] @ idle[remainder - fit]) / share
    return tuple(np.rint(idle * (_MILLION // WHOLE)).astype(int).tolist())


@dataclass(frozen=True, slots=True, eq=False)
class _Expectation:
    workload: Workload
    columns: NodeColumns
    demands: dict[DeviceKind, KindDemand]
    native: Demand


class Stranding:
    """Prefers nodes and devices where a pod adds least to the device capacity expected to stay idle."""

    class Settings(Strict, frozen=True):
        """The workload (none: the cluster's requests); `shortage_milli` weighs missing cores against remainders."""

        typical: tuple[TypicalPod, ...] = ()
        chances: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
        shortage_milli: Annotated[int, Meta(ge=0, le=100_000)] = 1000

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        compiled(stranded_changes)  # compile now, so that the first pod does not wait for it
        self._stated = workload_of(settings.typical)
        self._expectation: _Expectation | None = None

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return `MOST_POINTS` for the node with the least growth, and 1/e of that for one more device."""
        growth = self.changes(pod, snapshot)[0][nodes]
        points: Longs = np.rint(MOST_POINTS * np.exp((growth.min() - growth) / _MILLION)).astype(np.int64)
        return points

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the change of idle capacity, in devices."""
        return self.reasons(pod, snapshot, np.array([node]), np.zeros(1, np.int64))[0]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the reasons for several nodes."""
        if not self._expectation_for(snapshot).demands:
            return ["the workload is unknown"] * len(nodes)
        growth = self.changes(pod, snapshot)[0][nodes] / _MILLION
        return [f"expected idle devices change by {change:+.3f}" for change in growth.tolist()]

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return the share of the device whose remainder is expected to be used best; whole devices in order."""
        request = pod.request
        if len(request.devices) != 1 or request.devices[0].kind not in self._expectation_for(snapshot).demands:
            return snapshot.shares(node, request)
        if request.devices[0].thousandths == WHOLE:
            return snapshot.shares(node, request)
        device = int(self.changes(pod, snapshot, node)[1][node]) - int(snapshot.columns.device_start[node])
        if device < 0:
            return snapshot.shares(node, request)  # raises, naming what is missing
        wanted = request.devices[0]
        share = DeviceShare(device, wanted.thousandths, wanted.memory_bytes)
        return Shares(request.cpu_milli, request.memory_bytes, (share,))

    def changes(self, pod: PendingPod, snapshot: Snapshot, only: int | None = None) -> tuple[Longs, Longs]:
        """Return each node's growth of idle capacity in millionths of a device, and the row of the device for a share.

        `IMPOSSIBLE` and -1 where the request does not fit; if `only` is given, the values of other nodes are undefined.
        """
        nodes, expectation = len(snapshot.columns.nodes), self._expectation_for(snapshot)
        growth, device = np.empty(nodes, np.int64), np.full(nodes, -1, np.int64)
        if is_supported(pod.request):
            wanted = kernel_request_of(pod.request, snapshot.columns)
            rows = (0, nodes) if only is None else (only, only + 1)
            pointers = pointer_to(growth), pointer_to(device)
            compiled(stranded_changes)(room_of(snapshot), expectation.native, wanted, *rows, *pointers)
            return growth, device
        for node in range(nodes):
            held = snapshot.free.held_of(snapshot.columns, node)
            try:
                more = snapshot.shares(node, pod.request)
            except HardwareError:
                growth[node] = IMPOSSIBLE
                continue
            growth[node] = self.idle(snapshot, node, held + more) - self.idle(snapshot, node, held)
        return growth, device

    def idle(self, snapshot: Snapshot, node: int, held: Shares) -> int:
        """Return the expected idle capacity of a node's devices, in millionths of a device: the kernel's plain twin."""
        hardware, demands = snapshot.columns.nodes[node], self._expectation_for(snapshot).demands
        unused = cpu = memory = 0
        for device in hardware.devices:
            if (demand := demands.get(device.kind)) is not None:
                free = WHOLE - held.of(device.number).thousandths
                unused += demand.value[free]
                cpu += free * demand.cpu_milli
                memory += free * demand.memory_kib
        short = 0
        if most := max((demand.cpu_milli for demand in demands.values()), default=0):
            short = max(short, (cpu // WHOLE - (hardware.cpu_milli - held.cpu_milli)) * _MILLION // most)
        if most := max((demand.memory_kib for demand in demands.values()), default=0):
            short = max(
                short, (memory // WHOLE - (hardware.memory_bytes - held.memory_bytes) // _KIB) * _MILLION // most
            )
        return unused + short * self.settings.shortage_milli // WHOLE

    def _expectation_for(self, snapshot: Snapshot) -> _Expectation:
        workload, expectation = assumed_workload(self._stated, snapshot), self._expectation
        if expectation is None or expectation.workload is not workload or expectation.columns is not snapshot.columns:
            demands = demands_of(workload, self.settings.chances)
            native = self._native(demands, snapshot.columns)
            expectation = self._expectation = _Expectation(workload, snapshot.columns, demands, native)
        return expectation

    def _native(self, demands: dict[DeviceKind, KindDemand], columns: NodeColumns) -> Demand:
        number = {kind: row for row, kind in enumerate(demands)}
        kinds = [number.get(device.kind, -1) for node in columns.nodes for device in node.devices]
        value = [millionths for demand in demands.values() for millionths in demand.value]
        return Demand(
            value=pointer_to(np.array(value or [0], np.int64)),
            cpu_milli=pointer_to(np.array([demand.cpu_milli for demand in demands.values()] or [0], np.int64)),
            memory_kib=pointer_to(np.array([demand.memory_kib for demand in demands.values()] or [0], np.int64)),
            most_cpu_milli=max((demand.cpu_milli for demand in demands.values()), default=0),
            most_memory_kib=max((demand.memory_kib for demand in demands.values()), default=0),
            shortage_milli=self.settings.shortage_milli,
            kind=pointer_to(np.array(kinds or [-1], np.int64)),
        )
