"""Samples of directed links, each taken from a packet's hop that left by the link.

A link's delay runs from arrival at its tail switch to arrival at its head. Where clocks are synchronised and both ends
stamped the packet, it is the difference of the stamps. Otherwise it is the tail's hop latency, by one clock, plus the
packet's flight time: by stamps of two clocks with an estimated correction, else the configured propagation. A link to a
host has no stamp at its head and always uses the propagation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import zip_longest
from typing import Final

from collectors.clocks.values import LinkCorrection, StampDifference
from collectors.counters import Count, Counters
from collectors.settings import StateSettings
from collectors.values import DelaySource, FlowKey, HopRecord, RecordKind
from dataplane.topology.values import DirectedLink, Endpoint, LinkKey, Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP


@dataclass(frozen=True, slots=True)
class LinkSample:
    """One packet's measurements of one directed link; `node_time_ns` is by the clock of the tail switch, `node_id`.

    Figures that the packet does not report are None; `delay_ns` and `source` are None together. `left_ns` and
    `arrived_ns` are the egress stamp of the tail and the ingress stamp of the head, each by its own clock, where the
    clocks are not synchronised.
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
    left_ns: int | None = None
    arrived_ns: int | None = None

    @property
    def difference(self) -> StampDifference | None:
        """The difference of the stamps of both ends, if the sample has both."""
        if self.left_ns is None or self.arrived_ns is None:
            return None
        return StampDifference(self.link, self.left_ns, self.arrived_ns - self.left_ns, self.received_ns, 1)


class Outcome(Enum):
    """Outcome of one packet on one link, as far as single-hop reports show it."""

    PASSED = "passed"
    """Both ends reported it."""

    MISSING = "missing"
    """The tail reported it and the head did not."""

    UNANNOUNCED = "unannounced"
    """The head reported it and the tail did not."""

    DROPPED = "dropped"
    """The tail reported that it dropped it."""

    UNMARKED = "unmarked"
    """The tail reported that it dropped it, before it could have been given telemetry."""


@dataclass(frozen=True, slots=True)
class Fate:
    """One packet, or several alike, on one link; `at_ns` is the time of their first report."""

    link: LinkKey
    outcome: Outcome
    at_ns: int
    packets: int = 1


COUNTED_KINDS: Final = frozenset({RecordKind.HOP_BY_HOP, RecordKind.MX})
"""Kinds for which each hop reports each packet; nodes that report by themselves (XD) choose what to report."""


