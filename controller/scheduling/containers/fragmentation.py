"""Fragmentation gradient descent: place a pod where the expected device fragments grow least, or shrink most.

Source: Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent",
USENIX ATC 2023. A fragment is the part of a node's free devices that a pod of the workload cannot use; the expectation
is over the workload's most frequent requests. As in the authors' published simulator, memory requests are ignored and
differences are rounded: 1/(1 + e^-d) in `steps` steps, d in devices.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from controller.cluster.hardware import WHOLE, DeviceShare, Request, Shares, fragments
from controller.cluster.hardware.errors import HardwareError
from controller.scheduling.containers.kernels.compiled import compiled
from controller.scheduling.containers.kernels.fragments import NEVER, fragment_changes
from controller.scheduling.containers.kernels.structures import Typical
from controller.scheduling.containers.rooms import is_supported, kernel_request_of, room_of
from controller.scheduling.containers.typical import TypicalPod, assumed_workload, workload_of
from controller.scheduling.framework.policies import MOST_POINTS, Flags, Floats, Ids, Longs
from controller.scheduling.pods import PendingPod, Snapshot
from controller.scheduling.pods.columns import NodeColumns
from controller.scheduling.pods.workload import Workload
from dataplane.config import Strict
from dataplane.native import pointer_to

_MOST_CACHED: Final = 256
_MOST_DEVICES: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class _Expectation:
    """A workload's typical requests over some nodes, as the kernel sees them, with the latest results by request."""

    workload: Workload
    columns: NodeColumns
    requests: tuple[tuple[Request, int], ...]
    native: Typical
    pods: int
    cached: dict[Request, _Cached]


@dataclass(slots=True, eq=False)
class _Cached:
    """The decrease of fragments at each node, and the free resources for which it was computed."""

    cpu_milli: Longs
    memory_bytes: Longs
    device_milli: Longs
    device_memory_bytes: Longs
    decrease: Longs


class Fragmentation:
    """Prefers nodes and devices where the expected device fragments shrink most."""

    class Settings(Strict, frozen=True):
        """The workload (none: the cluster's requests), the share of it that counts as typical, and the steps."""

        typical: tuple[TypicalPod, ...] = ()
        coverage: Annotated[float, Meta(gt=0, le=1)] = 0.95
        with_memory: bool = False
        steps: Annotated[int, Meta(ge=2, le=MOST_POINTS)] = 100

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._stated = workload_of(settings.typical)
        self._expectation: _Expectation | None = None

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return 1/(1 + e^-d), where d is the decrease of fragments in devices, in steps of `MOST_POINTS`."""
        expectation = self._expectation_for(snapshot)
        return self._points(self._decreases(expectation, pod.request, snapshot)[nodes] / max(expectation.pods, 1))

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the change of the expected fragments."""
        return self.reasons(pod, snapshot, np.array([node]), self.points(pod, snapshot, np.array([node])))[0]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids, points: Longs) -> list[str]:  # noqa: ARG002
        """Return the reasons for several nodes."""
        expectation = self._expectation_for(snapshot)
        if not expectation.pods:
            return ["the workload is unknown"] * len(nodes)
        decrease = self._decreases(expectation, pod.request, snapshot)[nodes] / (expectation.pods * WHOLE)
        return [f"expected device fragments change by {-change:+.3f}" for change in decrease.tolist()]

    def shares(self, pod: PendingPod, snapshot: Snapshot, node: int) -> Shares:
        """Return the share of the device where fragments shrink most, the first on a tie; whole devices in order."""
        request, free, columns = pod.request, snapshot.free, snapshot.columns
        if len(request.devices) != 1:
            return snapshot.shares(node, request)
        wanted, first = request.devices[0], int(columns.device_start[node])
        good = [
            device.number
            for device in columns.nodes[node].devices
            if wanted.accepts(device)
            and free.device_milli[first + device.number] >= wanted.thousandths
            and free.device_memory_bytes[first + device.number] >= wanted.memory_bytes
        ]
        if len(good) < wanted.count:
            return snapshot.shares(node, request)  # raises, naming what is missing
        if wanted.count == 1 and wanted.thousandths < WHOLE and len(good) > 1:
            expectation, held = self._expectation_for(snapshot), free.held_of(columns, node)
            points = [self._change(expectation, snapshot, node, held, _with_device(request, number)) for number in good]
            good = [good[points.index(max(points))]]
        devices = (DeviceShare(number, wanted.thousandths, wanted.memory_bytes) for number in good[: wanted.count])
        return Shares(request.cpu_milli, request.memory_bytes, tuple(devices))

    def _change(self, expectation: _Expectation, snapshot: Snapshot, node: int, held: Shares, more: Shares) -> int:
        decrease = _expected(expectation, snapshot, node, held) - _expected(expectation, snapshot, node, held + more)
        return int(self._points(np.array([decrease / max(expectation.pods, 1)]))[0])

    def _points(self, decrease_milli: Floats) -> Longs:
        steps = self.settings.steps
        with np.errstate(over="ignore"):
            steps_up = np.floor(steps / (1 + np.exp(-decrease_milli / WHOLE)))
        return steps_up.astype(np.int64) * MOST_POINTS // steps

    def _expectation_for(self, snapshot: Snapshot) -> _Expectation:
        workload, expectation = assumed_workload(self._stated, snapshot), self._expectation
        if expectation is None or expectation.workload is not workload or expectation.columns is not snapshot.columns:
            requests = tuple(
                (request, count)
                for request, count in workload.typical(self.settings.coverage, with_memory=self.settings.with_memory)
                if is_supported(request)
            )
            native = _native(requests, snapshot.columns)
            pods = sum(count for _, count in requests)
            expectation = self._expectation = _Expectation(workload, snapshot.columns, requests, native, pods, {})
        return expectation

    def _decreases(self, expectation: _Expectation, request: Request, snapshot: Snapshot) -> Longs:
        """Return the decrease of fragments at each node, in thousandths times pods; recompute only changed nodes."""
        free = snapshot.free
        previous = expectation.cached.get(request)
        if previous is None:
            rows = np.arange(len(snapshot.columns.nodes))
            decrease = np.full(len(rows), NEVER, np.int64)
        else:
            decrease = previous.decrease
            rows = np.flatnonzero(_has_changed(previous, snapshot))
        if len(rows):
            decrease = decrease.copy()
            _compute(expectation, request, snapshot, rows, decrease)
        expectation.cached.pop(request, None)
        expectation.cached[request] = _Cached(
            free.cpu_milli.copy(),
            free.memory_bytes.copy(),
            free.device_milli.copy(),
            free.device_memory_bytes.copy(),
            decrease,
        )
        if len(expectation.cached) > _MOST_CACHED:
            del expectation.cached[next(iter(expectation.cached))]
        return decrease


