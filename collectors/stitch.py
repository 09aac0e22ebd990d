"""Hop records to samples of directed links and to whole paths.

A link's delay runs from arrival at its tail switch to arrival at its head. Where clocks are synchronised and both ends
stamped the packet it is the difference of the stamps; otherwise the tail's hop latency plus the configured propagation.
A link to a host has no stamp at its head: always the latter.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise, zip_longest

from collectors.counters import Count, Counters
from collectors.settings import StateSettings
from collectors.values import DelaySource, FlowKey, HopRecord
from dataplane.fabric.topology import DirectedLink, Endpoint, LinkKey, Topology


@dataclass(frozen=True, slots=True)
class LinkSample:
    """What one packet says of one directed link; `node_time_ns` is by the clock of the tail switch, `node_id`.

    None for what the packet does not say; `delay_ns` and `source` are None together.
    """

    link: LinkKey
    node_id: int
    node_time_ns: int | None
    received_ns: int
    delay_ns: int | None
    source: DelaySource | None
    queue_occupancy_frames: int | None
    tx_bytes_per_window: int | None


@dataclass(frozen=True, slots=True)
class SeenPath:
    """The whole way of one packet: links from its source host (where the topology has it) to its destination.

    `delay_ns` runs from its arrival at the first switch to the end of its way, None where a hop tells too little.
    """

    flow: FlowKey
    switches: tuple[str, ...]
    links: tuple[LinkKey, ...]
    source_time_ns: int | None
    received_ns: int
    delay_ns: int | None = None


@dataclass(frozen=True, slots=True)
class Stitched:
    """What a batch of records came to."""

    samples: list[LinkSample]
    paths: list[SeenPath]


class Stitcher:
    """Puts the hops of one packet together, whether they came in one report or in one each, in any order."""

    def __init__(self, topology: Topology, settings: StateSettings, counters: Counters) -> None:
        self._topology = topology
        self._settings = settings
        self._counters = counters
        self._pending: OrderedDict[tuple[FlowKey, int], dict[int, HopRecord]] = OrderedDict()

    def stitch(self, records: Sequence[HopRecord]) -> Stitched:
        """Return samples and paths; single hops wait, bounded in number, for their packet's others."""
        out = Stitched([], [])
        for _, group in groupby(records, key=_report_of):
            hops = list(group)
            if len(hops) == 1 and hops[0].hop_count != 1:
                self._take_single(hops[0], out)
            else:
                self._take_stack(hops, out)
        return out

    def _take_stack(self, hops: list[HopRecord], out: Stitched) -> None:
        for hop, following in pairwise(hops):
            self._sample(hop, following if following.hop_index == hop.hop_index + 1 else None, out)
        self._sample(hops[-1], None, out)
        if hops[0].hop_index == 0 and len(hops) == hops[-1].hop_count:
            self._path(hops, out)

    def _take_single(self, record: HopRecord, out: Stitched) -> None:
        key = (record.flow, record.packet_id)
        packet = self._pending.get(key)
        if packet is None or record.hop_index in packet:
            # The same place twice: another packet that looks the same.
            self._counters[Count.INCOMPLETE_PACKETS] += packet is not None
            packet = self._pending[key] = {}
            self._pending.move_to_end(key)
        packet[record.hop_index] = record
        before, after = packet.get(record.hop_index - 1), packet.get(record.hop_index + 1)
        self._sample(record, after, out, alone=True)
        if before is not None and self._stamps_expected(before):
            self._sample(before, record, out, delay_only=True)
        self._finish(key, packet, out)
        while len(self._pending) > self._settings.max_pending_packets:
            self._pending.popitem(last=False)
            self._counters[Count.INCOMPLETE_PACKETS] += 1

    def _finish(self, key: tuple[FlowKey, int], packet: dict[int, HopRecord], out: Stitched) -> None:
        """Make a path once the last hop and every one before it are there."""
        count = next((hop.hop_count for hop in packet.values() if hop.hop_count is not None), None)
        if count is not None and all(index in packet for index in range(count)):
            self._path([packet[index] for index in range(count)], out)
            del self._pending[key]

    def _sample(
        self,
        hop: HopRecord,
        following: HopRecord | None,
        out: Stitched,
        *,
        alone: bool = False,
        delay_only: bool = False,
    ) -> None:
        """Append what `hop` says of its egress link; an `alone` hop's delay waits where a next hop's stamp may come."""
        link = self._egress_link(hop, following)
        if link is None:
            return
        delay: tuple[int, DelaySource] | None = None
        if following is not None or not (alone and self._stamps_expected(hop)):
            delay = self._delay(hop, following, link)
        if delay_only and delay is None:
            return
        out.samples.append(
            LinkSample(
                link.key,
                hop.node_id,
                hop.ingress_timestamp_ns if hop.egress_timestamp_ns is None else hop.egress_timestamp_ns,
                hop.received_ns if following is None else max(hop.received_ns, following.received_ns),
                delay[0] if delay else None,
                delay[1] if delay else None,
                None if delay_only else hop.queue_occupancy_frames,
                None if delay_only else hop.tx_bytes_per_window,
            )
        )

    def _delay(
        self, hop: HopRecord, following: HopRecord | None, link: DirectedLink, *, count: bool = True
    ) -> tuple[int, DelaySource] | None:
        if following is not None and self._topology.synchronised_clocks:
            by_stamps = self._delay_by_stamps(hop, following, link, count=count)
            if by_stamps is not None:
                return by_stamps, DelaySource.STAMPS
        if hop.hop_latency_ns is None:
            return None
        return hop.hop_latency_ns + link.delay_ns, DelaySource.HOP_LATENCY

    def _delay_by_stamps(self, hop: HopRecord, following: HopRecord, link: DirectedLink, *, count: bool) -> int | None:
        left, arrived = hop.ingress_timestamp_ns, following.ingress_timestamp_ns
        if left is None or arrived is None:
            return None
        head = self._topology.switch_by_id.get(following.node_id)
        if head is None or head.name != link.head.node:
            self._counters[Count.NOT_ADJACENT] += count
            return None
        if not 0 <= arrived - left <= self._settings.longest_link_delay_ns:
            self._counters[Count.IMPLAUSIBLE_STAMPS] += count
            return None
        return arrived - left

    def _stamps_expected(self, hop: HopRecord) -> bool:
        """Whether the next hop's ingress stamp will tell the delay of this hop's egress link."""
        if not self._topology.synchronised_clocks or hop.ingress_timestamp_ns is None or hop.hop_count is not None:
            return False
        link = self._egress_link(hop, None, count=False)
        return link is not None and link.head.node in self._topology.switch

    def _egress_link(self, hop: HopRecord, following: HopRecord | None, *, count: bool = True) -> DirectedLink | None:
        """Return the link that the packet left by: by its egress port, else by where it was next."""
        switch = self._topology.switch_by_id.get(hop.node_id)
        if switch is None:
            self._counters[Count.UNKNOWN_NODE] += count
            return None
        if hop.egress_port is not None:
            link = self._topology.link_at.get(Endpoint(switch.name, hop.egress_port))
        else:
            head = self._head_without_port(hop, following)
            link = self._topology.directed_links.get(LinkKey(switch.name, head)) if head else None
        if link is None:
            self._counters[Count.UNKNOWN_PORT] += count
        return link

    def _head_without_port(self, hop: HopRecord, following: HopRecord | None) -> str | None:
        if following is not None:
            switch = self._topology.switch_by_id.get(following.node_id)
            return switch.name if switch else None
        host = self._topology.host_by_address.get(hop.flow.dst)
        return host.name if host and hop.hop_count == hop.hop_index + 1 else None

    def _path(self, hops: list[HopRecord], out: Stitched) -> None:
        known = self._topology.switch_by_id
        names = [known[hop.node_id].name for hop in hops if hop.node_id in known]
        if len(names) != len(hops):
            return
        source = self._topology.host_by_address.get(hops[0].flow.src)
        destination = self._topology.host_by_address.get(hops[0].flow.dst)
        nodes = [*([source.name] if source else []), *names, *([destination.name] if destination else [])]
        links = tuple(LinkKey(tail, head) for tail, head in pairwise(nodes))
        if any(link not in self._topology.directed_links for link in links):
            self._counters[Count.NOT_ADJACENT] += 1
            return
        received_ns = max(hop.received_ns for hop in hops)
        delay_ns = self._whole_delay(hops)
        source_ns = hops[0].ingress_timestamp_ns
        out.paths.append(SeenPath(hops[0].flow, tuple(names), links, source_ns, received_ns, delay_ns))

    def _whole_delay(self, hops: list[HopRecord]) -> int | None:
        """Return the sum of the delays of the hops' egress links, as this packet had them."""
        total_ns = 0
        for hop, following in zip_longest(hops, hops[1:]):
            link = self._egress_link(hop, following, count=False)
            delay = None if link is None else self._delay(hop, following, link, count=False)
            if delay is None:
                return None
            total_ns += delay[0]
        return total_ns


def _report_of(record: HopRecord) -> tuple[FlowKey, int, int, int]:
    return record.flow, record.packet_id, record.reporter_id, record.sequence
