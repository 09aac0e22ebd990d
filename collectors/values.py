"""What crosses from telemetry to deciders: hop records and frozen snapshots of the network's state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address

from dataplane.fabric.topology import LinkKey


@dataclass(frozen=True, slots=True)
class FlowKey:
    """A flow's 5-tuple; addresses of one family, ports 0 where the protocol has none."""

    src: IPv4Address | IPv6Address
    dst: IPv4Address | IPv6Address
    protocol: int
    src_port: int
    dst_port: int


@dataclass(frozen=True, slots=True)
class HopRecord:
    """One hop of one measured packet: a row of the record table. Times in ns, None where the hop did not say.

    `hop_index` counts from 0 at the source; `hop_count` is None where a report does not tell the whole path, but for
    the path's last hop; `packet_id` is equal in the records of one packet and tells the packets of a flow apart.
    """

    received_ns: int
    flow: FlowKey
    reporter_id: int
    sequence: int
    hop_index: int
    hop_count: int | None
    node_id: int
    ingress_port: int | None
    egress_port: int | None
    hop_latency_ns: int | None
    queue_id: int | None
    queue_occupancy_frames: int | None
    ingress_timestamp_ns: int | None
    egress_timestamp_ns: int | None
    tx_bytes_per_window: int | None
    packet_id: int = 0


class DelaySource(StrEnum):
    """Where a link's delay comes from: stamps of both ends, hop latency plus the configured propagation, or no data."""

    STAMPS = "stamps"
    HOP_LATENCY = "hop-latency"
    NOMINAL = "nominal"


@dataclass(frozen=True, slots=True)
class LinkState:
    """A directed link: time from arrival at its tail switch to arrival at its head, queue included.

    `age_ns` is None when no telemetry ever came (all figures are then the topology's nominal ones); `utilisation` is
    a share of the rate; `loss` a share of frames, None when unknown.
    """

    link: LinkKey
    rate_bps: int
    delay_mean_ns: int
    delay_p50_ns: int
    delay_p99_ns: int
    queue_occupancy_frames: float
    utilisation: float
    available_bps: int
    loss: float | None
    age_ns: int | None
    samples: int
    source: DelaySource


@dataclass(frozen=True, slots=True)
class PathState:
    """The switches that a flow's packets were last seen to cross, with delay (ns) and bottleneck (bit/s).

    `rate_bps` is what the flow sends, IP packets with their Ethernet framing, estimated from the packets that carried
    telemetry; None while too few have.
    """

    flow: FlowKey
    switches: tuple[str, ...]
    delay_ns: int
    bottleneck_bps: int
    age_ns: int
    rate_bps: int | None = None


@dataclass(frozen=True, slots=True)
class ReporterState:
    """Sequence accounting of one (node id, hardware id): what came, what is missing, late or twice."""

    node_id: int
    hw_id: int
    received: int
    lost: int
    late: int
    duplicate: int
    restarts: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The network's state at one instant; every decider takes it as an argument and keeps no other state of it."""

    taken_ns: int
    links: Mapping[LinkKey, LinkState]
    paths: Mapping[FlowKey, PathState]
    reporters: Mapping[tuple[int, int], ReporterState]


@dataclass(frozen=True, slots=True)
class CollectorStatus:
    """What the collector has counted, by name (see `collectors.counters`), and why the last bad report was refused."""

    taken_ns: int
    counters: Mapping[str, int]
    last_problem: str | None
