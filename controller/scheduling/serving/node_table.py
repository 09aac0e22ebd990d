"""Nodes as columns that follow the watch row by row; a table is a value, and changes make a new one.

`NodeTable.of` rebuilds all columns and is what `changed` must equal: the tests compare the two after random events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.apiserver.resources import Node
from controller.cluster.hardware import WHOLE, Cluster, values
from controller.cluster.hardware.errors import HardwareError
from controller.cluster.hardware.values import NOTHING
from controller.scheduling.framework.policies import Flags, Floats, Ids
from controller.scheduling.pods.columns import FreeColumns, NodeColumns
from controller.scheduling.serving.reports import images_of, measured_devices, with_images

Images = Mapping[str, Mapping[int, int]]


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node's resource and its value for policies; a node without a value is left out because of its `problem`."""

    node: Node
    value: values.Node | None
    held: values.Shares
    problem: str = ""

    @classmethod
    def of(cls, node: Node, before: KnownNode | None) -> KnownNode:
        """Return the entry of a node; its value is rebuilt only if hardware or labels have changed."""
        if before is not None and before.node is node:
            return before
        try:
            is_same = before is not None and before.value is not None and _has_same_hardware(before.node, node)
            value = before.value if before is not None and is_same else node.value
            if value is None:
                return cls(node, None, NOTHING, "it has not reported its hardware")
            held = node.held
            value.check(held)
            return cls(node, value, held)
        except HardwareError as error:
            return cls(node, None, NOTHING, str(error))


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """Columns of nodes in order: free resources, readiness, reports, and the number of pods that hold shares."""

    nodes: tuple[Node, ...]
    columns: NodeColumns
    free: FreeColumns
    ready: Flags
    busy: Floats | None
    """Load of each device, NaN if not measured; None if no node reports any."""
    images: Images
    pods: Ids

    @classmethod
    def of(cls, entries: Sequence[KnownNode], columns: NodeColumns | None = None) -> NodeTable:
        """Return the table of nodes that have a value; `columns` are reused if they hold the same values."""
        hardware = tuple(entry.value for entry in entries if entry.value is not None)
        if columns is None or not _are_same(hardware, columns.nodes):
            columns = NodeColumns.of(hardware)
        nodes = tuple(entry.node for entry in entries if entry.value is not None)
        held = {entry.node.metadata.name: entry.held for entry in entries if entry.value is not None}
        free = FreeColumns.of(columns, Cluster({value.name: value for value in hardware}, held))
        return cls(
            nodes,
            columns,
            free,
            np.array([is_ready(node) for node in nodes], np.bool_),
            measured_devices(columns, nodes, free),
            images_of(nodes),
            np.array([len(node.shares) for node in nodes], np.int64),
        )

    def changed(self, entries: Sequence[KnownNode]) -> NodeTable | None:
        """Return the table with the rows of these nodes rewritten.

        None if that is not enough: a node comes or goes, its hardware changes, or device reports begin.
        """
        rows = [self.columns.number.get(entry.node.metadata.name, -1) for entry in entries]
        if any(row < 0 or self.columns.nodes[row] is not entry.value for row, entry in zip(rows, entries, strict=True)):
            return None
        if self.busy is None and any(entry.node.status.devices for entry in entries):
            return None
        nodes = list(self.nodes)
        table = replace(
            self,
            free=self.free.copy(),
            ready=self.ready.copy(),
            busy=None if self.busy is None else self.busy.copy(),
            images=with_images(
                self.images, [(row, nodes[row], entry.node) for row, entry in zip(rows, entries, strict=True)]
            ),
            pods=self.pods.copy(),
        )
        for row, entry in zip(rows, entries, strict=True):
            nodes[row] = entry.node
            _write(table, row, entry)
        if table.busy is not None and not any(node.status.devices for node in nodes):
            return None
        return replace(table, nodes=tuple(nodes))


def is_ready(node: Node) -> bool:
    """Return whether a node takes pods."""
    return node.status.ready and not node.spec.unschedulable and node.metadata.deleting_ns is None


def _are_same(items: Sequence[object], others: Sequence[object]) -> bool:
    return len(items) == len(others) and all(item is other for item, other in zip(items, others, strict=True))


def _has_same_hardware(before: Node, now: Node) -> bool:
    return before.hardware == now.hardware and before.metadata.labels == now.metadata.labels


def _write(table: NodeTable, row: int, entry: KnownNode) -> None:
    """Write a node's row, and those of its devices, in place."""
    node, held = entry.node, entry.held
    table.ready[row], table.pods[row] = is_ready(node), len(node.shares)
    table.free.cpu_milli[row] = table.columns.cpu_milli[row] - held.cpu_milli
    table.free.memory_bytes[row] = table.columns.memory_bytes[row] - held.memory_bytes
    first, last = int(table.columns.device_start[row]), int(table.columns.device_start[row + 1])
    milli, nbytes = table.free.device_milli, table.free.device_memory_bytes
    milli[first:last] = WHOLE
    nbytes[first:last] = table.columns.device_memory_bytes[first:last]
    for share in held.devices:
        milli[first + share.number] -= share.thousandths
        nbytes[first + share.number] -= share.memory_bytes
    if table.busy is None:
        return
    table.busy[first:last] = np.nan
    for device in node.status.devices:
        device_row = first + device.number
        # A report may name a device that the node's hardware no longer has.
        if device_row >= last:
            continue
        if device.load.busy is not None:
            table.busy[device_row] = device.load.busy
        if device.load.memory_free_bytes is not None:
            nbytes[device_row] = min(nbytes[device_row], device.load.memory_free_bytes)
