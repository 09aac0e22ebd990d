"""Hop records and drop records from reports that Python has decoded.

A stacked report has its hops in order. A hop-by-hop report has one hop and the hop count left after it: the source's
is the flow's highest, and each hop's index is the difference to it. Other single-hop reports do not give the index.
Subscribers get the records, and the state is built from them where native code has not decoded the report.
"""

from __future__ import annotations

from typing import Protocol

from collectors.counters import Count, Counters
from collectors.decode.reports import MeasuredDrop, MeasuredHop, MeasuredPacket
from collectors.values import DropRecord, HopRecord, RecordKind
from dataplane.topology.values import Endpoint, Topology
from dataplane.wire.drop_reasons import DropReason
from dataplane.wire.int_metadata import HopMetadata
from dataplane.wire.report_group import ReportGroup


class HopIndices(Protocol):
    """Indices of hop-by-hop hops on their paths, by the source's remaining hop count, for a bounded number of flows."""

    def index_of(self, packet: MeasuredPacket) -> int:
        """Return the index of a packet's only hop."""
        ...


class RecordMaker:
    """Makes records of packets; stateless."""

    def __init__(self, topology: Topology, counters: Counters, indices: HopIndices) -> None:
        self._topology = topology
        self._counters = counters
        self._indices = indices

    def records(self, group: ReportGroup, packet: MeasuredPacket, received_ns: int) -> list[HopRecord]:
        """Return the packet's hops as records, in travelling order; hops without a node id are counted and left out."""
        first = 0 if packet.remaining_hops is None else self._indices.index_of(packet)
        count = first + len(packet.hops) if packet.last_hop and not packet.missing_hops else None
        made: list[HopRecord] = []
        for index, hop in enumerate(packet.hops, first):
            if hop.node_id is None:
                self._counters[Count.NO_NODE_ID] += 1
            else:
                made.append(
                    _record(
                        group,
                        packet,
                        hop,
                        node_id=hop.node_id,
                        index=index,
                        count=count,
                        received_ns=received_ns,
                    )
                )
        return made

    def counts(self, packet: MeasuredPacket) -> bool:
        """Return whether to count a packet's bytes with this report, one of possibly several.

        XD reports do not count: nodes that export data by themselves report changes, not every nth packet.
        """
        if packet.kind is not RecordKind.MX:
            return packet.last_hop
        (hop,) = packet.hops or (None,)
        switch = self._topology.switch_by_id.get(hop.node_id) if hop and hop.node_id is not None else None
        port = _ports(hop.metadata)[1] if hop else None
        link = self._topology.link_at.get(Endpoint(switch.name, port)) if switch and port is not None else None
        return link is not None and link.head.node not in self._topology.switch


def _record(
    group: ReportGroup,
    packet: MeasuredPacket,
    hop: MeasuredHop,
    *,
    node_id: int,
    index: int,
    count: int | None,
    received_ns: int,
) -> HopRecord:
    metadata = hop.metadata
    ingress, egress = _ports(metadata)
    return HopRecord(
        received_ns,
        packet.flow,
        group.node_id,
        group.sequence,
        index,
        count,
        node_id,
        ingress,
        egress,
        metadata.hop_latency,
        metadata.queue_id,
        metadata.queue_occupancy,
        _time(metadata.ingress_timestamp),
        _time(metadata.egress_timestamp),
        metadata.tx_utilisation,
        packet.packet_id,
        packet.kind,
        metadata.buffer_occupancy,
    )


def drop_record(group: ReportGroup, drop: MeasuredDrop, received_ns: int) -> DropRecord:
    """Return a drop as a record, by the clock of the switch that dropped the packet."""
    metadata = drop.metadata
    ingress, egress = _ports(metadata)
    return DropRecord(
        received_ns=received_ns,
        reporter_id=group.node_id,
        sequence=group.sequence,
        node_id=group.node_id,
        ingress_port=ingress,
        egress_port=egress,
        queue_id=metadata.queue_id if metadata.drop_queue_id is None else metadata.drop_queue_id,
        reason=DropReason.UNKNOWN if metadata.drop_reason is None else metadata.drop_reason,
        flow=drop.flow,
        timestamp_ns=_time(metadata.ingress_timestamp),
        tracked=drop.tracked,
    )


def _ports(metadata: HopMetadata) -> tuple[int | None, int | None]:
    """Return ingress and egress port: of level 1 if the hop reported it, else of level 2."""
    ingress, egress = metadata.ingress_interface, metadata.egress_interface
    return (
        metadata.level2_ingress_interface if ingress is None else ingress,
        metadata.level2_egress_interface if egress is None else egress,
    )


def _time(timestamp_ns: int | None) -> int | None:
    """Return None for a stamp of 2**63 ns (292 years) or more: no clock is that far ahead, and int64 ends there."""
    return None if timestamp_ns is None or timestamp_ns >> 63 else timestamp_ns
