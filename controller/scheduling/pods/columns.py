"""Nodes as columns of capacity and free resources, so that a policy evaluates a thousand at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from controller.cluster.hardware import WHOLE, Cluster, DeviceRequest, DeviceShare, Node, Shares
from dataplane.topology.values import DeviceKind

Longs = npt.NDArray[np.int64]
Ids = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NodeColumns:
    """Hardware of nodes; rows are nodes in order, and all their devices, those of a node side by side.

    A node's devices are the rows from `device_start[node]` up to `device_start[node + 1]`.
    """

    nodes: tuple[Node, ...]
    cpu_milli: Longs
    memory_bytes: Longs
    device_node: Ids
    device_start: Ids
    device_memory_bytes: Longs

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> NodeColumns:
        """Return nodes as columns."""
        counts = [len(node.devices) for node in nodes]
        return cls(
            nodes=tuple(nodes),
            cpu_milli=_longs([node.cpu_milli for node in nodes]),
            memory_bytes=_longs([node.memory_bytes for node in nodes]),
            device_node=np.repeat(np.arange(len(nodes)), counts),
            device_start=_longs([0, *accumulate(counts)]),
            device_memory_bytes=_longs([device.memory_bytes or 0 for node in nodes for device in node.devices]),
        )

    @cached_property
    def device_bus_rate(self) -> Floats:
        """The rate of each device's bus (bytes a second), 0 if unknown."""
        devices = [device for node in self.nodes for device in node.devices]
        rates = [0 if device.bus is None else device.bus.bytes_per_s or 0 for device in devices]
        return np.array(rates, np.float64)

    @cached_property
    def device_number(self) -> Ids:
        """The number of each device on its node."""
        numbers: Ids = np.arange(len(self.device_node)) - self.device_start[self.device_node]
        return numbers

    @cached_property
    def number(self) -> dict[str, int]:
        """Rows by name."""
        return {node.name: row for row, node in enumerate(self.nodes)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The nodes' names."""
        return tuple(node.name for node in self.nodes)

    def accepted(self, wanted: DeviceRequest) -> Flags:
        """Return which devices are of the kind and model that a request accepts."""
        key = (wanted.kinds, wanted.models)
        if (flags := self._accepted.get(key)) is None:
            devices = (device for node in self.nodes for device in node.devices)
            flags = np.fromiter((wanted.accepts(device) for device in devices), np.bool_)
            self._accepted[key] = flags
        return flags

    @cached_property
    def _accepted(self) -> dict[tuple[tuple[DeviceKind, ...], frozenset[str]], Flags]:
        return {}

    def device_counts(self, wanted: DeviceRequest) -> Longs:
        """Return how many devices each node has that a request accepts, busy or not."""
        key = (wanted.kinds, wanted.models)
        if (counts := self._device_counts.get(key)) is None:
            counts = self._device_counts[key] = self.counted_for(wanted, self.accepted(wanted))
        return counts

    @cached_property
    def _device_counts(self) -> dict[tuple[tuple[DeviceKind, ...], frozenset[str]], Longs]:
        return {}

    def counted_for(self, wanted: DeviceRequest, devices: Flags) -> Longs:
        """Return how many of the marked devices each node has for a request: those of one kind."""
        if not wanted.is_open:
            return self.counted(devices)
        counts = np.zeros(len(self.nodes), np.int64)
        for kind in wanted.kinds:
            np.maximum(counts, self.counted(devices & self.accepted(wanted.of_kind(kind))), out=counts)
        return counts

    def counted(self, devices: Flags) -> Longs:
        """Return how many of the marked devices each node has."""
        # Differences of cumulative sums are faster than counting by node.
        total = np.zeros(len(devices) + 1, np.int64)
        np.cumsum(devices, out=total[1:])
        counts: Longs = total[self.device_start[1:]] - total[self.device_start[:-1]]
        return counts


@dataclass(frozen=True, slots=True, eq=False)
class FreeColumns:
    """Free resources of nodes, and of their devices in thousandths and bytes; rows as in `NodeColumns`."""

    cpu_milli: Longs
    memory_bytes: Longs
    device_milli: Longs
    device_memory_bytes: Longs

    @classmethod
    def of(cls, columns: NodeColumns, cluster: Cluster) -> FreeColumns:
        """Return the resources of nodes that are not held."""
        free = cls(
            columns.cpu_milli.copy(),
            columns.memory_bytes.copy(),
            np.full(len(columns.device_node), WHOLE, np.int64),
            columns.device_memory_bytes.copy(),
        )
        for name, shares in cluster.held.items():
            free.add(columns, columns.number[name], shares, -1)
        return free

    def copy(self) -> FreeColumns:
        """Return a copy with its own memory."""
        return FreeColumns(
            self.cpu_milli.copy(), self.memory_bytes.copy(), self.device_milli.copy(), self.device_memory_bytes.copy()
        )

    def sealed(self) -> FreeColumns:
        """Return the same memory as read-only columns."""
        views = [
            column.view() for column in (self.cpu_milli, self.memory_bytes, self.device_milli, self.device_memory_bytes)
        ]
        for view in views:
            view.flags.writeable = False
        return FreeColumns(*views)

    def narrowed(self, usable: Flags) -> FreeColumns:
        """Return the columns without free resources on devices that are not usable."""
        return FreeColumns(
            self.cpu_milli,
            self.memory_bytes,
            np.where(usable, self.device_milli, 0),
            np.where(usable, self.device_memory_bytes, 0),
        )

    def add(self, columns: NodeColumns, node: int, shares: Shares, sign: int) -> None:
        """Release (1) or take (-1) shares of a node, in place."""
        self.cpu_milli[node] += sign * shares.cpu_milli
        self.memory_bytes[node] += sign * shares.memory_bytes
        for share in shares.devices:
            row = columns.device_start[node] + share.number
            self.device_milli[row] += sign * share.thousandths
            self.device_memory_bytes[row] += sign * share.memory_bytes

    def held_of(self, columns: NodeColumns, node: int) -> Shares:
        """Return the held resources of a node."""
        rows = slice(int(columns.device_start[node]), int(columns.device_start[node + 1]))
        milli = (WHOLE - self.device_milli[rows]).tolist()
        nbytes = (columns.device_memory_bytes[rows] - self.device_memory_bytes[rows]).tolist()
        return Shares(
            int(columns.cpu_milli[node] - self.cpu_milli[node]),
            int(columns.memory_bytes[node] - self.memory_bytes[node]),
            tuple(
                DeviceShare(number, thousandths, used)
                for number, (thousandths, used) in enumerate(zip(milli, nbytes, strict=True))
                if thousandths or used
            ),
        )

    def fewest_left(self, columns: NodeColumns, node: int, wanted: DeviceRequest) -> tuple[DeviceShare, ...]:
        """Return the devices that `hardware.choose` gives a request for one kind: those with the least left.

        Empty if there are too few, and for several devices of an open kind.
        """
        if wanted.is_open and wanted.count > 1:
            return ()
        rows = slice(int(columns.device_start[node]), int(columns.device_start[node + 1]))
        milli, nbytes = self.device_milli[rows].tolist(), self.device_memory_bytes[rows].tolist()
        good = [
            (milli[device.number], nbytes[device.number], device.number)
            for device in columns.nodes[node].devices
            if milli[device.number] >= wanted.thousandths
            and nbytes[device.number] >= wanted.memory_bytes
            and wanted.accepts(device)
        ]
        if len(good) < wanted.count:
            return ()
        chosen = sorted(number for *_, number in sorted(good)[: wanted.count])
        return tuple(DeviceShare(number, wanted.thousandths, wanted.memory_bytes) for number in chosen)

    def taking(self, columns: NodeColumns, node: int, shares: Shares) -> FreeColumns:
        """Return the free resources after these shares of a node are taken."""
        free = self.copy()
        free.add(columns, node, shares, -1)
        return free


def _longs(values: Sequence[int]) -> Longs:
    return np.array(values, np.int64)
