"""Event-driven dialogues: for clients in virtual time, and others without their own socket."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

from dataplane.errors import MillraceError
from dataplane.store.dialogues import Dialogue, Step, T
from dataplane.store.proofs import Source
from dataplane.store.requests import Pace, Requests
from dataplane.wire.store import Message


class Carrier(Protocol):
    """Carries a client's requests to a producer, and answers back."""

    chance: random.Random

    @property
    def now_ns(self) -> int:
        """The current time."""
        ...

    def after(self, delay_ns: int, call: Callable[[], None]) -> object:
        """Call after a delay."""
        ...

    def send(self, source: Source, message: Message, back: Callable[[Message], None]) -> None:
        """Send a request; its answers, if any, are passed back."""
        ...


class Talk:
    """A dialogue run over a network; `result` or `error` is set when `is_over`, as of `ended_ns`."""

    def __init__(self, network: Carrier, source: Source, dialogue: Dialogue[T], pace: Pace | None = None) -> None:
        self.result: object = None
        self.error: MillraceError | None = None
        self.is_over = False
        self.ended_ns = 0
        self._network, self._source, self._dialogue = network, source, dialogue
        self._pace = pace or Pace(network.chance)
        self._asking: Requests | None = None
        self._begin(lambda: next(dialogue))

    def _begin(self, following: Callable[[], Step]) -> None:
        try:
            step = following()
        except StopIteration as end:
            self.result = end.value
            self._end()
        except MillraceError as error:
            self.error = error
            self._end()
        else:
            self._network.after(step.pause_ns, lambda: self._ask(step))

    def _end(self) -> None:
        self.is_over, self.ended_ns = True, self._network.now_ns

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
            answers = [answer for answer in requests.answers if answer is not None]
            self._begin(lambda: self._dialogue.send(answers))
        else:
            for message in requests.due(self._network.now_ns):
                self._network.send(self._source, message, lambda answer: self._hear(requests, answer))
