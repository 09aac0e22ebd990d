"""The reference aggregator behind a UDP socket, for several jobs; in some it dies as planned."""

from __future__ import annotations

import random
import socket
import threading
from dataclasses import dataclass, field, replace

from dataplane.allreduce.reference.aggregator import Aggregator, Job, Multicast, Unicast
from dataplane.wire.aggregation import Aggregation, decode

CELLS = 32
Address = tuple[str, int]


@dataclass
class Plan:
    """Faults of a job: packet loss, and the number of results until the switch dies, the last reaching one child."""

    loss: float = 0.0
    dies_after: int | None = None
    flips_at: int | None = None
    """Number of the result with a bit flip in the switch's memory."""
    children: list[Address] = field(default_factory=list)
    results: int = 0


class Switch:
    """The reference aggregator behind a UDP socket; children are numbered by arrival."""

    def __init__(self, plans: dict[int, Plan], workers: int, seed: int = 1) -> None:
        self._plans, self._chance = plans, random.Random(seed)
        self._aggregator = Aggregator({job: Job(1, (1 << workers) - 1, CELLS) for job in plans})
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self.port = int(self._socket.getsockname()[1])
        self._is_open = True
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._is_open = False
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while self._is_open:
            try:
                data, address = self._socket.recvfrom(2048)
            except TimeoutError:
                continue
            packet = decode(data)
            self._take(self._plans[packet.job], data, address)

    def _take(self, plan: Plan, data: bytes, address: Address) -> None:
        if address not in plan.children:
            plan.children.append(address)
        if plan.results == plan.dies_after or self._chance.random() < plan.loss:
            return
        answer = self._aggregator.from_child(plan.children.index(address), decode(data))
        assert isinstance(answer, Multicast | Unicast | None)
        if answer is None:
            return
        plan.results += isinstance(answer, Multicast)
        if isinstance(answer, Multicast) and plan.results == plan.flips_at:
            answer = self._flip(answer.packet)
        takers = plan.children if isinstance(answer, Multicast) else [plan.children[answer.child]]
        for taker in takers[:1] if plan.results == plan.dies_after else takers:
            if self._chance.random() >= plan.loss:
                self._socket.sendto(answer.packet.encode(), taker)

    def _flip(self, result: Aggregation) -> Multicast:
        """Flip a bit of a result in its cell before it is sent."""
        cell = result.job, result.item % CELLS
        changed = replace(result, values=result.values[:5] + bytes([result.values[5] ^ 16]) + result.values[6:])
        self._aggregator._cells[cell] = replace(self._aggregator._cells[cell], value=changed)
        return Multicast(changed)
