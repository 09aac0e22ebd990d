"""Devices that are idle enough: those whose used share is below a threshold; and of those, the least used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from controller.cluster.hardware import WHOLE
from controller.scheduling.framework.policies import MOST_POINTS, Flags, Floats, Ids, Longs, NoSettings
from controller.scheduling.pods import PendingPod, Snapshot
from dataplane.config import Strict


class DeviceThreshold:
    """Keeps pods off devices whose used share reaches a threshold: the measured share if reported, else the held one.

    A pod whose user named a device gets it however busy it is.
    """

    class Settings(Strict, frozen=True):
        """The share, 0 to 1, from which a device is too busy."""

        below: Annotated[float, Meta(gt=0, le=1)] = 0.95

    # Simulations have no measured loads, and held shares depend only on the node.
    is_local = True

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def devices(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return the devices that are idle enough."""
        if pod.device is not None or not pod.request.devices:
            return None
        free = snapshot.unnarrowed or snapshot.free
        idle: Flags = free.device_milli > WHOLE - WHOLE * self.settings.below
        if snapshot.device_busy is not None:
            is_measured = ~np.isnan(snapshot.device_busy)
            idle[is_measured] = snapshot.device_busy[is_measured] < self.settings.below
        return idle

    def lets_in(self, before: float, now: float) -> bool:
        """Return whether a device's measured load has dropped below the threshold."""
        return now < self.settings.below <= before

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return the nodes with enough idle devices of each sort, or with too few even counting busy ones.

        If the pod would not fit even on busy devices, other filters report what is missing.
        """
        idle = self.devices(pod, snapshot)
        if idle is None or bool(np.all(idle)):
            return None
        columns, free = snapshot.columns, snapshot.unnarrowed or snapshot.free
        passing: Flags | None = None
        for wanted in pod.request.devices:
            able = columns.accepted(wanted) & (free.device_milli >= wanted.thousandths)
            if not (able & ~idle).any():
                continue  # no suitable device is kept from the pod
            passing = np.ones(len(columns.nodes), np.bool_) if passing is None else passing
            enough, any_load = (columns.counted_for(wanted, devices) >= wanted.count for devices in (able & idle, able))
            passing &= enough | ~any_load
        return passing

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the load of the devices that fit, and its source."""
        columns, used = snapshot.columns, _used(snapshot)
        first = int(columns.device_start[node])
        busy = []
        for device in columns.nodes[node].devices:
            row = first + device.number
            if used[row] >= self.settings.below and any(wanted.accepts(device) for wanted in pod.request.devices):
                busy.append(f"device {device.number} {used[row]:.0%} ({_how(snapshot, row)})")
        return f"too few devices below {self.settings.below:.0%} load: {', '.join(busy)}"


class LowLoad:
    """Prefers the least used devices, for pods that accept several kinds: others are packed, not spread."""

    Settings = NoSettings

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def is_neutral(self, pod: PendingPod, snapshot: Snapshot) -> bool:  # noqa: ARG002 - a score's signature
        """Return whether the pod states its kinds of devices, or none."""
        return not pod.request.is_open

    def points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        """Return the free share of each node's least used device that the pod could get, in thousandths."""
        if self.is_neutral(pod, snapshot):
            return np.full(len(nodes), MOST_POINTS, np.int64)
        return self._points(pod, snapshot, nodes)

    def kind_points(self, pods: Sequence[PendingPod], snapshot: Snapshot, nodes: Ids) -> list[Longs]:
        """Return the points for each kind of device."""
        return [self._points(pod, snapshot, nodes) for pod in pods]

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the least used device and its load."""
        if self.is_neutral(pod, snapshot):
            return "applies only to pods that accept several kinds of devices"
        used, first = _used(snapshot), int(snapshot.columns.device_start[node])
        rows = np.flatnonzero(_gettable(pod, snapshot))
        rows = rows[snapshot.columns.device_node[rows] == node]
        if not len(rows):
            return "none of its devices can be given"
        row = int(rows[np.argmin(used[rows])])
        device = snapshot.columns.nodes[node].devices[row - first]
        return f"device {device.number} ({device.kind}) {used[row]:.0%} used ({_how(snapshot, row)})"

    def _points(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> Longs:
        columns = snapshot.columns
        free = np.where(_gettable(pod, snapshot), 1 - np.clip(_used(snapshot), 0, 1), 0.0)
        best = np.zeros(len(columns.nodes), np.float64)
        np.maximum.at(best, columns.device_node, free)
        points: Longs = np.rint(MOST_POINTS * best[nodes]).astype(np.int64)
        return points


def _gettable(pod: PendingPod, snapshot: Snapshot) -> Flags:
    """Return the devices that serve some part of a pod's request now."""
    columns, free = snapshot.columns, snapshot.free
    gettable = np.zeros(len(columns.device_node), np.bool_)
    for wanted in pod.request.devices:
        gettable |= columns.accepted(wanted) & (free.device_milli >= wanted.thousandths)
    return gettable


def _how(snapshot: Snapshot, row: int) -> str:
    """Return how the load of a device is known."""
    return "held" if snapshot.device_busy is None or np.isnan(snapshot.device_busy[row]) else "measured"


def _used(snapshot: Snapshot) -> Floats:
    """Return each device's used share."""
    free = snapshot.unnarrowed or snapshot.free
    held: Floats = (WHOLE - free.device_milli) / WHOLE
    if snapshot.device_busy is None:
        return held
    return np.where(np.isnan(snapshot.device_busy), held, snapshot.device_busy)
