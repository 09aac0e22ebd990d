"""The built-in filters."""

from __future__ import annotations

from typing import Final

import numpy as np

from controller.cluster.cost_map import UNREACHABLE_NS, CostMap
from controller.cluster.hardware import DeviceRequest, Node, Request, fits
from controller.scheduling.framework.policies import Flags, Ids, NoSettings
from controller.scheduling.pods.reservations import carries_all, overloaded_link
from controller.scheduling.pods.snapshot import Snapshot
from controller.scheduling.pods.values import Peer, PendingPod

_MOST_CACHED: Final = 16_384
"""Number of cached reasons: enough for the nodes in explanations, which change little, and a day's requests."""


class Ready:
    """Refuses nodes that take no work: not reporting, or cordoned."""

    Settings = NoSettings
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:  # noqa: ARG002 - a filter's signature
        """Return which nodes are ready."""
        return snapshot.ready

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:  # noqa: ARG002 - a filter's signature
        """Return a constant reason."""
        return "it is not ready"

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> list[str]:
        """Return the reasons for several nodes."""
        return [self.reason(pod, snapshot, 0)] * len(nodes)


class StatedLocation:
    """Refuses all nodes except those that the user stated: by name, labels, kind of device or device number."""

    Settings = NoSettings
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return which nodes were stated; all if none were."""
        if not (pod.locations or pod.labels or pod.device_kind is not None or pod.device is not None):
            return None
        nodes = snapshot.columns.nodes
        return np.fromiter((_location_mismatch(pod, node) is None for node in nodes), np.bool_, len(nodes))

    def devices(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return the devices with the stated number."""
        return None if pod.device is None else snapshot.columns.device_number == pod.device

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return what was stated."""
        return _location_mismatch(pod, snapshot.columns.nodes[node]) or "it matches the stated location"


def _location_mismatch(pod: PendingPod, node: Node) -> str | None:
    """Return the part of the stated location that a node does not match, None if it matches."""
    if pod.locations and node.name not in pod.locations:
        return f"the pod must run on {' or '.join(pod.locations)}"
    for name, value in pod.labels:
        if node.labels.get(name) != value:
            return f"its label {name} is {node.labels.get(name, 'unset')!s}, not {value}"
    if pod.device_kind is not None and all(device.kind is not pod.device_kind for device in node.devices):
        return f"it has no {pod.device_kind}"
    return None if pod.device is None else _device_mismatch(pod, pod.device, node)


def _device_mismatch(pod: PendingPod, number: int, node: Node) -> str | None:
    """Return why the pod cannot get a device that was stated by its number, None if it can."""
    if not pod.request.devices:
        return f"device {number} is stated, but the pod requests no device"
    if number >= len(node.devices):
        return f"it has {len(node.devices)} devices, no device {number}"
    device = node.devices[number]
    if pod.device_kind is not None and device.kind is not pod.device_kind:
        return f"device {number} is a {device.kind}, not a {pod.device_kind}"
    wanted = pod.request.devices
    if sum(request.count for request in wanted) > 1:
        return f"device {number} is stated, but the pod requests {sum(request.count for request in wanted)} devices"
    if not wanted[0].accepts(device):
        return f"device {number} is a {device.kind} {device.model}".rstrip() + f", not a {wanted[0]}"
    return None


class NetworkNeed:
    """Refuses nodes without the required path to the pod's peers: free bandwidth and delay, in both directions.

    If the network is unknown, a pod with requirements on it is refused everywhere.
    """

    Settings = NoSettings
    # Simulations have no pods with network requirements; all others pass everywhere.
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return the nodes that meet the pod's requirements on the paths to all of its peers."""
        needs = [peer for peer in pod.peers if peer.min_bps or peer.max_delay_ns is not None]
        if not needs:
            return None
        reached = np.full(len(snapshot.columns.nodes), snapshot.costs is not None)
        for peer in needs if snapshot.costs is not None else ():
            reached &= _reached(peer, snapshot)
        if snapshot.costs is not None and sum(peer.min_bps > 0 for peer in needs) > 1:
            # Each need can be met by itself; check host by host whether all can be met together.
            reached = carries_all(snapshot.costs, snapshot.host, needs, reached)
        return reached

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the path that does not meet the requirements, and its properties."""
        if snapshot.costs is None:
            return "the network is unknown"
        name = snapshot.host_name(node)
        for peer in pod.peers:
            if not (peer.min_bps or peer.max_delay_ns is not None) or _reached(peer, snapshot)[node]:
                continue
            numbers = snapshot.costs.model.host_number
            if peer.host not in numbers or name not in numbers:
                return f"{peer.host}: the path there is unknown"
            costs = (snapshot.costs.cost(name, peer.host), snapshot.costs.cost(peer.host, name))
            delay_ns, free_bps = max(cost.delay_ns for cost in costs), min(cost.available_bps for cost in costs)
            return (
                f"{peer.host}: {free_bps / 1e6:.1f} Mbit/s are free and the delay is {delay_ns / 1e6:.3f} ms "
                f"({costs[0].available_basis}{_reservations_note(snapshot.costs)}); {_in_words(peer)} needed"
            )
        if (link := overloaded(pod, snapshot, node)) is not None:
            return f"{link}: too little bandwidth is free for all its peers together"
        return "all peers are reachable as required"


def overloaded(pod: PendingPod, snapshot: Snapshot, node: int) -> str | None:
    """Return a link without the bandwidth for all needs of a pod on a node together; None if there is none."""
    if snapshot.costs is None or snapshot.host[node] < 0:
        return None
    return overloaded_link(snapshot.costs, int(snapshot.host[node]), pod.peers)


def _reservations_note(costs: CostMap) -> str:
    """Return a note that reservations are subtracted from the measurements."""
    return ", less reservations of bound pods" if costs.is_predicted else ""


def _in_words(peer: Peer) -> str:
    delay = None if peer.max_delay_ns is None else f"at most {peer.max_delay_ns / 1e6:.3f} ms"
    rate = f"{peer.min_bps / 1e6:.1f} Mbit/s" if peer.min_bps else None
    return " and ".join(filter(None, (rate, delay)))


def _reached(peer: Peer, snapshot: Snapshot) -> Flags:
    """Return the nodes that reach a peer, and back, as required; a node always reaches itself."""
    assert snapshot.costs is not None
    hosts, pairs = snapshot.host, snapshot.costs.pairs
    row = snapshot.costs.model.host_number.get(peer.host)
    if row is None:
        return np.zeros(len(hosts), np.bool_)
    reached: Flags = hosts >= 0
    for src, dst in ((row, hosts), (hosts, row)):
        reached &= (pairs.delay_ns[src, dst] != UNREACHABLE_NS) & (pairs.available_bps[src, dst] >= peer.min_bps)
        if peer.max_delay_ns is not None:
            reached &= pairs.delay_ns[src, dst] <= peer.max_delay_ns
    return reached


class DeviceModel:
    """Refuses nodes without enough devices of the requested kinds and models, busy or not."""

    Settings = NoSettings
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return which nodes have enough."""
        enough: Flags | None = None
        for wanted in pod.request.devices:
            has_devices = _has(snapshot, wanted)
            enough = has_devices if enough is None else enough & has_devices
        return enough

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return the missing devices."""
        return self.reasons(pod, snapshot, np.array([node]))[0]

    def reasons(self, pod: PendingPod, snapshot: Snapshot, nodes: Ids) -> list[str]:
        """Return the reasons for several nodes."""
        counts = [(wanted, snapshot.columns.device_counts(wanted)[nodes].tolist()) for wanted in pod.request.devices]
        return [
            next(
                f"it has {present[index]} of {wanted.count} {wanted}"
                for wanted, present in counts
                if present[index] < wanted.count
            )
            for index in range(len(nodes))
        ]


class FitsResources:
    """Refuses nodes where the request does not fit next to what is held: cores, memory, thousandths of devices."""

    Settings = NoSettings
    is_local = True

    def __init__(self, settings: NoSettings) -> None:
        del settings
        self._reasons: dict[tuple[Request, int], tuple[object, str]] = {}

    def passes(self, pod: PendingPod, snapshot: Snapshot) -> Flags | None:
        """Return the nodes where it fits."""
        request, free, columns = pod.request, snapshot.free, snapshot.columns
        fitting: Flags = free.cpu_milli >= request.cpu_milli
        if request.memory_bytes:
            fitting &= free.memory_bytes >= request.memory_bytes
        for wanted in request.devices:
            good = columns.accepted(wanted) & (free.device_milli >= wanted.thousandths)
            if wanted.memory_bytes:
                good &= free.device_memory_bytes >= wanted.memory_bytes
            fitting &= columns.counted_for(wanted, good) >= wanted.count
        if len(request.devices) > 1:
            # Each part fits by itself; check node by node whether all fit together.
            for node in np.flatnonzero(fitting).tolist():
                fitting[node] = fits(columns.nodes[node], free.held_of(columns, node), request) is None
        return fitting

    def reason(self, pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        """Return what is short, and by how much."""
        state = (snapshot.columns, pod.device is None, *_rows_of(snapshot, node))
        cached = self._reasons.get((pod.request, node))
        if cached is not None and cached[0] == state:
            return cached[1]
        if len(self._reasons) >= _MOST_CACHED:
            self._reasons.clear()
        text = self._reason(pod, snapshot, node)
        self._reasons[pod.request, node] = (state, text)
        return text

    @staticmethod
    def _reason(pod: PendingPod, snapshot: Snapshot, node: int) -> str:
        columns, hardware = snapshot.columns, snapshot.columns.nodes[node]
        refusal = fits(hardware, snapshot.free.held_of(columns, node), pod.request)
        if snapshot.unnarrowed is not None and pod.device is None:
            # Report first what is missing even with the devices that are kept from the pod.
            refusal = fits(hardware, snapshot.unnarrowed.held_of(columns, node), pod.request) or refusal
        return "it fits" if refusal is None else "; ".join(map(str, refusal.missing))


def _rows_of(snapshot: Snapshot, node: int) -> tuple[object, ...]:
    """Return the state that a node's refusal depends on, besides the request, in a form that is fast to compare."""
    rows = slice(*snapshot.columns.device_start[node : node + 2].tolist())
    parts: list[object] = []
    for free in (snapshot.free, snapshot.unnarrowed):
        if free is not None:
            parts += [int(free.cpu_milli[node]), int(free.memory_bytes[node])]
            parts += [free.device_milli[rows].tobytes(), free.device_memory_bytes[rows].tobytes()]
    return tuple(parts)


def _has(snapshot: Snapshot, wanted: DeviceRequest) -> Flags:
    return snapshot.columns.device_counts(wanted) >= wanted.count
