"""The topology: one frozen value that fabrics, collector, path server and controller all read.

Loading and checking a file is `dataplane.topology.file`; parametric families are `dataplane.topology.families`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address


class DeviceKind(StrEnum):
    """What computes in a host; xpu is an accelerator that is none of the others."""

    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"
    NPU = "npu"
    DPU = "dpu"
    FPGA = "fpga"
    XPU = "xpu"


class NumberFormat(StrEnum):
    """What an operation computes with: integers and floating-point numbers, with their bits."""

    INT4 = "int4"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FP8 = "fp8"
    FP16 = "fp16"
    BF16 = "bf16"
    TF32 = "tf32"
    FP32 = "fp32"
    FP64 = "fp64"


class MediumKind(StrEnum):
    """What memory is made of: DRAM, storage-class memory, or other non-volatile memory."""

    DRAM = "dram"
    SCM = "scm"
    NVM = "nvm"


class BusKind(StrEnum):
    """How a device hangs on its host; `system` is the memory's own bus, as for a GPU that shares the CPU's memory."""

    PCIE = "pcie"
    CXL = "cxl"
    NVLINK = "nvlink"
    XGMI = "xgmi"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class MemoryMedium:
    """Memory of one kind in a host; None for what nobody has said."""

    kind: MediumKind
    capacity_bytes: int
    read_latency_ns: int | None = None
    write_latency_ns: int | None = None
    bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True)
class Bus:
    """A device's way to its host's memory, and its rate in one direction."""

    kind: BusKind
    bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True)
class PeakRate:
    """The most operations a second that a device is made for, in one number format; a multiply-add is two."""

    format: NumberFormat
    ops_per_s: int


@dataclass(frozen=True, slots=True)
class Device:
    """A number of equal compute devices of one host; memory, bus and rates are those of each.

    `rates` name no format twice and stand in the order of `NumberFormat`. Devices of kind CPU are sockets: they say
    what the host's cores are.
    """

    kind: DeviceKind
    count: int
    model: str = ""
    memory_bytes: int | None = None
    bus: Bus | None = None
    rates: tuple[PeakRate, ...] = ()


@dataclass(frozen=True, slots=True)
class GeoLocation:
    """Where a node stands, for pictures and for propagation delays; degrees."""

    latitude: float
    longitude: float
    city: str = ""


@dataclass(frozen=True, slots=True)
class SwitchNode:
    """A switch; `node_id` is its INT node id and its P4Runtime device id.

    `report_source` is where its telemetry reports come from, None for the address that the plan gives the switch.
    """

    name: str
    node_id: int
    place: GeoLocation | None = None
    report_source: IPv4Address | None = None


@dataclass(frozen=True, slots=True)
class HostNode:
    """A host with one interface; `mac` is 48 bits, `cores` None where nobody has said how many it has."""

    name: str
    mac: int
    ipv4: IPv4Address
    ipv6: IPv6Address | None = None
    place: GeoLocation | None = None
    devices: tuple[Device, ...] = ()
    cores: int | None = None
    memory: tuple[MemoryMedium, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """One end of a link; switch ports count from 1, a host's only port is 0."""

    node: str
    port: int


@dataclass(frozen=True, slots=True)
class Link:
    """A full-duplex cable: the same rate (bit/s), propagation delay (ns) and output queue (frames) both ways.

    Of what enters either direction, `loss_ppb` in 10^9 frames vanish, each by its own chance. A frame takes the delay,
    less or more by up to `jitter_ns` (at most the delay; every value is as likely), but overtakes none before it.
    """

    a: Endpoint
    b: Endpoint
    rate_bps: int
    delay_ns: int
    queue_frames: int
    loss_ppb: int = 0
    jitter_ns: int = 0


@dataclass(frozen=True, slots=True, order=True)
class LinkKey:
    """A directed link, by the names of its nodes; parallel links do not exist in a topology."""

    src: str
    dst: str

    def __str__(self) -> str:
        return f"{self.src}->{self.dst}"


@dataclass(frozen=True, slots=True)
class DirectedLink:
    """One direction of a cable: frames leave at `tail` and arrive at `head`; see `Link`."""

    tail: Endpoint
    head: Endpoint
    rate_bps: int
    delay_ns: int
    queue_frames: int
    loss_ppb: int = 0
    jitter_ns: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether nothing about it is left to chance."""
        return not self.loss_ppb and not self.jitter_ns

    @property
    def key(self) -> LinkKey:
        """Its name."""
        return LinkKey(self.tail.node, self.head.node)


@dataclass(frozen=True, slots=True)
class CollectorAddress:
    """Where switches send their telemetry reports: a host of the topology and a UDP port."""

    host: str
    udp_port: int


@dataclass(frozen=True)
class Topology:
    """Switches, hosts and cables; immutable, checked when it was loaded, lookups computed once."""

    name: str
    switches: tuple[SwitchNode, ...]
    hosts: tuple[HostNode, ...]
    links: tuple[Link, ...]
    collector: CollectorAddress | None = None
    synchronised_clocks: bool = field(default=False)

    @cached_property
    def switch(self) -> dict[str, SwitchNode]:
        """Switches by name."""
        return {node.name: node for node in self.switches}

    @cached_property
    def host(self) -> dict[str, HostNode]:
        """Hosts by name."""
        return {node.name: node for node in self.hosts}

    @cached_property
    def switch_by_id(self) -> dict[int, SwitchNode]:
        """Switches by INT node id."""
        return {node.node_id: node for node in self.switches}

    @cached_property
    def host_by_address(self) -> dict[IPv4Address | IPv6Address, HostNode]:
        """Hosts by IPv4 and IPv6 address."""
        found: dict[IPv4Address | IPv6Address, HostNode] = {node.ipv4: node for node in self.hosts}
        found.update({node.ipv6: node for node in self.hosts if node.ipv6 is not None})
        return found

    @cached_property
    def directed_links(self) -> dict[LinkKey, DirectedLink]:
        """Both directions of every cable, by key, in the file's order."""
        both = (
            DirectedLink(tail, head, link.rate_bps, link.delay_ns, link.queue_frames, link.loss_ppb, link.jitter_ns)
            for link in self.links
            for tail, head in ((link.a, link.b), (link.b, link.a))
        )
        return {link.key: link for link in both}

    @cached_property
    def link_at(self) -> dict[Endpoint, DirectedLink]:
        """The directed link that leaves at an endpoint."""
        return {link.tail: link for link in self.directed_links.values()}

    @cached_property
    def attachment(self) -> dict[str, Endpoint]:
        """The switch port that each host hangs on, by host name."""
        return {link.tail.node: link.head for link in self.directed_links.values() if link.tail.node in self.host}

    @cached_property
    def neighbours(self) -> dict[str, dict[int, Endpoint]]:
        """For each switch and host: its ports and what is at the other end."""
        found: dict[str, dict[int, Endpoint]] = {name: {} for name in (*self.switch, *self.host)}
        for link in self.directed_links.values():
            found[link.tail.node][link.tail.port] = link.head
        return found
