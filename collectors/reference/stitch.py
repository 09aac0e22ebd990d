"""Hops that wait for one another in plain Python, like `collectors.native.fallback` and its kernels."""

from __future__ import annotations

from collections import OrderedDict

from collectors.counters import Count, Counters
from collectors.decode.stitch import Stitched, Stitcher, append
from collectors.reference.pending import PendingPacket, PendingPackets
from collectors.reference.postcards import PostcardStitcher
from collectors.settings import StateSettings
from collectors.values import FlowKey, HopRecord
from dataplane.topology.values import Topology


class PlainStitcher(Stitcher):
    """Hops wait by index or by adjacency, in dictionaries."""

    def __init__(self, topology: Topology, settings: StateSettings, counters: Counters) -> None:
        super().__init__(topology, settings, counters)
        self._postcards = PostcardStitcher(topology, self._sampler, settings, counters)
        self._pending = PendingPackets[tuple[FlowKey, int]](
            max_packets=settings.max_pending_packets, longest_wait_ns=settings.longest_wait_ns
        )
        self._split_flows: OrderedDict[FlowKey, None] = OrderedDict()

    def _take_part(self, hops: list[HopRecord], out: Stitched) -> None:
        """Join successive hops that adjacency puts in order."""
        path = self._postcards.take(hops, out.samples, out.fates)
        if path is not None:
            self._path(path, out)

    def _note_split(self, flow: FlowKey) -> None:
        """Remember that stacks of this flow come in parts."""
        self._split_flows.pop(flow, None)
        self._split_flows[flow] = None
        if len(self._split_flows) > self._settings.max_flows:
            self._split_flows.popitem(last=False)

    def _is_split(self, flow: FlowKey) -> bool:
        """Return whether stacks of this flow come in parts."""
        return flow in self._split_flows

    def _take_single(self, record: HopRecord, out: Stitched) -> None:
        """Join a hop that gives its index."""
        key = (record.flow, record.packet_id)
        packet = self._pending.get(key)
        if packet is not None and record.hop_index in packet.hops:
            # The same index twice: another packet that looks the same.
            self._end(packet, out)
            packet = None
        if packet is None:
            packet = self._pending.start(key, record.received_ns)
        self._pending.put(packet, record.hop_index, record)
        before, after = packet.hops.get(record.hop_index - 1), packet.hops.get(record.hop_index + 1)
        if after is not None or not self._sampler.expects_stamp(record):
            append(out, self._sampler.sample(record, after))
        else:
            packet.waiting.add(record.hop_index)
            append(out, self._sampler.figures(record))
        if before is not None and before.hop_index in packet.waiting:
            packet.waiting.discard(before.hop_index)
            append(out, self._sampler.delay(before, record))
        self._finish(key, packet.hops, out)
        self._give_up(out)

    def _finish(self, key: tuple[FlowKey, int], hops: dict[int, HopRecord], out: Stitched) -> None:
        """Make a path once the last hop and every one before it are there."""
        count = next((hop.hop_count for hop in hops.values() if hop.hop_count is not None), None)
        if count is not None and all(index in hops for index in range(count)):
            self._path([hops[index] for index in range(count)], out)
            out.fates.extend(self._sampler.fates(list(hops.values())))
            self._pending.finish(key)

    def _give_up(self, out: Stitched) -> None:
        for packet in self._pending.overdue():
            out.fates.extend(self._sampler.fates(list(packet.hops.values())))
            self._end(packet, out)

    def _end(self, packet: PendingPacket, out: Stitched) -> None:
        """Add the delays for which no stamp has come, of an abandoned packet."""
        self._counters[Count.INCOMPLETE_PACKETS] += 1
        for index, hop in packet.hops.items():
            if index in packet.waiting:
                append(out, self._sampler.delay(hop, None))
