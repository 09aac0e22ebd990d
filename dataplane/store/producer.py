"""A producer on a host: a thread that answers over UDP, and content that can be replaced from here."""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from dataplane.clock import Clock, UtcClock
from dataplane.closing import Closing
from dataplane.errors import WireError
from dataplane.store.content_database import ContentDatabase
from dataplane.store.errors import NoAnswerError, StoreError
from dataplane.store.producer_core import ProducerCore, ProducerSettings, Source
from dataplane.store.sockets import MOST_BYTES, address_of, open_socket
from dataplane.wire.store import UDP_PORT, Message, decode

LOGGER = logging.getLogger("millrace.store")

_NS: Final = 1_000_000_000
_AT_ONCE: Final = 256
"""Packets that are answered together: one write to the disk for all of them."""
_TIDY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Question:
    """A packet and who sent it."""

    sender: tuple[str, int]
    message: Message


class Producer(Closing):
    """Serves the content in a state file (`:memory:` is forgotten) until it is closed.

    `address` is what clients send to. `writers` are the hosts that may write, None: all. Content is in memory as well.
    Raises StoreError for a file that another producer has open, and for an address that cannot be had.
    """

    def __init__(
        self,
        path: str,
        *,
        address: str = "0.0.0.0",  # noqa: S104 - a server
        port: int = UDP_PORT,
        writers: Collection[str] | None = None,
        freshness_ms: int = 1000,
        clock: Clock | None = None,
    ) -> None:
        self._clock = clock or UtcClock()
        allowed = None if writers is None else frozenset(int(IPv4Address(address_of(writer))) for writer in writers)
        self._database = ContentDatabase(path)
        self._lock = threading.Lock()
        self._failure: StoreError | None = None
        try:
            self._core = ProducerCore(self._database, ProducerSettings(freshness_ms, allowed), self._clock.now_ns())
            self._socket = open_socket((address_of(address), port))
        except BaseException:
            self._database.close()
            raise
        self._socket.setblocking(False)
        self._woken, self._waker = socket.socketpair()
        self._thread = threading.Thread(target=self._serve, name="millrace-producer", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        """The address and UDP port that it answers at."""
        host, port = self._socket.getsockname()
        return str(host), int(port)

    @property
    def counters(self) -> Mapping[str, int]:
        """What became of packets since the start: answered, written, repeated, recorded, staged, refused, malformed."""
        with self._lock:
            return dict(self._core.counters)

    def publish(self, name: str, value: bytes, *, freshness_ms: int | None = None) -> int:
        """Replace a value from here; return its version, when it is on the disk.

        Who writes from here does not write through the network: copies of the version before may be given out for as
        long as they are fresh. `settle` waits for that; a client's `put` needs no such wait.
        """
        with self._lock:
            self.check()
            version = self._core.publish(name, bytes(value), self._clock.now_ns(), freshness_ms=freshness_ms)
            self._database.commit()
            announcement = self._core.announcement(name)
        if announcement is not None:
            self._answer(_sender(announcement[0]), announcement[1])
        return version

    def settle(self, name: str, *, deadline_s: float = 60.0) -> None:
        """Return when no older version of a name is served any more; NoAnswerError if that takes longer."""
        with self._lock:
            wait_s = (self._core.settled_ns(name) - self._clock.now_ns()) / _NS
        if wait_s > deadline_s:
            raise NoAnswerError(f"{name}: copies of older versions are fresh for {wait_s:.1f} s, not {deadline_s:g} s")
        if wait_s > 0:
            time.sleep(wait_s)

    def read(self, name: str) -> bytes:
        """Return a value as it is here; raise AbsentError where there is none."""
        with self._lock:
            self.check()
            return self._core.read(name, self._clock.now_ns())

    def check(self) -> None:
        """Raise StoreError if it has stopped by itself, for the reason in the error."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """Stop answering; calling it again does nothing."""
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
            try:
                while not any(key.fileobj is self._woken for key, _ in selector.select(_TIDY_S)):
                    self._answer_all()
            except StoreError as error:
                # Nothing is answered that is not on the disk: clients see their deadlines, calls here see this.
                with self._lock:
                    self._failure = error
                LOGGER.critical("the producer stops: %s", error)

    def _answer_all(self) -> None:
        """Answer what has come; a write is on the disk before it is answered."""
        questions = self._questions()
        answers = []
        with self._lock:
            now_ns = self._clock.now_ns()
            for question in questions:
                answer = self._core.receive(_source(question.sender), question.message, now_ns)
                if answer is not None:
                    answers.append((question.sender, answer))
            self._core.tidy(now_ns)
            self._database.commit()
        for sender, answer in answers:
            self._answer(sender, answer)

    def _questions(self) -> list[_Question]:
        found: list[_Question] = []
        while len(found) < _AT_ONCE:
            try:
                data, sender = self._socket.recvfrom(MOST_BYTES)
                found.append(_Question(sender, decode(data)))
            except BlockingIOError:
                break
            except WireError:
                self._core.counters["malformed"] += 1
            except OSError:
                continue  # of an answer to a client that has gone
        return found

    def _answer(self, sender: tuple[str, int], message: Message) -> None:
        try:
            self._socket.sendto(message.encode(), sender)
        except OSError as error:
            LOGGER.debug("no answer to %s: %s", sender[0], error)


def _source(sender: tuple[str, int]) -> Source:
    return int(IPv4Address(sender[0])), sender[1]


def _sender(source: Source) -> tuple[str, int]:
    return str(IPv4Address(source[0])), source[1]
