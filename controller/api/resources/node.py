"""Node: a machine that runs pods; a host of the topology by name."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from controller.api.resources.base import Count, Kind, Line, Lines, Name, Resource, Seconds, TimeNs
from controller.api.resources.hardware import DeviceShares, Hardware, Load
from dataplane.config import Strict


class NodeSpec(Strict, frozen=True):
    """What users want of it."""

    unschedulable: bool = False
    """Nothing new is placed here."""
    reason: Line = ""
    lease_s: Seconds = 40.0
    """A node that is silent for so long has stopped its pods, and they may run elsewhere."""
    hardware: Hardware | None = None
    """What it has, where that is not to be what it reports."""


class Image(Strict, frozen=True):
    """An image that is there already."""

    digest: Line
    names: Lines = ()
    nbytes: Count = 0


class DeviceLoad(Strict, frozen=True):
    """What one device does."""

    device: Name
    load: Load


class NodeStatus(Strict, frozen=True):
    """What its container manager reports."""

    ready: bool = False
    reason: Line = ""
    heartbeat_ns: TimeNs | None = None
    """When it reported last, by the clock of the server, which writes it with each report."""
    hardware: Hardware | None = None
    runtime: Line = ""
    load: Load | None = None
    devices: Annotated[tuple[DeviceLoad, ...], Meta(max_length=256)] = ()
    images: Annotated[tuple[Image, ...], Meta(max_length=1024)] = ()


class Share(Strict, frozen=True):
    """What a pod holds of a node, from its binding to its release."""

    pod: Name
    uid: Line
    epoch: Count
    cpu_milli: Count = 0
    memory_bytes: Count = 0
    devices: DeviceShares = ()


class Node(Resource, frozen=True):
    """A machine that runs pods. `shares` are written by bindings and releases alone, a version each."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    shares: Annotated[tuple[Share, ...], Meta(max_length=1024)] = ()
    shares_version: Count = 0
    kind: Literal["Node"] = "Node"

    @property
    def hardware(self) -> Hardware | None:
        """What it has: what users say, else what it reports."""
        return self.spec.hardware or self.status.hardware


NODE = Kind(
    "Node",
    "nodes",
    Node,
    fields={"ready": lambda node: str(node.status.ready).lower()},
    owned=("shares", "shares_version"),
)
