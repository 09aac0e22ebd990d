"""Devices that are idle enough: those whose used share is below a threshold."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from msgspec import Meta

from controller.cluster.hardware import WHOLE
from controller.scheduling.framework.policies import Flags, Floats
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
            passing &= (columns.counted(able & idle) >= wanted.count) | (columns.counted(able) < wanted.count)
        return passing

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the load of the devices that fit, and its source."""
        columns, used = snapshot.columns, _used(snapshot)
        first = int(columns.device_start[node])
        busy = []
        for device in columns.nodes[node].devices:
            row = first + device.number
            if used[row] >= self.settings.below and any(
                wanted.accepts(device.kind, device.model) for wanted in pod.request.devices
            ):
                how = "held" if snapshot.device_busy is None or np.isnan(snapshot.device_busy[row]) else "measured"
                busy.append(f"device {device.number} {used[row]:.0%} ({how})")
        return f"too few devices below {self.settings.below:.0%} load: {', '.join(busy)}"


def _used(snapshot: Snapshot) -> Floats:
    """Return each device's used share."""
    free = snapshot.unnarrowed or snapshot.free
    held: Floats = (WHOLE - free.device_milli) / WHOLE
    if snapshot.device_busy is None:
        return held
    return np.where(np.isnan(snapshot.device_busy), held, snapshot.device_busy)
