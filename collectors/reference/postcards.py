"""Hops ordered only by adjacency: reports of MX and XD, and the parts of a stack that was taken off on the way.

A hop's successor is the switch at the other end of its egress link, entered by that link's port. Walking from a host's
link to a host's link gives the path: of one packet, if each hop reported that packet; else of the flow, from each
node's last report on it, since nodes that report by themselves (XD, with a change filter) choose different packets.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from itertools import pairwise

from collectors.counters import Count, Counters
from collectors.decode.samples import Fate, LinkSample, Sampler
from collectors.decode.stitch import HOPS_EACH
from collectors.reference.pending import PendingPacket, PendingPackets
from collectors.settings import StateSettings
from collectors.values import FlowKey, HopRecord, RecordKind
from dataplane.topology.values import Topology


class PostcardStitcher:
    """Joins hops by adjacency; appends samples and fates, returns the hops of a path once they are all there."""

    def __init__(self, topology: Topology, sampler: Sampler, settings: StateSettings, counters: Counters) -> None:
        self._topology = topology
        self._sampler = sampler
        self._settings = settings
        self._counters = counters
        self._pending = PendingPackets[tuple[FlowKey, int]](
            max_packets=settings.max_pending_packets, longest_wait_ns=settings.longest_wait_ns
        )
        self._flows: OrderedDict[FlowKey, dict[int, HopRecord]] = OrderedDict()
        self._flow_hops = 0

    def take(self, part: list[HopRecord], samples: list[LinkSample], fates: list[Fate]) -> list[HopRecord] | None:
        """Take successive hops of one report; return a whole path, in travelling order, if they complete one."""
        for hop, following in pairwise(part):
            _add(samples, self._sampler.sample(hop, following))
        if any(hop.node_id not in self._topology.switch_by_id for hop in part):
            # No path leads over an unknown switch, and the number of such names is unbounded.
            _add(samples, self._sampler.sample(part[-1], None))
            return None
        packet = self._packet_of(part, samples)
        for hop in part:
            self._pending.put(packet, hop.node_id, hop)
        self._sample_end(part[-1], packet, samples)
        before = self._before(part[0], packet.hops)
        if before is not None and before.node_id in packet.waiting:
            packet.waiting.discard(before.node_id)
            _add(samples, self._sampler.delay(before, part[0]))
        path = self._walk(packet.hops)
        if path is not None:
            self._pending.finish((part[0].flow, part[0].packet_id))
            fates += self._sampler.fates(path)
        self._give_up(samples, fates)
        if part[0].kind in (RecordKind.MX, RecordKind.XD):
            return self._of_flow(part[0]) if path is None else path
        return path

    def _packet_of(self, part: list[HopRecord], samples: list[LinkSample]) -> PendingPacket:
        key = (part[0].flow, part[0].packet_id)
        packet = self._pending.get(key)
        if packet is not None and not any(hop.node_id in packet.hops for hop in part):
            return packet
        if packet is not None:
            # The same node twice: another packet that looks the same.
            self._end(packet, samples)
        return self._pending.start(key, part[0].received_ns)

    def _sample_end(self, last: HopRecord, packet: PendingPacket, samples: list[LinkSample]) -> None:
        """Sample the last hop of a part, whose next hop may have reported already, may do so later, or never."""
        after = self._after(last, packet.hops)
        if after is not None or not self._sampler.expects_stamp(last):
            _add(samples, self._sampler.sample(last, after))
        else:
            packet.waiting.add(last.node_id)
            _add(samples, self._sampler.figures(last))

    def _give_up(self, samples: list[LinkSample], fates: list[Fate]) -> None:
        for packet in self._pending.overdue():
            fates += self._sampler.fates(list(packet.hops.values()))
            self._end(packet, samples)

    def _end(self, packet: PendingPacket, samples: list[LinkSample]) -> None:
        """Add the delays for which no stamp has come, of an abandoned packet."""
        self._counters[Count.INCOMPLETE_PACKETS] += 1
        for node_id, hop in packet.hops.items():
            if node_id in packet.waiting:
                _add(samples, self._sampler.delay(hop, None))

    def _of_flow(self, hop: HopRecord) -> list[HopRecord] | None:
        """Return the flow's path as its nodes reported it last, if they form one."""
        hops = self._flows.pop(hop.flow, {})
        self._flows[hop.flow] = hops
        before = len(hops)
        hops[hop.node_id] = hop
        limit_ns = hop.received_ns - self._settings.forget_path_after_ns
        for node_id in [node_id for node_id, hop in hops.items() if hop.received_ns < limit_ns]:
            del hops[node_id]
        self._flow_hops += len(hops) - before
        path = self._walk(hops)
        most = self._settings.max_flows
        while len(self._flows) > most or self._flow_hops > HOPS_EACH * most:
            _, forgotten = self._flows.popitem(last=False)
            self._flow_hops -= len(forgotten)
            self._counters[Count.FLOWS_FORGOTTEN] += 1
        return path

    def _walk(self, hops: Mapping[int, HopRecord]) -> list[HopRecord] | None:
        """Return the hops from a host's link to a host's link, None while any between is missing."""
        start = next((hop for hop in hops.values() if self._is_first(hop)), None)
        path: list[HopRecord] = []
        hop = start
        while hop is not None and len(path) < len(hops):
            path.append(hop)
            if self._is_last(hop):
                return path
            hop = self._after(hop, hops)
        return None

    def _is_first(self, hop: HopRecord) -> bool:
        if hop.ingress_port is not None:
            return not self._sampler.starts_midway(hop)
        host = self._topology.host_by_address.get(hop.flow.src)
        edge = self._topology.attachment.get(host.name) if host else None
        return edge is not None and self._topology.switch[edge.node].node_id == hop.node_id

    def _is_last(self, hop: HopRecord) -> bool:
        link = self._sampler.egress_link(hop, None, count=False)
        return link is not None and link.head.node not in self._topology.switch

    def _after(self, hop: HopRecord, hops: Mapping[int, HopRecord]) -> HopRecord | None:
        link = self._sampler.egress_link(hop, None, count=False)
        switch = self._topology.switch.get(link.head.node) if link else None
        next_hop = hops.get(switch.node_id) if switch else None
        if link is None or next_hop is None or next_hop.ingress_port not in (None, link.head.port):
            return None
        return next_hop

    def _before(self, hop: HopRecord, hops: Mapping[int, HopRecord]) -> HopRecord | None:
        """Return the hop whose egress link leads here: the one behind the ingress port, or any that points here."""
        came_by = self._sampler.ingress_link(hop)
        tail = self._topology.switch.get(came_by.head.node) if came_by else None
        candidates = [hops.get(tail.node_id)] if tail else list(hops.values())
        return next((candidate for candidate in candidates if candidate and self._after(candidate, hops) is hop), None)


def _add(samples: list[LinkSample], sample: LinkSample | None) -> None:
    if sample is not None:
        samples.append(sample)
