"""A producer on a host: a thread that answers over UDP, and content that can be replaced locally."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from dataplane.clock import NS_PER_S, Clock, UtcClock
from dataplane.closing import Closing
from dataplane.errors import WireError
from dataplane.store.content_database import ContentDatabase
from dataplane.store.errors import NoAnswerError, StoreError
from dataplane.store.names import prefix_of
from dataplane.store.producer_core import ProducerCore, ProducerSettings, Quotas
from dataplane.store.proofs import Source
from dataplane.store.sockets import address_of, open_socket, receive
from dataplane.wire.store import NAMES_ADDRESS, UDP_PORT, Kind, Message, decode

LOGGER = logging.getLogger("millrace.store")

_AT_ONCE: Final = 256
"""Packets processed together, of any kind: one disk write covers all of their writes."""
_TIDY_S: Final = 1.0
_MOST_FAILURES: Final = 10
"""Consecutive socket failures, with a wait between, before the socket counts as broken."""
_FAILURE_WAIT_S: Final = 0.1
LOOPBACK: Final = "127.0.0.1"
ANNOUNCED_S: Final = 0.5
"""Interval of announcements, each of one prefix."""


@dataclass(frozen=True, slots=True)
class _Question:
    """A packet and its sender."""

    sender: tuple[str, int]
    message: Message


class Producer(Closing):
    """Serves the content of a state file (`:memory:` is not kept) until it is closed.

    `address` is the address that clients send to. `writers` are the hosts that may write, `anyone` admits all that
    reach it; on loopback that is the default, elsewhere one of the two is required. `announced` are prefixes of its
    names, such as `/model`: readers find these without its address. Content is in memory as well. When the disk is full
    it continues to serve readers, and refuses writes. Raises StoreError for a file that another producer has open, for
    an address that cannot be bound, and for a prefix that is none.
    """

    def __init__(
        self,
        path: str,
        *,
        address: str = LOOPBACK,
        port: int = UDP_PORT,
        writers: Collection[str] | None = None,
        anyone: bool = False,
        freshness_ms: int = 1000,
        announced: Sequence[str] = (),
        quotas: Quotas | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or UtcClock()
        self._announcements = [
            Message(Kind.ANNOUNCE, prefix_of(prefix).number, number=number) for number, prefix in enumerate(announced)
        ]
        settings = ProducerSettings(freshness_ms, _allowed(address, writers, anyone=anyone), quotas or Quotas())
        self._database = ContentDatabase(path)
        self._lock = threading.Lock()
        self._failure: StoreError | None = None
        self._problem = ""
        self._failures = 0
        try:
            self._core = ProducerCore(self._database, settings, self._clock.now_ns())
            self._socket = open_socket((address_of(address), port))
        except BaseException:
            self._database.close()
            raise
        self._socket.setblocking(False)
        self._address: tuple[str, int] = self._socket.getsockname()
        self._woken, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="millrace-producer", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """The address and UDP port that it serves."""
        return self._address

    @property
    def counters(self) -> Mapping[str, int]:
        """Outcomes of packets since the start, by their names in docs/training/store.md."""
        with self._lock:
            return dict(self._core.counters)

    def publish(self, name: str, value: bytes, *, freshness_ms: int | None = None) -> int:
        """Replace a value locally; return its version, once it is on disk.

        Local writes bypass the network: copies of the previous version may be served for as long as they are fresh.
        `settle` waits for that; a client's `put` needs no such wait.
        """
        with self._lock:
            self.check()
            try:
                version = self._core.publish(name, bytes(value), self._clock.now_ns(), freshness_ms=freshness_ms)
                self._database.commit()
            except StoreError:
                self._database.rollback()
                raise
            announcement = self._core.announcement(name)
        if announcement is not None:
            self._answer(_sender(announcement[0]), announcement[1])
        return version

    def settle(self, name: str, *, deadline_s: float = 60.0) -> None:
        """Wait until no older version of a name is served any more; NoAnswerError if that takes longer."""
        with self._lock:
            wait_s = (self._core.settled_ns(name) - self._clock.now_ns()) / NS_PER_S
        if wait_s > deadline_s:
            raise NoAnswerError(f"{name}: copies of older versions are fresh for {wait_s:.1f} s, not {deadline_s:g} s")
        if wait_s > 0:
            time.sleep(wait_s)

    def read(self, name: str) -> bytes:
        """Return a value from local state; raise AbsentError if there is none."""
        with self._lock:
            self.check()
            return self._core.read(name, self._clock.now_ns())

    def check(self) -> None:
        """Raise StoreError with the reason if it has stopped unexpectedly."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop answering; idempotent."""
        if self._thread.is_alive():
            self._waker.send(b"\0")
            self._thread.join()
        for opened in (self._socket, self._woken, self._waker):
            opened.close()
        self._database.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._socket, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            announced_ns = 0
            try:
                while not any(key.fileobj is self._woken for key, _ in selector.select(self._wait_s())):
                    self._answer_all()
                    if self._announcements and self._clock.now_ns() >= announced_ns:
                        announced_ns = self._clock.now_ns() + round(ANNOUNCED_S * NS_PER_S)
                        self._announce()
            except StoreError as error:
                # Answers need the disk: clients run into their deadlines, local calls see this error.
                with self._lock:
                    self._failure = error
                LOGGER.critical("the producer stops: %s", error)

    def _wait_s(self) -> float:
        return min(_TIDY_S, ANNOUNCED_S) if self._announcements else _TIDY_S

    def _announce(self) -> None:
        """Announce one prefix, a different one each time: a switch takes few at once."""
        announcement = self._announcements.pop(0)
        self._announcements.append(announcement)
        self._answer((NAMES_ADDRESS, UDP_PORT), announcement)

    def _answer_all(self) -> None:
        """Answer pending packets; a write is on disk before it is answered."""
        questions = self._questions()
        with self._lock:
            answers = self._answers(questions, self._clock.now_ns())
        for sender, answer in answers:
            self._answer(sender, answer)

    def _answers(self, questions: Sequence[_Question], now_ns: int) -> list[tuple[tuple[str, int], Message]]:
        """Return the answers and their recipients; when the disk is full, only those that write nothing."""
        counters = self._core.counters.copy()
        try:
            answers = self._received(questions, now_ns, writable=True)
            self._core.tidy(now_ns)
            if self._database.commit():
                self._problem = ""
        except StoreError as error:
            self._database.rollback()
            self._core.counters = counters
            if str(error) != self._problem:
                LOGGER.warning("%s: writes are refused, content is served as it was", error)
            self._problem = str(error)
            return self._received(questions, now_ns, writable=False)
        return answers

    def _received(
        self, questions: Sequence[_Question], now_ns: int, *, writable: bool
    ) -> list[tuple[tuple[str, int], Message]]:
        answers = []
        for question in questions:
            source = _source(question.sender)
            answer = self._core.receive(source, question.message, now_ns, writable=writable)
            if answer is not None:
                answers.append((question.sender, answer))
        return answers

    def _questions(self) -> list[_Question]:
        """Return pending packets, at most a batch; raise StoreError when the socket has failed repeatedly."""
        questions: list[_Question] = []
        try:
            for data, sender in receive(self._socket, _AT_ONCE):
                self._failures = 0
                try:
                    questions.append(_Question(sender, decode(data)))
                except WireError:
                    self._core.counters["malformed"] += 1
        except OSError as error:
            self._note_failure(error)
        return questions

    def _note_failure(self, error: OSError) -> None:
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            where = "{}:{}".format(*self._address)
            raise StoreError(f"{where}: cannot receive: {error.strerror or error}") from error
        time.sleep(_FAILURE_WAIT_S)

    def _answer(self, sender: tuple[str, int], message: Message) -> None:
        try:
            self._socket.sendto(message.encode(), sender)
        except OSError as error:
            LOGGER.debug("no answer to %s: %s", sender[0], error)


def is_loopback(address: str) -> bool:
    """Return whether only this host reaches an address; raise StoreError for an invalid one."""
    return IPv4Address(address_of(address)).is_loopback


def _allowed(address: str, writers: Collection[str] | None, *, anyone: bool) -> frozenset[int] | None:
    """Return the addresses that may write, None: all; raise StoreError if unspecified for a reachable address."""
    if writers is not None and anyone:
        raise StoreError("both writers and anyone are given: choose one")
    if writers is not None:
        return frozenset(int(IPv4Address(address_of(writer))) for writer in writers)
    if not anyone and not is_loopback(address):
        raise StoreError(f"{address} is not loopback: set the hosts that may write (writers), or anyone")
    return None


def _source(sender: tuple[str, int]) -> Source:
    return int(IPv4Address(sender[0])), sender[1]


def _sender(source: Source) -> tuple[str, int]:
    return str(IPv4Address(source[0])), source[1]
