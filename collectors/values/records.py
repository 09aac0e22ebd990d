"""Records of packets: hops that they crossed, and drops, with the flow that they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from ipaddress import IPv4Address, IPv6Address


@dataclass(frozen=True, slots=True)
class FlowKey:
    """A flow's 5-tuple; addresses of one family, ports 0 where the protocol has none."""

    src: IPv4Address | IPv6Address
    dst: IPv4Address | IPv6Address
    protocol: int
    src_port: int
    dst_port: int

    def __str__(self) -> str:
        return f"{self.src}:{self.src_port}->{self.dst}:{self.dst_port}/{self.protocol}"


class RecordKind(IntEnum):
    """Kind of report that a hop's record is from, which determines what it says of the packet's path."""

    STACK = 0
    """A sink's (INT-MD): all hops, but those that an intermediate report had already taken off the packet."""

    HOP_BY_HOP = 1
    """One hop of several that report each for themselves, in our domain; the hop's place is known."""

    INTERMEDIATE = 2
    """The hops until a switch that took them off the packet, itself the last of them; more follow."""

    MX = 3
    """One hop of a packet with embedded instructions; adjacency gives its place."""

    XD = 4
    """One hop of a packet that carries nothing; adjacency gives its place."""

    QUEUE = 5
    """Report of a congested queue, for a packet that is not tracked: shows nothing of the packet's path."""


@dataclass(frozen=True, slots=True)
class HopRecord:
    """One hop of one measured packet: a row of the record table. Times in ns, None where the hop did not report them.

    `hop_index` counts from 0 at the source, and is 0 where `kind` does not give the position; `hop_count` is None where
    a report does not show the whole path, except on the path's last hop; `packet_id` is equal in the records of one
    packet and distinguishes the packets of a flow.
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
    kind: RecordKind = RecordKind.STACK
    buffer_occupancy_frames: int | None = None


@dataclass(frozen=True, slots=True)
class DropRecord:
    """A packet that a switch dropped, by its own report; figures that the report does not state are None.

    `reason` is a code of `dataplane.wire.drop_reasons`; `flow` is None where the packet was cut before its addresses;
    `tracked` says that telemetry was requested for this flow, so its packets are also counted elsewhere.
    """

    received_ns: int
    reporter_id: int
    sequence: int
    node_id: int
    ingress_port: int | None
    egress_port: int | None
    queue_id: int | None
    reason: int
    flow: FlowKey | None
    timestamp_ns: int | None = None
    tracked: bool = False
