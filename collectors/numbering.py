"""Measured packets to hop records: the place of each hop on its path.

A stacked report has its hops in order. A hop-by-hop report has one hop and the hop count left behind it: the source's
is the flow's highest, and each hop's place is what it is below that.
"""

from __future__ import annotations

from collections import OrderedDict

from collectors.counters import Count, Counters
from collectors.decode import MeasuredHop, MeasuredPacket
from collectors.values import FlowKey, HopRecord
from dataplane.fabric.topology import Topology
from dataplane.wire.report_group import ReportGroup


class HopNumbering:
    """Numbers hops; remembers, for a bounded number of flows, the source's remaining hop count."""

    def __init__(self, topology: Topology, counters: Counters, max_flows: int) -> None:
        self._topology = topology
        self._counters = counters
        self._max_flows = max_flows
        self._source_remaining: OrderedDict[FlowKey, int] = OrderedDict()

    def records(self, group: ReportGroup, packet: MeasuredPacket, received_ns: int) -> list[HopRecord]:
        """Return the packet's hops as records, in travelling order; hops without a node id are counted and left out."""
        if packet.remaining_hops is None:
            first = 0
            count = len(packet.hops) if packet.last_hop and not packet.missing_hops else None
        else:
            first = self._place(packet)
            count = first + 1 if packet.last_hop and not packet.missing_hops else None
        found: list[HopRecord] = []
        for index, hop in enumerate(packet.hops, first):
            if hop.node_id is None:
                self._counters[Count.NO_NODE_ID] += 1
            else:
                found.append(
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
        return found

    def _place(self, packet: MeasuredPacket) -> int:
        remaining = packet.remaining_hops or 0
        known = self._source_remaining.pop(packet.flow, remaining)
        highest = remaining if self._is_source(packet) else max(known, remaining)
        self._source_remaining[packet.flow] = highest
        if len(self._source_remaining) > self._max_flows:
            self._source_remaining.popitem(last=False)
            self._counters[Count.FLOWS_FORGOTTEN] += 1
        return highest - remaining

    def _is_source(self, packet: MeasuredPacket) -> bool:
        """Whether the packet's only hop is the switch that its source host hangs on."""
        host = self._topology.host_by_address.get(packet.flow.src)
        edge = self._topology.attachment.get(host.name) if host else None
        return edge is not None and self._topology.switch[edge.node].node_id == packet.hops[0].node_id


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
    said = hop.metadata
    ingress, egress = said.ingress_interface, said.egress_interface
    return HopRecord(
        received_ns,
        packet.flow,
        group.node_id,
        group.sequence,
        index,
        count,
        node_id,
        said.level2_ingress_interface if ingress is None else ingress,
        said.level2_egress_interface if egress is None else egress,
        said.hop_latency,
        said.queue_id,
        said.queue_occupancy,
        _time(said.ingress_timestamp),
        _time(said.egress_timestamp),
        said.tx_utilisation,
        packet.packet_id,
    )


def _time(timestamp_ns: int | None) -> int | None:
    """Return None for a stamp of 2**63 ns (292 years) or more: no clock says that, and signed 64 bits end there."""
    return None if timestamp_ns is None or timestamp_ns >> 63 else timestamp_ns
