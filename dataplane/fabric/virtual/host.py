"""A host in virtual time: a serialising uplink with a bounded queue, and callbacks for received frames."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dataplane.clock import NS_PER_S
from dataplane.events import EventQueue
from dataplane.fabric.hosts import Sender
from dataplane.fabric.load import SentLoad
from dataplane.fabric.virtual.cable import Cable
from dataplane.fabric.virtual.tcp import TcpStack
from dataplane.switch.traffic import WIRE_OVERHEAD_BYTES, Background
from dataplane.topology.values import HostNode

FrameReceiver = Callable[[bytes, int], object]
"""Receives a frame and the time (ns) at which its last bit arrived; the return value is ignored."""


@dataclass(slots=True)
class HostCounters:
    """Frames that a host sent and received; `uplink_full` counts those that its queue had no room for."""

    tx_frames: int = 0
    tx_bytes: int = 0
    uplink_full: int = 0
    rx_frames: int = 0
    rx_bytes: int = 0


@dataclass(slots=True)
class VirtualHost:
    """A host's single interface; frames leave at its link's rate, as from a switch port."""

    node: HostNode
    events: EventQueue
    uplink: Cable
    gateway_mac: int = 0
    """MAC address of the switch port that the host is attached to."""
    seed: int = 0
    counters: HostCounters = field(default_factory=HostCounters)
    background: Background | None = None
    """Traffic on the uplink that is not simulated as packets."""
    _receivers: list[FrameReceiver] = field(default_factory=list)
    _refused: Counter[int] = field(default_factory=Counter)
    _waiting: deque[int] = field(default_factory=deque)
    _free_ns: int = 0
    _carry: int = 0
    _tcp: TcpStack | None = None

    @property
    def name(self) -> str:
        """The host's name."""
        return self.node.name

    @property
    def tcp(self) -> TcpStack:
        """The host's TCP; from its first use on it answers segments addressed to the host."""
        if self._tcp is None:
            self._tcp = TcpStack(self.node, self.gateway_mac, self.events, self.send, seed=self.seed)
            self.on_frame(self._tcp.receive)
        return self._tcp

    def on_frame(self, receiver: FrameReceiver) -> None:
        """Call `receiver(frame, now_ns)` for every frame that arrives, after the receivers registered before."""
        self._receivers.append(receiver)

    def send(self, frame: bytes) -> bool:
        """Queue a frame for the uplink; return False, and count it, if the queue is full."""
        now_ns = self.events.clock.time_ns
        while self._waiting and self._waiting[0] <= now_ns:
            self._waiting.popleft()
        link = self.uplink.link
        if len(self._waiting) >= link.queue_frames:
            self.counters.uplink_full += 1
            return False
        if self.background is not None:
            joined = self.background.join(now_ns, behind=False)
            if joined is None:
                self.counters.uplink_full += 1
                return False
            self._free_ns = max(self._free_ns, now_ns + joined[1])
            self.background.occupy(now_ns, (len(frame) + WIRE_OVERHEAD_BYTES) * 8)
        if now_ns >= self._free_ns:
            self._free_ns, self._carry = now_ns, 0
        else:
            self._waiting.append(self._free_ns)
        self.counters.tx_frames += 1
        self.counters.tx_bytes += len(frame)
        bits = (len(frame) + WIRE_OVERHEAD_BYTES) * 8
        duration_ns, self._carry = divmod(bits * NS_PER_S + self._carry, link.rate_bps)
        self._free_ns += duration_ns
        self.uplink.carry(frame, self._free_ns)
        return True

    def run(self, sender: Sender) -> None:
        """Send the packets of a flow when they are due, until its end."""
        due_ns = sender.next_send_ns()
        if due_ns is not None:
            self.events.at(max(due_ns, self.events.clock.time_ns), self._send_due, sender)

    def load(self, sender: Sender) -> SentLoad:
        """Return the load sent so far by a flow passed to `run`; a full uplink refuses the rest."""
        refused = self._refused[sender.flow.flow_id]
        return SentLoad(planned=sender.sent_frames, sent=sender.sent_frames - refused, refused=refused)

    def receive(self, frame: bytes) -> None:
        """Receive a frame from the cable."""
        self.counters.rx_frames += 1
        self.counters.rx_bytes += len(frame)
        now_ns = self.events.clock.time_ns
        for receiver in self._receivers:
            receiver(frame, now_ns)

    def _send_due(self, sender: Sender) -> None:
        if not self.send(sender.frame(self.events.clock.time_ns)):
            self._refused[sender.flow.flow_id] += 1
        self.run(sender)
