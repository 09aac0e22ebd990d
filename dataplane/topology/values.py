"""The topology: one frozen value that fabrics, collector, path server and controller all read.

`dataplane.topology.file` loads and checks files; parametric families are in `dataplane.topology.families`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from ipaddress import IPv4Address, IPv6Address


class DeviceKind(StrEnum):
    """Type of a host's compute device; xpu is any other accelerator."""

    CPU = "cpu"
    GPU = "gpu"
    TPU = "tpu"
    NPU = "npu"
    DPU = "dpu"
    FPGA = "fpga"
    XPU = "xpu"


class NumberFormat(StrEnum):
    """Number format of an operation: integers and floating-point numbers, with their bits."""

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
    """Memory technology: DRAM, storage-class memory, or other non-volatile memory."""

    DRAM = "dram"
    SCM = "scm"
    NVM = "nvm"


class BusKind(StrEnum):
    """Attachment of a device to its host; `system` is the memory's own bus, as for a GPU that shares CPU memory."""

    PCIE = "pcie"
    CXL = "cxl"
    NVLINK = "nvlink"
    XGMI = "xgmi"
    SYSTEM = "system"


@dataclass(frozen=True, slots=True)
class MemoryMedium:
    """Memory of one kind in a host; None for unknown values."""

    kind: MediumKind
    capacity_bytes: int
    read_latency_ns: int | None = None
    write_latency_ns: int | None = None
    bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True)
class Bus:
    """A device's connection to its host's memory, and its rate in one direction."""

    kind: BusKind
    bytes_per_s: int | None = None


@dataclass(frozen=True, slots=True)
class PeakRate:
    """Nominal peak operations per second of a device in one number format; a multiply-add counts as two."""

    format: NumberFormat
    ops_per_s: int


@dataclass(frozen=True, slots=True)
class Device:
    """A number of identical compute devices of one host; memory, bus and rates are those of each.

    `rates` name no format twice and follow the order of `NumberFormat`. Devices of kind CPU are sockets: they describe
    the host's cores.
    """

    kind: DeviceKind
    count: int
    model: str = ""
    memory_bytes: int | None = None
    bus: Bus | None = None
    rates: tuple[PeakRate, ...] = ()


@dataclass(frozen=True, slots=True)
class GeoLocation:
    """Location of a node, for plots and for propagation delays; degrees."""

    latitude: float
    longitude: float
    city: str = ""


@dataclass(frozen=True, slots=True)
class SwitchNode:
    """A switch; `node_id` is its INT node id and its P4Runtime device id.

    `report_source` is the source of its telemetry reports, None for the switch's address in the plan.
    """

    name: str
    node_id: int
    place: GeoLocation | None = None
    report_source: IPv4Address | None = None


@dataclass(frozen=True, slots=True)
class HostNode:
    """A host with one interface; `mac` is 48 bits, `cores` None if unknown."""

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

    In each direction `loss_ppb` of 10^9 frames are lost, independently at random. A frame takes the delay plus or minus
    up to `jitter_ns` (at most the delay; uniformly distributed), but overtakes none before it.
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
        """True if it has neither loss nor jitter."""
        return not self.loss_ppb and not self.jitter_ns

    @property
    def key(self) -> LinkKey:
        """The link's name."""
        return LinkKey(self.tail.node, self.head.node)


@dataclass(frozen=True, slots=True)
class CollectorAddress:
    """Destination of the switches' telemetry reports: a host of the topology and a UDP port."""

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

    def _repr_svg_(self) -> str:
        """Draw itself in a notebook."""
        from dataplane.topology.picture import topology_svg  # noqa: PLC0415 - imports this module, and networkx

        return topology_svg(self)

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
        hosts: dict[IPv4Address | IPv6Address, HostNode] = {node.ipv4: node for node in self.hosts}
        hosts.update({node.ipv6: node for node in self.hosts if node.ipv6 is not None})
        return hosts

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
        """Directed links by the endpoint they leave at."""
        return {link.tail: link for link in self.directed_links.values()}

    @cached_property
    def attachment(self) -> dict[str, Endpoint]:
        """The switch port that each host is attached to, by host name."""
        return {link.tail.node: link.head for link in self.directed_links.values() if link.tail.node in self.host}

    @cached_property
    def neighbours(self) -> dict[str, dict[int, Endpoint]]:
        """For each switch and host: the far end of each of its ports."""
        by_port: dict[str, dict[int, Endpoint]] = {name: {} for name in (*self.switch, *self.host)}
        for link in self.directed_links.values():
            by_port[link.tail.node][link.tail.port] = link.head
        return by_port
