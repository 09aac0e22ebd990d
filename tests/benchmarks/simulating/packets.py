"""The same transfers as packets through switches that run the P4 program, in virtual time.

Two kinds of senders. `window`: as TCP without loss, each packet that arrives is acknowledged and lets the next one
leave; queues hold all windows, so which sender gets how much is what the packets make of it. `paced`: every sender is
told its max-min fair rate whenever one begins to send or has sent all, as explicit rate control does; there the packets
show whether links carry these rates, and when the last one arrives, not that the rates are fair.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import networkx as nx

from controller.network.virtual import VirtualController
from controller.scheduling.simulation.units import ONE
from dataplane.fabric.virtual import VirtualFabric
from dataplane.switch.compiled.pipeline import compiled_pipeline
from dataplane.switch.traffic import WIRE_OVERHEAD_BYTES
from dataplane.topology.addressing import gateway_mac
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.packet import decode_udp_frame, udp_frame
from tests.benchmarks.simulating.cases import Transfer
from tests.benchmarks.simulating.flows import PAYLOAD_BYTES
from tests.reference.sharing import max_min_rates

WINDOW = 6
"""Packets: more than a link and its delay hold here (3), and few compared with a transfer (100 and more)."""
PORT = 30_000
_ACK = b"acknowledged"
_SETTLED_NS = 20_000_000
"""Tables are written, and hellos went, before transfers begin."""
_NS_PER_S = 1_000_000_000


@dataclass(slots=True)
class _Sender:
    """A transfer: bytes sent, bytes arrived, and the time of the last one."""

    number: int
    transfer: Transfer
    left_bytes: int
    arrived_bytes: int = 0
    end_ns: int | None = None
    rate_bps: int = 0
    due_ns: int = 0
    turn: int = 0
    links: frozenset[LinkKey] = field(default_factory=frozenset)


class PacketRun:
    """Transfers over a fabric; `ends_ns` runs them."""

    def __init__(self, topology: Topology, transfers: Sequence[Transfer], *, is_paced: bool) -> None:
        self.fabric = VirtualFabric(topology, pipeline_factory=compiled_pipeline)
        VirtualController.over(self.fabric, watches=()).start()
        self._topology, self._is_paced = topology, is_paced
        self._senders = [_Sender(number, transfer, transfer.nbytes) for number, transfer in enumerate(transfers)]
        graph = nx.Graph((link.a.node, link.b.node) for link in topology.links)
        for sender in self._senders:
            path = nx.shortest_path(graph, sender.transfer.src, sender.transfer.dst)
            sender.links = frozenset(LinkKey(*ends) for ends in pairwise(path))
        for host in topology.hosts:
            self.fabric.host(host.name).on_frame(self._receiver(host.name))

    def ends_ns(self) -> list[int]:
        """Return when the last byte of each transfer arrived, from the first moment of the run; nothing may be lost."""
        fabric = self.fabric
        fabric.run_until(_SETTLED_NS)
        for sender in self._senders:
            fabric.call_at(_SETTLED_NS + sender.transfer.start_ns, self._beginner(sender))
        while any(sender.end_ns is None for sender in self._senders):
            if fabric.now_ns > 100 * _NS_PER_S:
                raise AssertionError("packets were lost")
            fabric.run_until(fabric.now_ns + 1_000_000)
        return [sender.end_ns - _SETTLED_NS for sender in self._senders if sender.end_ns is not None]

    def _beginner(self, sender: _Sender) -> Callable[[], None]:
        def begin() -> None:
            if self._is_paced:
                sender.due_ns = self.fabric.now_ns
                sender.turn = 1
                self._share()
            else:
                for _ in range(WINDOW):
                    self._send(sender)

        return begin

    def _send(self, sender: _Sender) -> int:
        """Send the next packet, if one is left; return its size on the wire."""
        if not sender.left_bytes:
            return 0
        nbytes = min(sender.left_bytes, PAYLOAD_BYTES)
        sender.left_bytes -= nbytes
        frame = self._frame(sender.transfer.src, sender.transfer.dst, sender.number, bytes(nbytes))
        assert self.fabric.host(sender.transfer.src).send(frame), "an uplink's queue is full"
        return len(frame) + WIRE_OVERHEAD_BYTES

    def _frame(self, src: str, dst: str, number: int, payload: bytes) -> bytes:
        a, b = self._topology.host[src], self._topology.host[dst]
        return udp_frame(
            src_mac=a.mac,
            dst_mac=gateway_mac(self._topology, src),
            src=a.ipv4,
            dst=b.ipv4,
            src_port=PORT + number,
            dst_port=PORT + number,
            payload=payload,
        )

    def _receiver(self, host: str) -> Callable[[bytes, int], None]:
        def receive(frame: bytes, now_ns: int) -> None:
            datagram = decode_udp_frame(frame)
            if datagram is None or not 0 <= (number := datagram.dst_port - PORT) < len(self._senders):
                return
            sender = self._senders[number]
            if datagram.payload == _ACK:
                self._send(sender)
                return
            sender.arrived_bytes += len(datagram.payload)
            if sender.arrived_bytes == sender.transfer.nbytes:
                sender.end_ns = now_ns
            if not self._is_paced:
                self.fabric.host(host).send(self._frame(host, sender.transfer.src, number, _ACK))

        return receive

    def _share(self) -> None:
        """Tell all that send their rates, and let each send on at its own."""
        sending = {sender.number: sender for sender in self._senders if sender.turn and sender.left_bytes}
        links = self._topology.directed_links
        rows = {key: row for row, key in enumerate(links)}
        capacity = [link.rate_bps for link in links.values()]
        rates = max_min_rates(capacity, {n: {rows[key]: ONE for key in sender.links} for n, sender in sending.items()})
        for number, sender in sending.items():
            if rates[number] != sender.rate_bps:
                self._change_pace(sender, rates[number])

    def _change_pace(self, sender: _Sender, rate_bps: int) -> None:
        now_ns = self.fabric.now_ns
        if sender.rate_bps:
            sender.due_ns = now_ns + max(sender.due_ns - now_ns, 0) * sender.rate_bps // rate_bps
        sender.rate_bps = rate_bps
        sender.turn += 1
        self._at_turn(sender)

    def _at_turn(self, sender: _Sender) -> None:
        turn = sender.turn

        def go() -> None:
            if turn == sender.turn:
                self._pace(sender)

        self.fabric.call_at(max(sender.due_ns, self.fabric.now_ns), go)

    def _pace(self, sender: _Sender) -> None:
        wire_bytes = self._send(sender)
        sender.due_ns += 8 * wire_bytes * _NS_PER_S // sender.rate_bps
        if sender.left_bytes:
            self._at_turn(sender)
        else:
            # Its last packet takes its time at this rate, too; then the others have more.
            self.fabric.call_at(max(sender.due_ns, self.fabric.now_ns), self._share)
