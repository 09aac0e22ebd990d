"""Packets of which some hops have reported: they wait, bounded in number and time, for the reports of the others."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from collectors.decode.stitch import HOPS_EACH
from collectors.values import HopRecord

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class PendingPacket:
    """A packet's hops so far, by index or node; `waiting` names those whose link's delay the next hop would give."""

    started_ns: int
    hops: dict[int, HopRecord] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)


class PendingPackets(Generic[K]):
    """Packets by key, the one begun first in front."""

    def __init__(self, *, max_packets: int, longest_wait_ns: int) -> None:
        self._max_packets = max_packets
        self._longest_wait_ns = longest_wait_ns
        self._packets: OrderedDict[K, PendingPacket] = OrderedDict()
        self._newest_ns = 0
        self._hops = 0

    def __len__(self) -> int:
        return len(self._packets)

    def get(self, key: K) -> PendingPacket | None:
        """Return the packet of a key."""
        return self._packets.get(key)

    def start(self, key: K, now_ns: int) -> PendingPacket:
        """Return a new packet of a key; it replaces any previous one."""
        previous = self._packets.pop(key, None)
        self._hops -= len(previous.hops) if previous else 0
        packet = self._packets[key] = PendingPacket(now_ns)
        self._newest_ns = max(self._newest_ns, now_ns)
        return packet

    def put(self, packet: PendingPacket, position: int, hop: HopRecord) -> None:
        """Keep a hop of a packet that is pending."""
        self._hops += position not in packet.hops
        packet.hops[position] = hop

    def finish(self, key: K) -> None:
        """Remove a packet whose hops have all reported."""
        self._hops -= len(self._packets.pop(key).hops)

    def overdue(self) -> Iterator[PendingPacket]:
        """Remove and yield the packets that are too many or have waited too long."""
        limit_ns = self._newest_ns - self._longest_wait_ns
        while self._packets:
            first = next(iter(self._packets.values()))
            if not self._are_too_many and first.started_ns >= limit_ns:
                return
            self._packets.popitem(last=False)
            self._hops -= len(first.hops)
            yield first

    @property
    def _are_too_many(self) -> bool:
        return len(self._packets) > self._max_packets or self._hops > HOPS_EACH * self._max_packets
