"""Node: a machine that runs pods; a host of the topology by name."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Literal

from msgspec import Meta

from controller.apiserver.resources.base import Count, Line, Lines, Name, Resource, Seconds, TimeNs
from controller.apiserver.resources.hardware import DeviceNumber, DeviceShares, Hardware, Load, shares_of
from controller.apiserver.resources.kind import Kind, Own, Rights, Verb, check_no_holders
from controller.apiserver.resources.nic import MOST_QUEUES, PolledQueue, polled_in_words
from controller.apiserver.resources.reported import ReportedStrategy
from controller.cluster.hardware import values
from controller.common.errors import StaleError
from dataplane.config import Strict
from dataplane.rpc.access import Role


class NodeSpec(Strict, frozen=True):
    """Desired state, set by users."""

    unschedulable: bool = False
    """Place nothing new here."""
    reason: Line = ""
    lease_s: Seconds = 40.0
    """After this long without a report the node has stopped its pods, and they may run elsewhere."""
    hardware: Hardware | None = None
    """Overrides the reported hardware."""


class Image(Strict, frozen=True):
    """An image that the node already has."""

    digest: Line
    names: Lines = ()
    nbytes: Count = 0


class DeviceLoad(Strict, frozen=True):
    """Load of one device."""

    number: DeviceNumber
    load: Load


class HostLink(Strict, frozen=True):
    """A host's own counters of its link, on the wire, since its last report: no switch measures that."""

    sent_bps: Count
    received_bps: Count
    rate_bps: Count | None = None
    """Capacity in each direction, if known."""
    age_ns: Count = 0
    """Age when it was reported."""


class NodeStatus(Strict, frozen=True):
    """Report of its container manager."""

    ready: bool = False
    reason: Line = ""
    heartbeat_ns: TimeNs | None = None
    """Time of the last report; the server writes it, by its own clock."""
    manager: Line = ""
    """Identity of the reporting manager's state folder. Reports by other managers are refused during its lease."""
    signed_off: bool = False
    """The manager has left nothing here: another one need not wait for its lease to expire."""
    hardware: Hardware | None = None
    runtime: Line = ""
    load: Load | None = None
    devices: Annotated[tuple[DeviceLoad, ...], Meta(max_length=256)] = ()
    images: Annotated[tuple[Image, ...], Meta(max_length=1024)] = ()
    link: HostLink | None = None
    """Its host's link into the network, if the device is known."""
    nic_queues: Annotated[tuple[PolledQueue, ...], Meta(max_length=MOST_QUEUES)] = ()
    """Queues of network devices that processes of its machine poll."""
    notes: Lines = ()
    """Hardware that was not found and counters that cannot be read, and why."""


class Share(Strict, frozen=True):
    """A pod's share of a node, from its binding to its release."""

    pod: Name
    uid: Line
    epoch: Count
    cpu_milli: Count = 0
    memory_bytes: Count = 0
    devices: DeviceShares = ()

    @property
    def value(self) -> values.Shares:
        """The share in the scheduler's form."""
        return shares_of(self.cpu_milli, self.memory_bytes, self.devices)


class PoolShare(Strict, frozen=True):
    """Combined shares of a pool's holders on a node."""

    pool: Name
    devices: DeviceShares

    @property
    def value(self) -> values.Shares:
        """The share in the scheduler's form."""
        return shares_of(0, 0, self.devices)


class Node(Resource, frozen=True):
    """A machine that runs pods. Only bindings and releases write `shares`; each increments the version.

    So do the shares of unit pools with `pools`: one record covers all of a node's devices.
    """

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()
    shares: Annotated[tuple[Share, ...], Meta(max_length=1024)] = ()
    pools: Annotated[tuple[PoolShare, ...], Meta(max_length=256)] = ()
    shares_version: Count = 0
    kind: Literal["Node"] = "Node"

    @property
    def hardware(self) -> Hardware | None:
        """Effective hardware: from the spec, else as reported."""
        return self.spec.hardware or self.status.hardware

    @property
    def value(self) -> values.Node | None:
        """The node in the scheduler's form; None if its hardware is unknown."""
        hardware = self.hardware
        return None if hardware is None else hardware.node(self.metadata.name, self.metadata.labels)

    @property
    def held(self) -> values.Shares:
        """All shares of it together; raise HardwareError if they exceed its hardware."""
        return sum((share.value for share in chain[Share | PoolShare](self.shares, self.pools)), values.NOTHING)


class NodeStrategy(ReportedStrategy[Node]):
    """Nodes: reported by their manager, and there as long as pods or pools hold shares."""

    def may_delete(self, current: Node) -> None:
        """Refuse a node whose shares are held."""
        name = current.metadata.name
        if current.pools:
            raise StaleError(f"Node {name} has shares held by pool {current.pools[0].pool}")
        check_no_holders("Node", name, [share.pod for share in current.shares])


NODE = Kind(
    "Node",
    "nodes",
    Node,
    fields={"ready": lambda node: str(node.status.ready).lower()},
    initial=("shares", "pools", "shares_version"),
    columns={
        "ready": lambda node: "yes" if node.status.ready else node.status.reason or "no",
        "schedulable": lambda node: "no" if node.spec.unschedulable else "yes",
        "cores": lambda node: None if node.hardware is None else node.hardware.cpu_milli / 1000,
        "devices": lambda node: None if node.hardware is None else len(node.hardware.devices),
        "pods": lambda node: len(node.shares),
        "polled queues": lambda node: polled_in_words(node.status.nic_queues),
    },
    rights=Rights(
        own={Role.NODE: Own("name", frozenset({Verb.READ, Verb.CREATE, Verb.STATUS}))},
        roles={
            Role.PLACEMENT: frozenset({Verb.READ, Verb.REPLACE, Verb.STATUS}),
            Role.BALANCE: frozenset({Verb.READ}),
        },
    ),
    strategy=NodeStrategy("manager", "a manager"),
)
