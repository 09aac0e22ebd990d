"""What one hop of a packet says of the directed link that it left by.

A link's delay runs from arrival at its tail switch to arrival at its head. Where clocks are synchronised and both ends
stamped the packet it is the difference of the stamps; otherwise the tail's hop latency plus the configured propagation.
A link to a host has no stamp at its head: always the latter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from collectors.counters import Count, Counters
from collectors.settings import StateSettings
from collectors.values import DelaySource, HopRecord
from dataplane.fabric.topology import DirectedLink, Endpoint, LinkKey, Topology


@dataclass(frozen=True, slots=True)
class LinkSample:
    """What one packet says of one directed link; `node_time_ns` is by the clock of the tail switch, `node_id`.

    None for what the packet does not say; `delay_ns` and `source` are None together. Where the next switch spoke of the
    packet, too, `head_id` names it, and `left_ns` and `arrived_ns` are the ingress stamps of tail and head, each by its
    own clock, as they came.
    """

    link: LinkKey
    node_id: int
    node_time_ns: int | None
    received_ns: int
    delay_ns: int | None
    source: DelaySource | None
    queue_occupancy_frames: int | None
    tx_bytes_per_window: int | None
    buffer_occupancy_frames: int | None = None
    head_id: int | None = None
    left_ns: int | None = None
    arrived_ns: int | None = None


class Sampler:
    """Makes samples of hops; counts those that the topology does not explain."""

    def __init__(self, topology: Topology, settings: StateSettings, counters: Counters) -> None:
        self._topology = topology
        self._settings = settings
        self._counters = counters

    def sample(self, hop: HopRecord, following: HopRecord | None) -> LinkSample | None:
        """Return all that a hop says of its egress link, given the next hop or that none will be known."""
        link = self.egress_link(hop, following)
        return None if link is None else self._sample(hop, following, link, self._delay(hop, following, link))

    def figures(self, hop: HopRecord) -> LinkSample | None:
        """Return what a hop says of its egress link but the delay, which is not known yet or not to be counted."""
        link = self.egress_link(hop, None)
        return None if link is None else self._sample(hop, None, link, None)

    def delay(self, hop: HopRecord, following: HopRecord | None) -> LinkSample | None:
        """Return the delay alone of a hop whose figures have been told; None when it cannot be told."""
        link = self.egress_link(hop, following, count=False)
        delay = None if link is None else self._delay(hop, following, link)
        return None if link is None or delay is None else self._sample(hop, following, link, delay, figures=False)

    def whole_delay(self, hops: Sequence[HopRecord]) -> int | None:
        """Return the sum of the delays of the hops' egress links as one packet had them, None if it cannot be told."""
        if any(hop.packet_id != hops[0].packet_id for hop in hops):
            return None
        total_ns = 0
        for hop, following in zip_longest(hops, hops[1:]):
            link = self.egress_link(hop, following, count=False)
            delay = None if link is None else self._delay(hop, following, link, count=False)
            if delay is None:
                return None
            total_ns += delay[0]
        return total_ns

    def expects_stamp(self, hop: HopRecord) -> bool:
        """Return whether the next hop's ingress stamp would tell the delay of this hop's egress link."""
        if not self._topology.synchronised_clocks or hop.ingress_timestamp_ns is None or hop.hop_count is not None:
            return False
        link = self.egress_link(hop, None, count=False)
        return link is not None and link.head.node in self._topology.switch

    def egress_link(self, hop: HopRecord, following: HopRecord | None, *, count: bool = True) -> DirectedLink | None:
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

    def ingress_link(self, hop: HopRecord) -> DirectedLink | None:
        """Return the reverse of the link that the packet came by, None where port or node are unknown."""
        switch = self._topology.switch_by_id.get(hop.node_id)
        if switch is None or hop.ingress_port is None:
            return None
        return self._topology.link_at.get(Endpoint(switch.name, hop.ingress_port))

    def _head_without_port(self, hop: HopRecord, following: HopRecord | None) -> str | None:
        if following is not None:
            switch = self._topology.switch_by_id.get(following.node_id)
            return switch.name if switch else None
        host = self._topology.host_by_address.get(hop.flow.dst)
        return host.name if host and hop.hop_count == hop.hop_index + 1 else None

    def _sample(
        self,
        hop: HopRecord,
        following: HopRecord | None,
        link: DirectedLink,
        delay: tuple[int, DelaySource] | None,
        *,
        figures: bool = True,
    ) -> LinkSample:
        return LinkSample(
            link.key,
            hop.node_id,
            hop.ingress_timestamp_ns if hop.egress_timestamp_ns is None else hop.egress_timestamp_ns,
            hop.received_ns if following is None else max(hop.received_ns, following.received_ns),
            delay[0] if delay else None,
            delay[1] if delay else None,
            hop.queue_occupancy_frames if figures else None,
            hop.tx_bytes_per_window if figures else None,
            hop.buffer_occupancy_frames if figures else None,
            None if following is None else following.node_id,
            None if following is None else hop.ingress_timestamp_ns,
            None if following is None else following.ingress_timestamp_ns,
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
