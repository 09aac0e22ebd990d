"""Loss of links: from switches' reports of drops, and from packets that one hop reported and the next did not.

A drop that a switch reports is lost on the link that the packet was to leave by. Where each hop reports each packet
(hop by hop, MX), a packet that a link's head never reports was lost on the way there: on the cable, or in the head
before it reports. The report itself may be lost instead: reports of the head that are missing by their sequence numbers
count as the explanation, and the remainder is the loss, an underestimate rather than an overestimate.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from collectors.decode.samples import Fate, Outcome
from collectors.values import DropRecord, LossSource, ReporterState
from dataplane.topology.values import Endpoint, LinkKey, Topology
from dataplane.wire.drop_reasons import DropReason

SLOTS: Final = 8

NOT_OF_LINKS: Final = frozenset({DropReason.INT_DISCARD})
"""Drops on purpose: a probe has reached its sink."""

_LOST: Final = frozenset({Outcome.MISSING, Outcome.DROPPED, Outcome.UNMARKED})

K = TypeVar("K")


def slot_of(window_ns: int) -> int:
    """Return the length of the parts in which a window is counted."""
    return max(window_ns // SLOTS, 1)


def slots_kept(window_ns: int, wait_ns: int) -> int:
    """Return the maximum number of such parts: two windows, and the time that packets wait."""
    return 2 * SLOTS - (-wait_ns // slot_of(window_ns)) + 1


@dataclass(frozen=True, slots=True)
class LinkLoss:
    """The share of frames lost, its source, and the number of the link's packets reported as lost so far."""

    share: float
    source: LossSource
    packets: int


@dataclass(slots=True)
class _Counts:
    """Outcomes of packets in one part of the window."""

    passed: int = 0
    missing: int = 0
    explained: int = 0
    dropped: int = 0
    unmarked: int = 0


@dataclass(slots=True)
class _Slots(Generic[K]):
    """Counts of something by parts of time; those older than the horizon are removed."""

    kept: int
    counts: dict[int, _Counts] = field(default_factory=dict)

    def at(self, slot: int) -> _Counts:
        counts = self.counts.get(slot)
        if counts is None:
            counts = self.counts[slot] = _Counts()
            newest = max(self.counts)
            for old in [old for old in self.counts if old <= newest - self.kept]:
                del self.counts[old]
        return counts

    def within(self, first: int, last: int) -> Iterable[_Counts]:
        return (counts for slot, counts in self.counts.items() if first <= slot <= last)