class Sampler:
    """Makes samples of hops; counts hops that the topology does not explain."""

    def __init__(self, topology: Topology, settings: StateSettings, counters: Counters) -> None:
        self._topology = topology
        self._settings = settings
        self._counters = counters
        self.corrections: Mapping[LinkKey, LinkCorrection] = {}
        """Corrections for the difference of two clocks' stamps, by directed link."""

    def sample(self, hop: HopRecord, following: HopRecord | None) -> LinkSample | None:
        """Return all figures of a hop's egress link, given the next hop or that none will be known."""
        link = self.egress_link(hop, following)
        return None if link is None else self._sample(hop, following, link, self._delay(hop, following, link))

    def figures(self, hop: HopRecord) -> LinkSample | None:
        """Return the figures of a hop's egress link except the delay, which is not known yet or not to be counted."""
        link = self.egress_link(hop, None)
        return None if link is None else self._sample(hop, None, link, None)

    def delay(self, hop: HopRecord, following: HopRecord | None) -> LinkSample | None:
        """Return only the delay of a hop whose figures were returned before; None when it is unknown."""
        link = self.egress_link(hop, following, count=False)
        delay = None if link is None else self._delay(hop, following, link)
        return None if link is None or delay is None else self._sample(hop, following, link, delay, figures=False)

    def whole_delay(self, hops: Sequence[HopRecord]) -> int | None:
        """Return the sum of the delays of the hops' egress links as one packet had them, None if it is unknown."""
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

    def fates(self, hops: Sequence[HopRecord]) -> list[Fate]:
        """Return the fates on links between switches that one packet's hops, in any order, show."""
        if any(hop.kind not in COUNTED_KINDS for hop in hops):
            return []
        heard = {hop.node_id for hop in hops}
        at_ns = min(hop.received_ns for hop in hops)
        result: list[Fate] = []
        for hop in hops:
            left_by, came_by = self.egress_link(hop, None, count=False), self.ingress_link(hop)
            head = self._topology.switch.get(left_by.head.node) if left_by else None
            if left_by is not None and head is not None:
                outcome = Outcome.PASSED if head.node_id in heard else Outcome.MISSING
                result.append(Fate(left_by.key, outcome, at_ns))
            tail = self._topology.switch.get(came_by.head.node) if came_by else None
            if came_by is not None and tail is not None and tail.node_id not in heard:
                result.append(Fate(LinkKey(tail.name, came_by.tail.node), Outcome.UNANNOUNCED, at_ns))
        return result

    def expects_stamp(self, hop: HopRecord) -> bool:
        """Return whether the next hop's ingress stamp would give the delay of this hop's egress link."""
        if hop.ingress_timestamp_ns is None or hop.hop_count is not None:
            return False
        link = self.egress_link(hop, None, count=False)
        return link is not None and link.head.node in self._topology.switch

    def egress_link(self, hop: HopRecord, following: HopRecord | None, *, count: bool = True) -> DirectedLink | None:
        """Return the link that the packet left by: by its egress port, else by the next hop."""
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

    def starts_midway(self, hop: HopRecord) -> bool:
        """Return whether a hop's packet came to it from another switch."""
        came_by = self.ingress_link(hop)
        return came_by is not None and came_by.head.node in self._topology.switch

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
            *(self._flight(hop, following, link) or (None, None)),
        )

    def _delay(
        self, hop: HopRecord, following: HopRecord | None, link: DirectedLink, *, count: bool = True
    ) -> tuple[int, DelaySource] | None:
        if following is not None and self._topology.synchronised_clocks:
            by_stamps = self._delay_by_stamps(hop, following, link, count=count)
            if by_stamps is not None:
                return by_stamps, DelaySource.PROBES if self._is_probe(hop.flow) else DelaySource.STAMPS
        if hop.hop_latency_ns is None:
            return None
        flight_ns = self._corrected_flight(hop, following, link, count=count)
        if flight_ns is not None:
            source = DelaySource.PROBES if self._is_probe(hop.flow) else DelaySource.CORRECTED_STAMPS
            return hop.hop_latency_ns + flight_ns, source
        return hop.hop_latency_ns + link.delay_ns, DelaySource.HOP_LATENCY

    def _is_probe(self, flow: FlowKey) -> bool:
        return flow.dst_port == self._settings.probe_udp_port and flow.protocol == PROTOCOL_UDP

    def _flight(self, hop: HopRecord, following: HopRecord | None, link: DirectedLink) -> tuple[int, int] | None:
        """Return the stamps between which the packet was on the cable, of two clocks that nothing synchronises."""
        if following is None or self._topology.synchronised_clocks:
            return None
        left_ns, arrived_ns = hop.egress_timestamp_ns, following.ingress_timestamp_ns
        if left_ns is None and hop.ingress_timestamp_ns is not None and hop.hop_latency_ns is not None:
            left_ns = hop.ingress_timestamp_ns + hop.hop_latency_ns
        head = self._topology.switch_by_id.get(following.node_id)
        if left_ns is None or arrived_ns is None or head is None or head.name != link.head.node:
            return None
        return left_ns, arrived_ns

    def _corrected_flight(
        self, hop: HopRecord, following: HopRecord | None, link: DirectedLink, *, count: bool
    ) -> int | None:
        stamps, correction = self._flight(hop, following, link), self.corrections.get(link.key)
        if stamps is None or correction is None:
            return None
        flight_ns = correction.corrected(stamps[1] - stamps[0], stamps[0])
        # The clocks' uncertainty may make a short flight negative.
        if not -correction.uncertainty_ns <= flight_ns <= self._settings.longest_link_delay_ns:
            self._counters[Count.IMPLAUSIBLE_STAMPS] += count
            return None
        return max(flight_ns, 0)

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
