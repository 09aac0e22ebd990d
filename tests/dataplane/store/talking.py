"""Clients and a producer in virtual time, with a network between them that loses, delays and repeats."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from dataplane.errors import MillraceError
from dataplane.store.dialogues import Dialogue, Step, T
from dataplane.store.producer_core import ProducerCore
from dataplane.store.proofs import Source
from dataplane.store.requests import Pace, Requests
from dataplane.wire.store import Message, decode

MS = 1_000_000


class Carrier(Protocol):
    """What carries a client's questions to a producer, and answers back."""

    chance: random.Random

    @property
    def now_ns(self) -> int:
        """The present time."""
        ...

    def after(self, delay_ns: int, call: Callable[[], None]) -> object:
        """Call after a delay."""
        ...

    def send(self, source: Source, message: Message, back: Callable[[Message], None]) -> None:
        """Send a question; its answers, if any, are handed back."""
        ...


@dataclass
class Network:
    """Delivers what was sent after a while, or never, or twice."""

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
        """Let everything happen."""
        while self._due:
            self.step()

    def run_until_over(self, talk: Talk) -> None:
        """Let everything happen until a talk has ended."""
        while not talk.is_over:
            self.step()

    def step(self) -> None:
        self.time_ns, _, call = heapq.heappop(self._due)
        call()

    def _carry(self, call: Callable[[], None]) -> None:
        for _ in range(1 + (self.chance.random() < self.loss)):
            if self.chance.random() >= self.loss:
                self.after(self.chance.randrange(MS // 10, 2 * MS), call)


class Talk:
    """A dialogue that is carried out over a network; `result` or `error` when `is_over`."""

    def __init__(self, network: Carrier, source: Source, dialogue: Dialogue[T], pace: Pace | None = None) -> None:
        self.result: object = None
        self.error: MillraceError | None = None
        self.is_over = False
        self._network, self._source, self._dialogue = network, source, dialogue
        self._pace = pace or Pace(network.chance)
        self._asking: Requests | None = None
        self._begin(lambda: next(dialogue))

    def _begin(self, following: Callable[[], Step]) -> None:
        try:
            step = following()
        except StopIteration as end:
            self.result, self.is_over = end.value, True
        except MillraceError as error:
            self.error, self.is_over = error, True
        else:
            self._network.after(step.pause_ns, lambda: self._ask(step))

    def _ask(self, step: Step) -> None:
        self._asking = Requests(step.questions, self._pace)
        self._look(self._asking)

    def _look(self, requests: Requests) -> None:
        if requests is self._asking and not requests.is_done:
            for message in requests.due(self._network.now_ns):
                self._network.send(self._source, message, lambda answer: self._hear(requests, answer))
            self._network.after(max(0, requests.next_ns() - self._network.now_ns), lambda: self._look(requests))

    def _hear(self, requests: Requests, answer: Message) -> None:
        if requests is not self._asking:
            return
        requests.receive(answer, self._network.now_ns)
        if requests.is_done:
            self._asking = None
            answers = [one for one in requests.answers if one is not None]
            self._begin(lambda: self._dialogue.send(answers))
        else:
            for message in requests.due(self._network.now_ns):
                self._network.send(self._source, message, lambda answer: self._hear(requests, answer))
