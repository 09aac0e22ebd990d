"""The filters that are there without a plug-in."""

from __future__ import annotations

import numpy as np

from controller.cluster.hardware import DeviceRequest, fits
from controller.schedulers.framework.columns import Flags
from controller.schedulers.framework.snapshot import Snapshot
from controller.schedulers.framework.values import PendingPod
from dataplane.config import Strict


class NoSettings(Strict, frozen=True):
    """A policy that has none."""


class Ready:
    """Refuses nodes that take no work: not heard of, or cordoned."""

    Settings = NoSettings
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:  # noqa: ARG002 - a filter's signature
        """Return which nodes are ready."""
        return snapshot.ready

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:  # noqa: ARG002 - a filter's signature
        """Return that it is not ready."""
        return "it is not ready"


class StatedLocation:
    """Refuses all nodes but those that the pod's user stated."""

    Settings = NoSettings
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return which nodes were stated; all, if none was."""
        if not pod.locations:
            return None
        found = np.zeros(len(snapshot.columns.nodes), np.bool_)
        found[[snapshot.columns.number[name] for name in pod.locations if name in snapshot.columns.number]] = True
        return found

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:  # noqa: ARG002 - a filter's signature
        """Return what was stated."""
        return f"the pod is to run on {' or '.join(pod.locations)}"


class DeviceModel:
    """Refuses nodes that do not have as many devices of the kinds and models asked for, busy or not."""

    Settings = NoSettings
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return which nodes have them."""
        found: Flags | None = None
        for wanted in pod.request.devices:
            has = _has(snapshot, wanted)
            found = has if found is None else found & has
        return found

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return what it has too few of."""
        short = next(wanted for wanted in pod.request.devices if not _has(snapshot, wanted)[node])
        has = int(snapshot.columns.device_counts(short)[node])
        return f"it has {has} of {short.count} {short}"


class FitsResources:
    """Refuses nodes on which the request does not fit beside what is held: cores, memory, thousandths of devices."""

    Settings = NoSettings
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return where it fits."""
        request, free, columns = pod.request, snapshot.free, snapshot.columns
        found: Flags = free.cpu_milli >= request.cpu_milli
        if request.memory_bytes:
            found &= free.memory_bytes >= request.memory_bytes
        for wanted in request.devices:
            good = columns.accepted(wanted) & (free.device_milli >= wanted.thousandths)
            if wanted.memory_bytes:
                good &= free.device_memory_bytes >= wanted.memory_bytes
            found &= columns.counted(good) >= wanted.count
        if len(request.devices) > 1:
            # Each part fits alone; whether all do together is asked node by node.
            for node in np.flatnonzero(found).tolist():
                found[node] = fits(columns.nodes[node], free.held_of(columns, node), request) is None
        return found

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return what is short, and how much."""
        columns = snapshot.columns
        refusal = fits(columns.nodes[node], snapshot.free.held_of(columns, node), pod.request)
        return "it fits" if refusal is None else "; ".join(map(str, refusal.missing))


def _has(snapshot: Snapshot, wanted: DeviceRequest) -> Flags:
    return snapshot.columns.device_counts(wanted) >= wanted.count
