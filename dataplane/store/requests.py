"""Outstanding requests: each is sent until it is answered, with no more at once than the network can carry.

No socket and no clock: the owner of those calls `due` and `receive`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dataplane.clock import NS_PER_MS
from dataplane.wire.store import Kind, Message, Reason

ANSWERS: Final = {Kind.INTEREST: (Kind.DATA, Kind.NACK), Kind.PUT: (Kind.PUT_ACK, Kind.NACK)}

_LONGEST_NS: Final = 1_000 * NS_PER_MS
_FIRST_NS: Final = 100 * NS_PER_MS
_WINDOWS: Final = (1.0, 256.0)


class Pace:
    """A client's estimate of the path to the store: round trip times (RFC 6298) and the permitted number in flight."""

    def __init__(self, chance: random.Random, *, least_timeout_ns: int = 5 * NS_PER_MS) -> None:
        self.window = 16.0
        self.proof = 0
        """Proof that the producer sent to our address, and requires from writers."""
        self._number = chance.getrandbits(32)
        self._least_ns = least_timeout_ns
        self._mean_ns: float | None = None
        self._spread_ns = 0.0
        self._cut_ns = 0

    @property
    def timeout_ns(self) -> int:
        """Time after which a request that was sent once is sent again."""
        if self._mean_ns is None:
            return _FIRST_NS
        return round(min(max(self._mean_ns + 4 * self._spread_ns, self._least_ns), _LONGEST_NS))

    def number(self) -> int:
        """Return a number that no other request of this client has."""
        self._number = (self._number + 1) % 2**32
        return self._number

    def answered(self, round_trip_ns: int | None) -> None:
        """Process an answer; the time is None if it may belong to another transmission."""
        self.window = min(self.window + 1 / self.window, _WINDOWS[1])
        if round_trip_ns is None:
            return
        if self._mean_ns is None:
            self._mean_ns, self._spread_ns = float(round_trip_ns), round_trip_ns / 2
        self._spread_ns += (abs(self._mean_ns - round_trip_ns) - self._spread_ns) / 4
        self._mean_ns += (round_trip_ns - self._mean_ns) / 8

    def lost(self, now_ns: int) -> None:
        """Reduce the number in flight, at most once per round trip."""
        if now_ns >= self._cut_ns:
            self._cut_ns = now_ns + self.timeout_ns
            self.window = max(self.window / 2, _WINDOWS[0])


@dataclass(slots=True)
class _Pending:
    """A sent request: its first send time, next send time, proof, and number of transmissions."""

    place: int
    sent_ns: int
    again_ns: int
    proof: int
    times: int = 1


class Requests:
    """A set of concurrent requests; `answers` are in the requests' order, None for those not answered yet."""

    def __init__(self, questions: Sequence[Message], pace: Pace) -> None:
        self.answers: list[Message | None] = [None] * len(questions)
        self.repeated = 0
        self._questions = [replace(question, number=pace.number()) for question in questions]
        self._pace = pace
        self._new = deque(range(len(questions)))
        self._waiting: dict[int, _Pending] = {}

    @property
    def is_done(self) -> bool:
        """True if all requests are answered."""
        return not self._new and not self._waiting

    def due(self, now_ns: int) -> list[Message]:
        """Return the messages to send now."""
        messages = []
        for waiting in self._waiting.values():
            if waiting.again_ns > now_ns:
                continue
            if waiting.times:
                self._pace.lost(now_ns)
                waiting.again_ns = now_ns + min(self._pace.timeout_ns << min(waiting.times, 10), _LONGEST_NS)
                self.repeated += 1
            else:
                waiting.sent_ns, waiting.again_ns = now_ns, now_ns + self._pace.timeout_ns
            waiting.times += 1
            waiting.proof = self._pace.proof
            messages.append(self._proven(waiting.place))
        while self._new and len(self._waiting) < int(self._pace.window):
            index = self._new.popleft()
            again_ns = now_ns + self._pace.timeout_ns
            self._waiting[self._questions[index].number] = _Pending(index, now_ns, again_ns, self._pace.proof)
            messages.append(self._proven(index))
        return messages

    def next_ns(self) -> int:
        """Return when there is something to send again; call only while not done, and after `due`."""
        return min(waiting.again_ns for waiting in self._waiting.values())

    def receive(self, message: Message, now_ns: int) -> None:
        """Process a received message; ignore it if it answers no request."""
        waiting = self._waiting.get(message.number)
        if waiting is None:
            return
        question = self._questions[waiting.place]
        same = (message.name, message.segment) == (question.name, question.segment)
        if not same or message.kind not in ANSWERS[question.kind]:
            return
        if message.kind is Kind.NACK and message.reason is Reason.UNPROVEN:
            # If the proof was already sent, this answers an earlier transmission; the next one follows on schedule.
            if message.tag != waiting.proof:
                self._pace.proof, waiting.times, waiting.again_ns = message.tag, 0, now_ns
        else:
            del self._waiting[message.number]
            self._pace.answered(now_ns - waiting.sent_ns if waiting.times == 1 else None)
            self.answers[waiting.place] = message

    def _proven(self, index: int) -> Message:
        """Return a request with the current proof."""
        question = self._questions[index]
        return replace(question, tag=self._pace.proof) if question.kind is Kind.PUT else question
