"""The traffic manager: bounded strict-priority queues before ports of a given rate; sans-IO, integer nanoseconds.

A packet waits in the queue of its port and priority until the port is free, leaves it, runs egress, and then occupies
the port for as long as its bits take on the wire. As in bmv2 with priority queues, 7 is served first, each priority of
a port has its own queue, and a full queue drops the newcomer. Equal times are served in the order of port numbers.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from typing import Protocol

from dataplane.clock import NS_PER_S
from dataplane.errors import SwitchError
from dataplane.switch.abi import MAX_CLONE_SESSIONS
from dataplane.switch.pipeline import Dequeued, Placement
from dataplane.switch.v1model import PRIORITIES

WIRE_OVERHEAD_BYTES = 24
"""Preamble with start delimiter (8), frame check sequence (4) and inter-frame gap (12), IEEE 802.3."""

QUEUE_FULL = "queue_full"
NO_SUCH_PORT = "no_such_port"
PRIORITY_OUT_OF_RANGE = "priority_out_of_range"
PROGRAM_REPLACED = "program_replaced"

DEFLECT_SESSION = 251
"""The clone session by which fabric switches forward packets that a full queue refuses, if a controller creates it."""


def deflect_session_of(session: int | None) -> int:
    """Return the clone session for packets that full queues refuse, 0 for none; raise SwitchError if invalid."""
    if session is not None and not 1 <= session < MAX_CLONE_SESSIONS:
        raise SwitchError(f"clone session {session}: sessions go from 1 to {MAX_CLONE_SESSIONS - 1}")
    return session or 0


@dataclass(frozen=True, slots=True)
class PortSettings:
    """A switch port: rate in bit/s (None: infinite), frames per priority queue, propagation delay of its cable.

    A frame takes up to `jitter_ns` less or more than the delay, and overtakes none.
    """

    number: int
    rate_bps: int | None = None
    queue_frames: int = 64
    delay_ns: int = 0
    jitter_ns: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.number <= 511:
            raise SwitchError(f"port {self.number}: port numbers go from 0 to 511")
        if self.rate_bps is not None and self.rate_bps <= 0:
            raise SwitchError(f"port {self.number}: a rate of {self.rate_bps} bit/s is not positive")
        if self.queue_frames <= 0:
            raise SwitchError(f"port {self.number}: a queue of {self.queue_frames} frames cannot hold any")
        if self.delay_ns < 0:
            raise SwitchError(f"port {self.number}: a delay of {self.delay_ns} ns is negative")
        if not 0 <= self.jitter_ns <= self.delay_ns:
            raise SwitchError(f"port {self.number}: a jitter of {self.jitter_ns} ns is not between 0 and the delay")


def jitter_seed(seed: int, port: int) -> int:
    """Return the seed of a port's cable jitter."""
    return random.Random(f"{seed}/jitter/{port}").getrandbits(64)


