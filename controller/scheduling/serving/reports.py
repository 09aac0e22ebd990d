"""Nodes' reports apart from their hardware: load and free memory of devices, and images."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from controller.apiserver.resources import Node
from controller.scheduling.framework.policies import Floats
from controller.scheduling.pods.columns import FreeColumns, NodeColumns


def measured_devices(columns: NodeColumns, nodes: Sequence[Node], free: FreeColumns) -> Floats | None:
    """Return device loads, NaN if not reported, None if none is; nodes in the columns' order.

    Memory that is free by shares but used by something else, according to the report, is marked as not free, in place.
    """
    if not any(node.status.devices for node in nodes):
        return None
    busy = np.full(len(columns.device_node), np.nan)
    for row, node in enumerate(nodes):
        first, last = int(columns.device_start[row]), int(columns.device_start[row + 1])
        for device in node.status.devices:
            device_row = first + device.number
            # A report may name a device that the node's hardware no longer has.
            if device_row >= last:
                continue
            if device.load.busy is not None:
                busy[device_row] = device.load.busy
            if device.load.memory_free_bytes is not None:
                free.device_memory_bytes[device_row] = min(
                    free.device_memory_bytes[device_row], device.load.memory_free_bytes
                )
    return busy


def lower_loads(before: Node, now: Node) -> tuple[tuple[float, float], ...]:
    """Return the loads, before and now, of devices that are less busy; 0 for a device that is no longer measured."""
    loads = {device.number: device.load.busy or 0.0 for device in now.status.devices}
    pairs = ((device.load.busy or 0.0, loads.get(device.number, 0.0)) for device in before.status.devices)
    return tuple((load, now_load) for load, now_load in pairs if now_load < load)


def images_of(nodes: Sequence[Node]) -> Mapping[str, Mapping[int, int]]:
    """Return the nodes, by number, that have an image, and its bytes; by each of its names and its digest."""
    images: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for row, node in enumerate(nodes):
        for image in node.status.images:
            for name in (image.digest, *image.names):
                images[name][row] = image.nbytes
    return dict(images)


def with_images(
    images: Mapping[str, Mapping[int, int]], changes: Sequence[tuple[int, Node, Node]]
) -> Mapping[str, Mapping[int, int]]:
    """Return the result of `images_of` after these nodes, by number, have sent a new report."""
    changes = [change for change in changes if change[1].status.images != change[2].status.images]
    if not changes:
        return images
    updated = {name: dict(rows) for name, rows in images.items()}
    for row, before, now in changes:
        for image in before.status.images:
            for name in (image.digest, *image.names):
                if name in updated:
                    updated[name].pop(row, None)
        for image in now.status.images:
            for name in (image.digest, *image.names):
                updated.setdefault(name, {})[row] = image.nbytes
    return {name: rows for name, rows in updated.items() if rows}