class LossMeter:
    """Counts by link over a sliding window; times are the collector's. Memory is bounded by the topology.

    A packet whose next hop has not reported counts as missing no earlier than `wait_ns` after it was first heard of, so
    the window of packet counts ends that long ago.
    """

    def __init__(self, topology: Topology, *, window_ns: int, wait_ns: int, sample_every: int = 1) -> None:
        self._topology = topology
        self._sample_every = sample_every
        self._slot_ns = slot_of(window_ns)
        self._kept = slots_kept(window_ns, wait_ns)
        self._wait_slots = self._kept - 2 * SLOTS
        self._links: dict[LinkKey, _Slots[LinkKey]] = {}
        self._reports: dict[int, _Slots[int]] = {}
        self._lost: dict[LinkKey, int] = {}
        self._lost_before: dict[int, int] = {}
        self._reporting: set[str] = set()

    def count(self, fate: Fate) -> None:
        """Take the outcome of one packet, or several alike, on one link."""
        counts = self._counts(fate.link, fate.at_ns)
        if fate.outcome in _LOST:
            self._note_lost(fate.link, fate.packets)
        match fate.outcome:
            case Outcome.PASSED:
                counts.passed += fate.packets
            case Outcome.MISSING:
                counts.missing += fate.packets
            case Outcome.UNANNOUNCED:
                # Another record, abandoned too early, may count it as missing.
                counts.explained += fate.packets
            case Outcome.DROPPED:
                counts.dropped += fate.packets
            case Outcome.UNMARKED:
                counts.unmarked += fate.packets

    def note_reporting(self, switches: Iterable[str]) -> None:
        """Note that switches report drops."""
        self._reporting.update(switches)

    def dropped(self, drop: DropRecord) -> None:
        """Take a drop that a switch reports, for as many measured packets as it stands for; ignore intentional ones."""
        switch = self._topology.switch_by_id.get(drop.node_id)
        if switch is None:
            return
        self._reporting.add(switch.name)
        came_by, left_by = (
            None if port is None else self._topology.link_at.get(Endpoint(switch.name, port))
            for port in (drop.ingress_port, drop.egress_port)
        )
        if drop.reason in NOT_OF_LINKS:
            return
        if left_by is not None:
            counts = self._counts(left_by.key, drop.received_ns)
            is_unmarked = not drop.tracked and came_by is not None and came_by.head.node in self._topology.host
            counts.dropped += drop.tracked
            # Packets from hosts get their telemetry later, one in every `sample_every`.
            counts.unmarked += is_unmarked
            self._note_lost(left_by.key, drop.tracked or is_unmarked)
        if came_by is not None and drop.tracked:
            # It has arrived, though the hop that dropped it does not report itself as part of its path.
            self._counts(LinkKey(came_by.head.node, switch.name), drop.received_ns).explained += 1

    @property
    def counts_packets(self) -> bool:
        """Return whether any link has been reported on; until then a report cannot be taken for a packet."""
        return bool(self._links)

    def take_reporters(self, states: Iterable[ReporterState], now_ns: int) -> None:
        """Take the accounts of reports: reports lost since the last call may explain missing packets."""
        for node_id, lost in _lost_by_node(states).items():
            grown = lost - self._lost_before.get(node_id, 0)
            self._lost_before[node_id] = lost
            # A report that was late after all stays an explanation: its packet was given up meanwhile.
            if grown > 0:
                slots = self._reports.setdefault(node_id, _Slots(self._kept))
                slots.at(now_ns // self._slot_ns).missing += grown

    @property
    def reported_links(self) -> Collection[LinkKey]:
        """The links whose loss can be known."""
        if not self._reporting:
            return self._links.keys()
        links = self._topology.directed_links
        return [key for key in links if key in self._links or key.src in self._reporting]

    def loss(self, link: LinkKey, now_ns: int, samples: int) -> LinkLoss | None:
        """Return a link's loss; None when it is unknown. `samples` crossed the link in the newest window."""
        counted, dropped = self._by_counts(link, now_ns), self._by_drops(link, now_ns, samples)
        if counted is None:
            return None if dropped is None else LinkLoss(dropped, LossSource.DROP_REPORTS, self._lost.get(link, 0))
        share = 1 - (1 - counted) * (1 - (dropped or 0.0))
        return LinkLoss(share, LossSource.PACKET_COUNTS, self._lost.get(link, 0))

    def _note_lost(self, link: LinkKey, packets: int) -> None:
        self._lost[link] = self._lost.get(link, 0) + packets

    def _counts(self, link: LinkKey, at_ns: int) -> _Counts:
        slots = self._links.get(link)
        if slots is None:
            slots = self._links[link] = _Slots(self._kept)
        return slots.at(at_ns // self._slot_ns)

    def _by_counts(self, link: LinkKey, now_ns: int) -> float | None:
        slots = self._links.get(link)
        if slots is None:
            return None
        now = now_ns // self._slot_ns
        last = now - self._wait_slots
        parts = list(slots.within(last - SLOTS + 1, last))
        passed, missing = sum(counts.passed for counts in parts), sum(counts.missing for counts in parts)
        if not passed + missing:
            return None
        # A drop is reported, and a gap in the sequence seen, somewhat later than the packet was heard of first.
        explained = sum(counts.explained for counts in slots.within(last - SLOTS, now))
        lost = max(missing - explained - self._reports_lost(link, last - SLOTS, now), 0)
        return lost / (passed + missing)

    def _reports_lost(self, link: LinkKey, first: int, last: int) -> float:
        head = self._topology.switch.get(link.dst)
        slots = self._reports.get(head.node_id) if head else None
        return 0 if slots is None else sum(counts.missing for counts in slots.within(first, last))

    def _by_drops(self, link: LinkKey, now_ns: int, samples: int) -> float | None:
        slots, now = self._links.get(link), now_ns // self._slot_ns
        parts = [] if slots is None else list(slots.within(now - SLOTS + 1, now))
        unmarked = sum(counts.unmarked for counts in parts)
        dropped = sum(counts.dropped for counts in parts) + unmarked / self._sample_every
        if dropped:
            return dropped / (dropped + samples)
        return 0.0 if samples and link.src in self._reporting else None


def _lost_by_node(states: Iterable[ReporterState]) -> dict[int, int]:
    lost: dict[int, int] = {}
    for state in states:
        lost[state.node_id] = lost.get(state.node_id, 0) + state.lost
    return lost
