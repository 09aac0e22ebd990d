"""Questions under way: each is sent until it is answered, and no more of them at once than the network bears.

No socket and no clock: who has those calls `due` and `receive`.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from dataplane.wire.store import Kind, Message, Reason

MS: Final = 1_000_000
ANSWERS: Final = {Kind.INTEREST: (Kind.DATA, Kind.NACK), Kind.PUT: (Kind.PUT_ACK, Kind.NACK)}

_LONGEST_NS: Final = 1_000 * MS
_FIRST_NS: Final = 100 * MS
_WINDOWS: Final = (1.0, 256.0)


class Pace:
    """What a client has learnt of the way to the store: round trip times (RFC 6298) and how much may be under way."""

    def __init__(self, chance: random.Random, *, least_timeout_ns: int = 5 * MS) -> None:
        self.window = 16.0
        self.proof = 0
        """What the producer has told us at our address, and wants to see of who writes."""
        self._number = chance.getrandbits(32)
        self._least_ns = least_timeout_ns
        self._mean_ns: float | None = None
        self._spread_ns = 0.0
        self._cut_ns = 0

    @property
    def timeout_ns(self) -> int:
        """After how long a question that was sent once is sent again."""
        if self._mean_ns is None:
            return _FIRST_NS
        return round(min(max(self._mean_ns + 4 * self._spread_ns, self._least_ns), _LONGEST_NS))

    def number(self) -> int:
        """Return a number that no other question of this client has."""
        self._number = (self._number + 1) % 2**32
        return self._number

    def answered(self, round_trip_ns: int | None) -> None:
        """Take an answer; the time is None where it might be that of another sending."""
        self.window = min(self.window + 1 / self.window, _WINDOWS[1])
        if round_trip_ns is None:
            return
        if self._mean_ns is None:
            self._mean_ns, self._spread_ns = float(round_trip_ns), round_trip_ns / 2
        self._spread_ns += (abs(self._mean_ns - round_trip_ns) - self._spread_ns) / 4
        self._mean_ns += (round_trip_ns - self._mean_ns) / 8

    def lost(self, now_ns: int) -> None:
        """Send less at once, no more often than once a round trip."""
        if now_ns >= self._cut_ns:
            self._cut_ns = now_ns + self.timeout_ns
            self.window = max(self.window / 2, _WINDOWS[0])


@dataclass(slots=True)
class _Pending:
    """A question that was sent: when first, when it is sent again, with which proof, and how often."""

    place: int
    sent_ns: int
    again_ns: int
    proof: int
    times: int = 1


class Requests:
    """Some questions at once; `answers` are in the questions' order, None for what is not answered yet."""

    def __init__(self, questions: Sequence[Message], pace: Pace) -> None:
        self.answers: list[Message | None] = [None] * len(questions)
        self.repeated = 0
        self._questions = [replace(question, number=pace.number()) for question in questions]
        self._pace = pace
        self._new = deque(range(len(questions)))
        self._waiting: dict[int, _Pending] = {}

    @property
    def is_done(self) -> bool:
        """Whether all questions are answered."""
        return not self._new and not self._waiting

    def due(self, now_ns: int) -> list[Message]:
        """Return what is to be sent now."""
        found = []
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
            found.append(self._proven(waiting.place))
        while self._new and len(self._waiting) < int(self._pace.window):
            place = self._new.popleft()
            again_ns = now_ns + self._pace.timeout_ns
            self._waiting[self._questions[place].number] = _Pending(place, now_ns, again_ns, self._pace.proof)
            found.append(self._proven(place))
        return found

    def next_ns(self) -> int:
        """Return when there is something to send again; only while not done, and after `due`."""
        return min(waiting.again_ns for waiting in self._waiting.values())

    def receive(self, message: Message, now_ns: int) -> None:
        """Take what came; what answers nothing that was asked is left out."""
        waiting = self._waiting.get(message.number)
        if waiting is None:
            return
        question = self._questions[waiting.place]
        same = (message.name, message.segment) == (question.name, question.segment)
        if not same or message.kind not in ANSWERS[question.kind]:
            return
        if message.kind is Kind.NACK and message.reason is Reason.UNPROVEN:
            # With a proof that was sent already it is of an earlier sending, and the next one comes in its own time.
            if message.tag != waiting.proof:
                self._pace.proof, waiting.times, waiting.again_ns = message.tag, 0, now_ns
        else:
            del self._waiting[message.number]
            self._pace.answered(now_ns - waiting.sent_ns if waiting.times == 1 else None)
            self.answers[waiting.place] = message

    def _proven(self, place: int) -> Message:
        """Return a question as it is sent now."""
        question = self._questions[place]
        return replace(question, tag=self._pace.proof) if question.kind is Kind.PUT else question
