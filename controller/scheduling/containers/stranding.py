"""Stranding: place a pod where it adds least to the device capacity that is expected to stay idle for good.

Two things leave devices idle. The rest of a shared device may be too small for future pods: `value` gives, for each
rest, the part expected to stay idle after `chances` more pods of the workload have been offered it. And free devices
are useless without enough cores or memory: `shortage` counts those that exceed what the free cores (memory) serve at
the workload's mean need per device. Nothing else counts: no forecast, no other node.
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
from controller.scheduling.containers.rooms import asked_of, can_be_asked, room_of
from controller.scheduling.containers.typical import TypicalPod, reckoned, workload_of
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
    """Return a workload's demand for devices, by kind; skips requests for several sorts at once."""
    by_kind: defaultdict[DeviceKind, list[tuple[Request, int]]] = defaultdict(list)
    for request, count in workload.requests:
        if len(request.devices) == 1:
            by_kind[request.devices[0].kind].append((request, count))
    everything = sum(count for _, count in workload.requests)
    return {kind: _demand(requests, everything, chances) for kind, requests in by_kind.items()}


def _demand(requests: list[tuple[Request, int]], everything: int, chances: int) -> KindDemand:
    devices_milli = cpu_milli = memory_bytes = 0
    offered = np.zeros(WHOLE + 1, np.float64)
    for request, count in requests:
        wanted = request.devices[0]
        devices_milli += count * wanted.count * wanted.thousandths
        cpu_milli += count * request.cpu_milli
        memory_bytes += count * request.memory_bytes
        if wanted.count == 1:
            offered[wanted.thousandths] += count / everything
    return KindDemand(
        values_of(offered, chances),
        cpu_milli * WHOLE // devices_milli,
        memory_bytes * WHOLE // devices_milli // _KIB,
    )


def values_of(offered: Floats, chances: int) -> tuple[int, ...]:
    """Return the expected idle part of a rest of 0 to 1000 thousandths, in millionths of a device.

    `offered` is the share of pods that ask for so many thousandths of one device. If none of `chances` pods fits, the
    whole rest stays; otherwise the first one that fits leaves a smaller rest.
    """
    sizes = np.flatnonzero(offered)
    found = np.zeros(WHOLE + 1, np.float64)
    for rest in range(1, WHOLE + 1):
        fit = sizes[sizes <= rest]
        share = float(offered[fit].sum())
        if share <= 0:
            found[rest] = rest
            continue
        never = (1 - min(share, 1)) ** chances
        found[rest] = never * rest + (1 - never) * float(offered[fit] @ found[rest - fit]) / share
    return tuple(np.rint(found * (_MILLION // WHOLE)).astype(int).tolist())


@dataclass(frozen=True, slots=True, eq=False)
class _Reckoning:
    workload: Workload
    columns: NodeColumns
    demands: dict[DeviceKind, KindDemand]
    native: Demand


class Stranding:
    """Prefers nodes and devices where a pod adds least to the device capacity expected to stay idle."""

    class Settings(Strict, frozen=True):
        """The workload (none: the cluster's requests); `shortage_milli` weighs missing cores against rests."""

        typical: tuple[TypicalPod, ...] = ()
        chances: Annotated[int, Meta(ge=1, le=1_000_000)] = 100
        shortage_milli: Annotated[int, Meta(ge=0, le=100_000)] = 1000

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        compiled(stranded_changes)  # compile now, so that the first pod does not wait for it
        self._stated = workload_of(settings.typical)
        self._reckoning: _Reckoning | None = None

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return `MOST_POINTS` for the node with the least growth, and 1/e of that for one more device."""
        grown = self.changes(pod, snapshot)[0][nodes]
        points: Longs = np.rint(MOST_POINTS * np.exp((grown.min() - grown) / _MILLION)).astype(np.int64)
        return points

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the change of the idle rest, in devices."""
        return self.reasons(pod, snapshot, np.array([node]), np.zeros(1, np.int64))[0]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the reasons for several nodes."""
        if not self._reckoned(snapshot).demands:
            return ["nothing is known of the workload"] * len(nodes)
        grown = self.changes(pod, snapshot)[0][nodes] / _MILLION
        return [f"what stays idle of devices changes by {one:+.3f} of one" for one in grown.tolist()]

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return the share of the device whose rest is expected to be used best; whole devices in order."""
        request = pod.request
        if len(request.devices) != 1 or request.devices[0].kind not in self._reckoned(snapshot).demands:
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
        nodes, reckoning = len(snapshot.columns.nodes), self._reckoned(snapshot)
        grown, device = np.empty(nodes, np.int64), np.full(nodes, -1, np.int64)
        if can_be_asked(pod.request):
            asked = asked_of(pod.request, snapshot.columns)
            rows = (0, nodes) if only is None else (only, only + 1)
            pointers = pointer_to(grown), pointer_to(device)
            compiled(stranded_changes)(room_of(snapshot), reckoning.native, asked, *rows, *pointers)
            return grown, device
        for node in range(nodes):
            held = snapshot.free.held_of(snapshot.columns, node)
            try:
                more = snapshot.shares(node, pod.request)
            except HardwareError:
                grown[node] = IMPOSSIBLE
                continue
            grown[node] = self.idle(snapshot, node, held + more) - self.idle(snapshot, node, held)
        return grown, device

    def idle(self, snapshot: Snapshot, node: int, held: Shares) -> int:
        """Return the expected idle capacity of a node's devices, in millionths of a device: the kernel's plain twin."""
        one, demands = snapshot.columns.nodes[node], self._reckoned(snapshot).demands
        found = cpu = memory = 0
        for device in one.devices:
            if (demand := demands.get(device.kind)) is not None:
                free = WHOLE - held.of(device.number).thousandths
                found += demand.value[free]
                cpu += free * demand.cpu_milli
                memory += free * demand.memory_kib
        short = 0
        if most := max((demand.cpu_milli for demand in demands.values()), default=0):
            short = max(short, (cpu // WHOLE - (one.cpu_milli - held.cpu_milli)) * _MILLION // most)
        if most := max((demand.memory_kib for demand in demands.values()), default=0):
            short = max(short, (memory // WHOLE - (one.memory_bytes - held.memory_bytes) // _KIB) * _MILLION // most)
        return found + short * self.settings.shortage_milli // WHOLE

    def _reckoned(self, snapshot: Snapshot) -> _Reckoning:
        workload, known = reckoned(self._stated, snapshot), self._reckoning
        if known is None or known.workload is not workload or known.columns is not snapshot.columns:
            demands = demands_of(workload, self.settings.chances)
            native = self._native(demands, snapshot.columns)
            known = self._reckoning = _Reckoning(workload, snapshot.columns, demands, native)
        return known

    def _native(self, demands: dict[DeviceKind, KindDemand], columns: NodeColumns) -> Demand:
        number = {kind: place for place, kind in enumerate(demands)}
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
