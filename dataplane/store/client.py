"""Client that reads and writes named content over UDP, from any thread, with retransmission and deadlines."""

from __future__ import annotations

import random
import threading
from typing import Final

from dataplane.clock import NS_PER_S, Clock, MonotonicClock
from dataplane.closing import Closing
from dataplane.errors import WireError
from dataplane.store.dialogues import Content, Dialogue, Step, T, reading, recording, writing
from dataplane.store.errors import NoAnswerError, StoreError
from dataplane.store.requests import Pace, Requests
from dataplane.store.sockets import MOST_BYTES, address_of, open_socket
from dataplane.wire.store import NAMES_ADDRESS, UDP_PORT, Message, decode

_LONGEST_S: Final = 1e9


class StoreClient(Closing):
    """Talks to one producer, or for recorded names to any host beyond the switch that records them; or reads by name.

    Without a `server`, reads go to whoever has announced the name, which the client need not know.

    Answers come from a switch on the path that has the content, or from the producer. Calls run one at a time; others
    wait. Every call has a deadline, and its error says what it waited for.
    """

    def __init__(
        self,
        server: str = NAMES_ADDRESS,
        *,
        port: int = UDP_PORT,
        local: tuple[str, int] = ("", 0),
        deadline_s: float = 5.0,
        clock: Clock | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Open the socket; `local` pins address and UDP port. Raises StoreError."""
        _check_deadline(deadline_s)
        self.server, self.port, self.deadline_s = address_of(server), port, deadline_s
        self.repeated = 0
        self._clock = clock or MonotonicClock()
        self._pace = Pace(rng or random.Random(random.SystemRandom().getrandbits(64)))
        self._lock = threading.Lock()
        self._nobody = False
        self._socket = open_socket(local)
        self._is_by_name = self.server == NAMES_ADDRESS
        try:
            # Answers to requests by name come from their producers' addresses.
            if not self._is_by_name:
                self._socket.connect((self.server, port))
        except OSError as error:
            self._socket.close()
            raise StoreError(f"{self.server}: {error.strerror or error}") from error

    def get(self, name: str, *, most_bytes: int = 1 << 30, deadline_s: float | None = None) -> Content:
        """Return a complete value of a single version; raise AbsentError, NoAnswerError, or another StoreError.

        A value of more than `most_bytes` is refused before it is requested.
        """
        return self._carry_out(reading(name, most_bytes=most_bytes), deadline_s)

    def put(self, name: str, value: bytes, *, freshness_ms: int = 0, deadline_s: float | None = None) -> int:
        """Write a value; return its version. No reader gets an older one after this has returned.

        `freshness_ms` is how long copies may be served, 0: the producer's default. Raises ForbiddenError, NoAnswerError
        (the write may have happened nevertheless), or another StoreError.
        """
        self._check_server(name)
        return self._carry_out(writing(name, bytes(value), freshness_ms=freshness_ms), deadline_s)

    def record(self, name: str, value: bytes, *, version: int, deadline_s: float | None = None) -> None:
        """Write a value into switches that record the name; raise StaleError unless the version is newer there."""
        self._check_server(name)
        self._carry_out(recording(name, bytes(value), version=version), deadline_s)

    def _check_server(self, name: str) -> None:
        if self._is_by_name:
            raise StoreError(f"{name}: a write needs its producer's address: only reads find it by the name")

    def close(self) -> None:
        """Close the socket; idempotent."""
        self._socket.close()

    def _carry_out(self, dialogue: Dialogue[T], deadline_s: float | None) -> T:
        patience_s = self.deadline_s if deadline_s is None else _check_deadline(deadline_s)
        deadline_ns = self._clock.now_ns() + round(patience_s * NS_PER_S)
        with self._lock:
            try:
                step = next(dialogue)
                while True:
                    step = dialogue.send(self._answers(step, deadline_ns, patience_s))
            except StopIteration as end:
                result: T = end.value
                return result

    def _answers(self, step: Step, deadline_ns: int, patience_s: float) -> list[Message]:
        requests, start_ns = Requests(step.questions, self._pace), self._clock.now_ns() + step.pause_ns
        while not requests.is_done:
            now_ns = self._clock.now_ns()
            if now_ns >= deadline_ns:
                raise self._too_late(step, requests, patience_s)
            until_ns = start_ns
            if now_ns >= start_ns:
                for question in requests.due(now_ns):
                    self._send(question)
                until_ns = requests.next_ns()
            self._receive(requests, min(until_ns, deadline_ns) - self._clock.now_ns())
        self.repeated += requests.repeated
        return [answer for answer in requests.answers if answer is not None]

    def _send(self, message: Message) -> None:
        try:
            if self._is_by_name:
                self._socket.sendto(message.encode(), (self.server, self.port))
            else:
                self._socket.send(message.encode())
            self._nobody = False
        except ConnectionRefusedError:
            self._nobody = True  # an error for an earlier packet; a server may still start
        except OSError as error:
            raise StoreError(f"{self.server}:{self.port}: {error.strerror or error}") from error

    def _receive(self, requests: Requests, wait_ns: int) -> None:
        """Receive pending packets, after waiting for the first."""
        try:
            self._socket.settimeout(max(wait_ns, 1000) / NS_PER_S)
            while True:
                data = self._socket.recv(MOST_BYTES)
                try:
                    requests.receive(decode(data), self._clock.now_ns())
                except WireError:
                    continue
                if requests.is_done:
                    return
                self._socket.settimeout(0)
        except (TimeoutError, BlockingIOError):
            return
        except ConnectionRefusedError:
            self._nobody = True
        except OSError as error:
            raise StoreError(f"{self.server}:{self.port}: {error.strerror or error}") from error

    def _too_late(self, step: Step, requests: Requests, patience_s: float) -> NoAnswerError:
        missing = sum(answer is None for answer in requests.answers)
        count = f" ({missing} of {len(requests.answers)} are missing)" if len(requests.answers) > 1 else ""
        nobody = ": no server listens there" if self._nobody else ""
        where = f"{self.server}:{self.port}"
        return NoAnswerError(f"{step.purpose} did not arrive from {where} within {patience_s:g} s{count}{nobody}")


def _check_deadline(deadline_s: float) -> float:
    """Return a deadline; raise StoreError for an invalid one."""
    if not 0 < deadline_s <= _LONGEST_S:
        raise StoreError(f"deadline {deadline_s} s: is not above 0 and at most {_LONGEST_S:.0f} s")
    return deadline_s