def gap_of(packets_per_s: int) -> int:
    """Return the nanoseconds between two packets at a rate, 0 at rate 0."""
    return -(-NS_PER_S // packets_per_s) if packets_per_s else 0


@dataclass(slots=True)
class Burst:
    """Packets that leave their queues at the same instant, in the order of their ports."""

    start_ns: int
    packets: list[Dequeued]


class Background(Protocol):
    """Traffic of a link that is not simulated as packets: what a packet of the lowest priority meets there."""

    def join(self, now_ns: int, *, behind: bool) -> tuple[int, int] | None:
        """Return how many frames of the background a packet finds waiting now, and how long (ns) it waits for them.

        If it is `behind` other packets in the queue: from the departure of the last one, for what came after that one.
        None: the queue is full and refuses it.
        """
        ...

    def depth(self, now_ns: int) -> int:
        """Return how many frames of the background wait now."""
        ...

    def occupy(self, now_ns: int, bits: int) -> None:
        """Note that the link is now busy with a packet, for so many bits on the wire."""
        ...


@dataclass(slots=True)
class _Waiting:
    placement: Placement
    enqueued_ns: int
    depth: int
    gap_ns: int = 0
    """Wait for the background between this packet and the one before."""
    ready_ns: int = 0
    """Earliest time to leave the queue, for the first packet in it."""


@dataclass(slots=True)
class _Port:
    settings: PortSettings
    queues: tuple[deque[_Waiting], ...] = field(default_factory=lambda: tuple(deque() for _ in range(PRIORITIES)))
    limit: int = 0
    """Capacity of each queue in frames."""
    gap_ns: int = 0
    """Minimum time between two packets that leave their queues."""
    waiting: int = 0
    free_ns: int = 0
    carry: int = 0
    """Remainder of the last frame's time on the wire below 1 ns, in 1/rate ns: no rate drifts by rounding."""
    drops: dict[str, int] = field(default_factory=dict)
    background: Background | None = None

    def ready_ns(self) -> int:
        """Return when the port is free and a packet may leave its queue; one must be waiting."""
        if self.background is None:
            return self.free_ns
        return max(self.free_ns, min(queue[0].ready_ns for queue in self.queues if queue))

    def pop(self, now_ns: int) -> Dequeued:
        queue = next(queue for queue in reversed(self.queues) if queue and queue[0].ready_ns <= now_ns)
        waiting = queue.popleft()
        self.waiting -= 1
        if self.background is not None and queue:
            queue[0].ready_ns = now_ns + queue[0].gap_ns
        placement = waiting.placement
        enqueued_us = waiting.enqueued_ns // 1000
        return Dequeued(
            packet=placement.packet,
            port=placement.port,
            priority=placement.priority,
            enq_timestamp_us=enqueued_us,
            enq_qdepth=waiting.depth,
            deq_timedelta_us=now_ns // 1000 - enqueued_us,
            deq_qdepth=len(queue) + (0 if self.background is None else self.background.depth(now_ns)),
        )


class TrafficManager:
    """Queues and port times of one switch; its owner calls `dequeue` until nothing is due, then waits.

    `drops` counts, by name, packets without a port; `port_drops` those that a port refused.
    """

    def __init__(self, ports: Iterable[PortSettings]) -> None:
        self._ports: dict[int, _Port] = {}
        for settings in ports:
            if settings.number in self._ports:
                raise SwitchError(f"port {settings.number} appears twice")
            self._ports[settings.number] = _Port(settings, limit=settings.queue_frames)
        # One pair (time, port) for each port with waiting packets; the time may be too early, never too late.
        self._due: list[tuple[int, int]] = []
        self.drops: dict[str, int] = {}

    def enqueue(self, placement: Placement, now_ns: int) -> bool:
        """Queue a packet, or drop and count it and return False; depth is the number found waiting at its priority.

        For a deflected packet it is the depth where it was refused.
        """
        port = self._ports.get(placement.port)
        if port is None:
            return self._drop(self.drops, NO_SUCH_PORT)
        if not 0 <= placement.priority < PRIORITIES:
            return self._drop(port.drops, PRIORITY_OUT_OF_RANGE)
        queue = port.queues[placement.priority]
        depth = len(queue)
        if depth >= port.limit:
            return self._drop(port.drops, QUEUE_FULL)
        gap_ns = 0
        if port.background is not None and placement.priority == 0:
            joined = port.background.join(now_ns, behind=bool(queue))
            if joined is None:
                return self._drop(port.drops, QUEUE_FULL)
            depth, gap_ns = min(depth + joined[0], port.limit - 1), joined[1]
        queue.append(_Waiting(placement, now_ns, placement.refused_depth or depth, gap_ns, now_ns + gap_ns))
        port.waiting += 1
        if port.waiting > 1 and port.background is not None and placement.priority > 0:
            # It may leave before those that wait for the background, which has the lowest priority.
            self._due = [due for due in self._due if due[1] != placement.port]
            heapify(self._due)
            heappush(self._due, (max(now_ns, port.free_ns), placement.port))
        elif port.waiting == 1:
            heappush(self._due, (max(now_ns, port.free_ns), placement.port))
        return True

    def full_depth(self, placement: Placement) -> int:
        """Return the depth of a packet's queue if it is full, else 0."""
        port = self._ports.get(placement.port)
        if port is None or not 0 <= placement.priority < PRIORITIES:
            return 0
        depth = len(port.queues[placement.priority])
        if port.background is not None and placement.priority == 0:
            return port.settings.queue_frames  # only asked after a refusal
        return depth if depth >= port.settings.queue_frames else 0

    def dequeue(self, until_ns: int) -> Burst | None:
        """Return what leaves its queue at the earliest instant up to `until_ns`, or None if nothing does.

        A port of finite rate yields one packet; one of infinite rate yields all it has. The caller runs egress at
        `start_ns`, then calls `occupy` for what is sent: a packet that egress drops takes no time on its port.
        """
        start_ns = self.next_event_ns()
        if start_ns is None or start_ns > until_ns:
            return None
        packets: list[Dequeued] = []
        again: list[int] = []
        while (upcoming := self.next_event_ns()) == start_ns and upcoming is not None:
            number = heappop(self._due)[1]
            port = self._ports[number]
            packets.append(port.pop(start_ns))
            while port.waiting and port.settings.rate_bps is None and not port.gap_ns:
                packets.append(port.pop(start_ns))
            if port.waiting:
                again.append(number)
        for number in again:
            heappush(self._due, (start_ns, number))
        return Burst(start_ns, packets)

    def occupy(self, number: int, length_bytes: int, start_ns: int) -> int:
        """Keep a port busy with a frame from `start_ns` on; return when its last bit (and gap) has left."""
        port = self._ports[number]
        rate_bps = port.settings.rate_bps
        if rate_bps is None and not port.gap_ns:
            return start_ns
        if port.background is not None:
            port.background.occupy(start_ns, (length_bytes + WIRE_OVERHEAD_BYTES) * 8)
        if start_ns > port.free_ns:
            port.free_ns, port.carry = start_ns, 0
        duration_ns = 0
        if rate_bps is not None:
            bits = (length_bytes + WIRE_OVERHEAD_BYTES) * 8
            duration_ns, port.carry = divmod(bits * NS_PER_S + port.carry, rate_bps)
        departs_ns = port.free_ns + duration_ns
        port.free_ns += max(duration_ns, port.gap_ns)
        if port.background is not None and port.queues[0]:
            port.queues[0][0].ready_ns = port.free_ns + port.queues[0][0].gap_ns
        return departs_ns

    def set_background(self, number: int, background: Background | None) -> None:
        """Have packets of the lowest priority share a port with traffic that is not simulated as packets."""
        self._ports[number].background = background

    def set_queue_frames(self, number: int, frames: int) -> None:
        """Set the capacity, in frames, of each of a port's queues; frames already waiting stay."""
        self._ports[number].limit = frames

    def set_packet_rate(self, number: int, packets_per_s: int) -> None:
        """Set the maximum packets per second that leave a port's queues; 0: limited only by its rate."""
        self._ports[number].gap_ns = gap_of(packets_per_s)

    def next_event_ns(self) -> int | None:
        """Return the earliest instant at which a waiting packet can leave its queue, or None if all are empty."""
        while self._due:
            due_ns, number = self._due[0]
            port = self._ports[number]
            ready_ns = port.free_ns if port.background is None else port.ready_ns()
            if ready_ns <= due_ns:
                return due_ns
            heapreplace(self._due, (ready_ns, number))
        return None

    def occupancy(self, number: int) -> tuple[int, ...]:
        """Return the frames waiting at a port, by priority."""
        return tuple(len(queue) for queue in self._ports[number].queues)

    def queued(self) -> int:
        """Return the frames waiting at all ports together."""
        return sum(port.waiting for port in self._ports.values())

    def port_drops(self, number: int) -> dict[str, int]:
        """Return a copy of a port's drop counters by name."""
        return dict(self._ports[number].drops)

    def clear(self) -> None:
        """Empty every queue and count each packet as `program_replaced` at its port; port times continue."""
        for port in self._ports.values():
            if port.waiting:
                port.drops[PROGRAM_REPLACED] = port.drops.get(PROGRAM_REPLACED, 0) + port.waiting
            for queue in port.queues:
                queue.clear()
            port.waiting = 0
        self._due.clear()

    @staticmethod
    def _drop(drops: dict[str, int], name: str) -> bool:
        drops[name] = drops.get(name, 0) + 1
        return False
