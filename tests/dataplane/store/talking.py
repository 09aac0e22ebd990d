"""Clients and a producer in virtual time, over a network with loss, delay and repetition."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from dataplane.store.producer_core import ProducerCore
from dataplane.store.proofs import Source
from dataplane.store.talk import Talk
from dataplane.wire.store import Message, decode

MS = 1_000_000


@dataclass
class Network:
    """Delivers packets late, never, or twice."""

    producer: ProducerCore
    chance: random.Random
    loss: float = 0.0
    time_ns: int = 0
    _due: list[tuple[int, int, Callable[[], None]]] = field(default_factory=list)
    _count: int = 0

    @property
    def now_ns(self) -> int:
        return self.time_ns

    def after(self, delay_ns: int, call: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._due, (self.now_ns + delay_ns, self._count, call))

    def send(self, source: Source, message: Message, back: Callable[[Message], None]) -> None:
        def arrive() -> None:
            answer = self.producer.receive(source, decode(message.encode()), self.now_ns)
            if answer is not None:
                assert len(answer.encode()) <= len(message.encode())
                self._carry(lambda: back(decode(answer.encode())))

        self._carry(arrive)

    def run(self) -> None:
        """Run all pending events."""
        while self._due:
            self.step()

    def run_until_over(self, talk: Talk) -> None:
        """Run events until a dialogue has ended."""
        while not talk.is_over:
            self.step()

    def step(self) -> None:
        self.time_ns, _, call = heapq.heappop(self._due)
        call()

    def _carry(self, call: Callable[[], None]) -> None:
        for _ in range(1 + (self.chance.random() < self.loss)):
            if self.chance.random() >= self.loss:
                self.after(self.chance.randrange(MS // 10, 2 * MS), call)
