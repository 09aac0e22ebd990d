"""Node: a machine that runs pods; a host of the topology by name."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Literal

from msgspec import Meta

from controller.apiserver.resources.base import Count, Kind, Line, Lines, Name, Resource, Seconds, TimeNs
from controller.apiserver.resources.hardware import DeviceNumber, DeviceShares, Hardware, Load, shares_of
from controller.cluster.hardware import values
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

    number: DeviceNumber
    load: Load


class HostLink(Strict, frozen=True):
    """What a host's own counters say of its link, on the wire, since its report before: no switch measures that."""

    sent_bps: Count
    received_bps: Count
    rate_bps: Count | None = None
    """What it can carry in each direction, where that is known."""
    age_ns: Count = 0
    """How old this was when it was reported."""


class NodeStatus(Strict, frozen=True):
    """What its container manager reports."""

    ready: bool = False
    reason: Line = ""
    heartbeat_ns: TimeNs | None = None
    """When it reported last, by the clock of the server, which writes it with each report."""
    manager: Line = ""
    """Which manager reports: the identity of its state folder. Another one's reports are refused during its lease."""
    signed_off: bool = False
    """That manager has left nothing here: another one need not wait for the end of its lease."""
    hardware: Hardware | None = None
    runtime: Line = ""
    load: Load | None = None
    devices: Annotated[tuple[DeviceLoad, ...], Meta(max_length=256)] = ()
    images: Annotated[tuple[Image, ...], Meta(max_length=1024)] = ()
    link: HostLink | None = None
    """Its host's link into the network, where its device is known."""


class Share(Strict, frozen=True):
    """What a pod holds of a node, from its binding to its release."""

    pod: Name
    uid: Line
    epoch: Count
    cpu_milli: Count = 0
    memory_bytes: Count = 0
    devices: DeviceShares = ()

    @property
    def value(self) -> values.Shares:
        """It as schedulers see it."""
        return shares_of(self.cpu_milli, self.memory_bytes, self.devices)


class PoolShare(Strict, frozen=True):
    """What the holders of a pool's units have of a node together."""

    pool: Name
    devices: DeviceShares

    @property
    def value(self) -> values.Shares:
        """It as schedulers see it."""
        return shares_of(0, 0, self.devices)


class Node(Resource, frozen=True):
    """A machine that runs pods. `shares` are written by bindings and releases alone, a version each.

    So are `pools` by the shares of unit pools: one book says what is held of a node's devices.
    """

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    shares: Annotated[tuple[Share, ...], Meta(max_length=1024)] = ()
    pools: Annotated[tuple[PoolShare, ...], Meta(max_length=256)] = ()
    shares_version: Count = 0
    kind: Literal["Node"] = "Node"

    @property
    def hardware(self) -> Hardware | None:
        """What it has: what users say, else what it reports."""
        return self.spec.hardware or self.status.hardware

    @property
    def value(self) -> values.Node | None:
        """It as schedulers see it; None where nobody has said what it has."""
        hardware = self.hardware
        return None if hardware is None else hardware.node(self.metadata.name, self.metadata.labels)

    @property
    def held(self) -> values.Shares:
        """All that is held of it; raise HardwareError where that is more than there can be."""
        return sum((share.value for share in chain[Share | PoolShare](self.shares, self.pools)), values.NOTHING)


NODE = Kind(
    "Node",
    "nodes",
    Node,
    fields={"ready": lambda node: str(node.status.ready).lower()},
    owned=("shares", "pools", "shares_version"),
)