def _has_changed(previous: _Cached, snapshot: Snapshot) -> Flags:
    free, columns = snapshot.free, snapshot.columns
    changed: Flags = (previous.cpu_milli != free.cpu_milli) | (previous.memory_bytes != free.memory_bytes)
    devices = (previous.device_milli != free.device_milli) | (previous.device_memory_bytes != free.device_memory_bytes)
    changed[columns.device_node[devices]] = True
    return changed


def _compute(expectation: _Expectation, request: Request, snapshot: Snapshot, rows: Ids, decrease: Longs) -> None:
    if is_supported(request):
        scratch = np.empty(_MOST_DEVICES, np.int64)
        wanted = kernel_request_of(request, snapshot.columns)
        pointers = (pointer_to(np.ascontiguousarray(rows)), len(rows), pointer_to(scratch), pointer_to(decrease))
        compiled(fragment_changes)(room_of(snapshot), expectation.native, wanted, *pointers)
        return
    for row in rows.tolist():
        held = snapshot.free.held_of(snapshot.columns, row)
        try:
            more = snapshot.shares(row, request)
        except HardwareError:
            decrease[row] = NEVER
            continue
        before, after = (_expected(expectation, snapshot, row, shares) for shares in (held, held + more))
        decrease[row] = before - after


def _expected(expectation: _Expectation, snapshot: Snapshot, node: int, held: Shares) -> int:
    """Return a node's expected fragments: the paper's sum over typical requests, weighted by frequency."""
    hardware = snapshot.columns.nodes[node]
    return sum(count * fragments(hardware, held, request) for request, count in expectation.requests)


def _with_device(request: Request, number: int) -> Shares:
    wanted = request.devices[0]
    share = DeviceShare(number, wanted.thousandths, wanted.memory_bytes)
    return Shares(request.cpu_milli, request.memory_bytes, (share,))


def _native(requests: tuple[tuple[Request, int], ...], columns: NodeColumns) -> Typical:
    wanted = [request.devices[0] if request.devices else None for request, _ in requests]
    accepts = np.zeros((max(len(requests), 1), max(len(columns.device_node), 1)), np.uint8)
    for row, need in enumerate(wanted):
        if need is not None:
            accepts[row, : len(columns.device_node)] = columns.accepted(need)
    return Typical(
        requests=len(requests),
        weight=pointer_to(_longs([count for _, count in requests])),
        cpu_milli=pointer_to(_longs([request.cpu_milli for request, _ in requests])),
        memory_bytes=pointer_to(_longs([request.memory_bytes for request, _ in requests])),
        count=pointer_to(_longs([0 if need is None else need.count for need in wanted])),
        milli=pointer_to(_longs([0 if need is None else need.thousandths for need in wanted])),
        accepts=pointer_to(accepts),
    )


def _longs(values: list[int]) -> Longs:
    return np.array(values or [0], np.int64)
