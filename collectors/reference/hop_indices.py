"""The source's remaining hop count of each flow in plain Python, as native memory has it."""

from __future__ import annotations

from collections import OrderedDict

from collectors.counters import Count, Counters
from collectors.decode.reports import MeasuredPacket
from collectors.values import FlowKey
from dataplane.topology.values import Topology


class PlainHopIndices:
    """Remembers, for a bounded number of flows, the source's remaining hop count."""

    def __init__(self, topology: Topology, counters: Counters, max_flows: int) -> None:
        self._topology = topology
        self._counters = counters
        self._max_flows = max_flows
        self._source_remaining: OrderedDict[FlowKey, int] = OrderedDict()

    def index_of(self, packet: MeasuredPacket) -> int:
        """Return the index of a packet's only hop."""
        remaining = packet.remaining_hops or 0
        source_remaining = self._source_remaining.pop(packet.flow, remaining)
        highest = remaining if self._is_source(packet) else max(source_remaining, remaining)
        self._source_remaining[packet.flow] = highest
        if len(self._source_remaining) > self._max_flows:
            self._source_remaining.popitem(last=False)
            self._counters[Count.FLOWS_FORGOTTEN] += 1
        return highest - remaining

    def _is_source(self, packet: MeasuredPacket) -> bool:
        """Return whether the packet's only hop is the switch to which its source host is attached."""
        host = self._topology.host_by_address.get(packet.flow.src)
        edge = self._topology.attachment.get(host.name) if host else None
        return edge is not None and self._topology.switch[edge.node].node_id == packet.hops[0].node_id
