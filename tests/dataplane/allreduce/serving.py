"""The reference aggregator behind a UDP socket, and cables of frames, that lose, repeat and reorder by chance.

A seed decides what happens.
"""

from __future__ import annotations

import random
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from ipaddress import IPv4Address
from types import TracebackType

from dataplane.allreduce.next_hop import NextHop
from dataplane.allreduce.reference.aggregator import Aggregator, Job, Multicast, Unicast
from dataplane.allreduce.transports import RingTransport
from dataplane.nic import NicPort, memory_pair
from dataplane.wire.aggregation import Aggregation, Flags, Kind, decode
from dataplane.wire.packet import decode_udp_frame, udp_frame

JOB = 7
_LONGEST = 2048
MAIN_SERVER = 63
"""The number of the main server among children: it does not contribute, and gets final results."""
_FOR_SERVER = Flags.FINAL | Flags.DISTRIBUTED
_LOOPBACK = IPv4Address("127.0.0.1")
_WORKER_MAC, _SWITCH_MAC = 0x020000000001, 0x020000000002
_Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Weather:
    """Probability of each packet impairment, in both directions."""

    loss: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    congested: float = 0.0
    seed: int = 1


class Server:
    """Serves one job until the block ends; workers are identified by address, children numbered by arrival."""

    def __init__(
        self, workers: int, window: int, weather: Weather | None = None, at: _Address = ("127.0.0.1", 0), nonce: int = 0
    ) -> None:
        self.switch = Aggregator({JOB: Job(epoch=1, children=(1 << workers) - 1, cells=2 * window, nonce=nonce)})
        self.weather = weather or Weather()
        self.before: Callable[[Aggregation], None] = lambda packet: None
        self.too_early: list[Aggregation] = []
        """Contributions that arrived before the result of the item whose cells they may overwrite."""
        self.pulled = 0
        self._window = window
        self._complete: set[int] = set()
        self._first: int | None = None
        self._chance = random.Random(self.weather.seed)
        self.children: dict[_Address, int] = {}
        self._kept: list[tuple[bytes, _Address]] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind(at)
        self._socket.settimeout(0.01)
        self._cables: dict[_Address, tuple[NicPort, NicPort]] = {}
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="aggregator")

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def cable(self) -> RingTransport:
        """Return a cable in memory that carries a worker's packets in frames to this server."""
        here, there = memory_pair()
        address = str(_LOOPBACK), 30000 + len(self._cables)
        self._cables[address] = here, there
        return RingTransport(there, NextHop("there", _LOOPBACK, _WORKER_MAC, _SWITCH_MAC), address[1])

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()
        self._socket.close()
        for here, _ in self._cables.values():
            here.close()

    def _serve(self) -> None:
        while not self._left.is_set():
            for data, sender in self._receive():
                child = self.children.setdefault(sender, len(self.children))
                if self._happens(self.weather.loss):
                    continue
                for _ in range(1 + self._happens(self.weather.repeated)):
                    self._take(decode(data), child)

    def _receive(self) -> Iterator[tuple[bytes, _Address]]:
        if not self._cables:
            with suppress(TimeoutError):
                yield self._socket.recvfrom(_LONGEST)
            return
        ports = [here for here, _ in self._cables.values()]
        for ready in select.select(ports, [], [], 0.01)[0]:
            for frame in ready.receive(8):
                datagram = decode_udp_frame(frame)
                assert datagram is not None
                assert (datagram.checksum_ok, datagram.dst_port, datagram.ip.ecn) == (True, self.port, 2)
                yield datagram.payload, (str(datagram.ip.src), datagram.src_port)

    def _take(self, packet: Aggregation, child: int) -> None:
        self._check(packet)
        self.before(packet)
        if packet.job not in self.switch.jobs:
            return  # as the program does: of a job that has ended a repetition may still be under way
        is_server = child == MAIN_SERVER
        answer = self.switch.from_server(child, packet) if is_server else self.switch.from_child(child, packet)
        if answer is None:
            return
        sent = answer.packet
        if isinstance(answer, Multicast):
            self._complete.add(sent.item)
        if self._happens(self.weather.congested):
            sent = replace(sent, flags=sent.flags | Flags.CONGESTED)
        for address, number in self.children.items():
            is_for_all = isinstance(answer, Multicast) and (number != MAIN_SERVER or sent.flags & _FOR_SERVER)
            if is_for_all or (isinstance(answer, Unicast) and answer.child == number):
                self._send(sent.encode(), address)

    def _check(self, packet: Aggregation) -> None:
        if packet.kind is Kind.PULL:
            self.pulled += 1
            return
        if self._first is None:
            self._first = packet.item
        number = (packet.item - self._first) % 2**32
        if self._window <= number < 2**31 and (packet.item - self._window) % 2**32 not in self._complete:
            self.too_early.append(packet)

    def _send(self, data: bytes, address: _Address) -> None:
        if self._happens(self.weather.loss):
            return
        if self._happens(self.weather.late):
            self._kept.append((data, address))
            return
        self._put(data, address)
        if self._happens(self.weather.repeated):
            self._put(data, address)
        while self._kept and not self._happens(0.7):
            self._put(*self._kept.pop(self._chance.randrange(len(self._kept))))

    def _put(self, data: bytes, address: _Address) -> None:
        if address not in self._cables:
            self._socket.sendto(data, address)
            return
        frame = udp_frame(
            src_mac=_SWITCH_MAC,
            dst_mac=_WORKER_MAC,
            src=_LOOPBACK,
            dst=_LOOPBACK,
            src_port=self.port,
            dst_port=address[1],
            payload=data,
        )
        self._cables[address][0].send([frame])

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._chance.random() < chance
