"""The reference aggregator behind a UDP socket that loses, repeats and reorders, by chance that a seed decides."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

from dataplane.allreduce.reference.aggregator import Aggregator, Job, Multicast, Unicast
from dataplane.wire.aggregation import Aggregation, Flags, decode

JOB = 7
_LONGEST = 2048


@dataclass(frozen=True, slots=True)
class Weather:
    """What happens to packets, both ways: chances of each."""

    loss: float = 0.0
    repeated: float = 0.0
    late: float = 0.0
    congested: float = 0.0
    seed: int = 1


class Server:
    """Serves one job until it is left; workers are told apart by their address, children by who came first."""

    def __init__(
        self, workers: int, window: int, weather: Weather | None = None, at: tuple[str, int] = ("127.0.0.1", 0)
    ) -> None:
        self.switch = Aggregator({JOB: Job(epoch=1, children=(1 << workers) - 1, cells=2 * window)})
        self.weather = weather or Weather()
        self.before: Callable[[Aggregation], None] = lambda packet: None
        self.too_early: list[Aggregation] = []
        """Contributions that came before there was a result of the item whose cells they may overwrite."""
        self._window = window
        self._complete: set[int] = set()
        self._first: int | None = None
        self._chance = random.Random(self.weather.seed)
        self._children: dict[tuple[str, int], int] = {}
        self._kept: list[tuple[bytes, tuple[str, int]]] = []
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        self._socket.bind(at)
        self._socket.settimeout(0.01)
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="aggregator")

    @property
    def port(self) -> int:
        port: int = self._socket.getsockname()[1]
        return port

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while not self._left.is_set():
            try:
                data, sender = self._socket.recvfrom(_LONGEST)
            except TimeoutError:
                continue
            child = self._children.setdefault(sender, len(self._children))
            if self._happens(self.weather.loss):
                continue
            for _ in range(1 + self._happens(self.weather.repeated)):
                self._take(decode(data), child)

    def _take(self, packet: Aggregation, child: int) -> None:
        self._check(packet)
        self.before(packet)
        answer = self.switch.from_child(child, packet)
        if answer is None:
            return
        sent = answer.packet
        if isinstance(answer, Multicast):
            self._complete.add(sent.item)
        if self._happens(self.weather.congested):
            sent = replace(sent, flags=sent.flags | Flags.CONGESTED)
        for address, number in self._children.items():
            if isinstance(answer, Multicast) or (isinstance(answer, Unicast) and answer.child == number):
                self._send(sent.encode(), address)

    def _check(self, packet: Aggregation) -> None:
        if self._first is None:
            self._first = packet.item
        number = (packet.item - self._first) % 2**32
        if self._window <= number < 2**31 and (packet.item - self._window) % 2**32 not in self._complete:
            self.too_early.append(packet)

    def _send(self, data: bytes, address: tuple[str, int]) -> None:
        if self._happens(self.weather.loss):
            return
        if self._happens(self.weather.late):
            self._kept.append((data, address))
            return
        self._socket.sendto(data, address)
        if self._happens(self.weather.repeated):
            self._socket.sendto(data, address)
        while self._kept and not self._happens(0.7):
            self._socket.sendto(*self._kept.pop(self._chance.randrange(len(self._kept))))

    def _happens(self, chance: float) -> bool:
        return chance > 0 and self._chance.random() < chance
