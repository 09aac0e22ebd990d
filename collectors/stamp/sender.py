"""STAMP's session senders, in the event loop: a probe of every session each interval, answers by their number."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collectors.collector import Collector
from collectors.counters import Count
from collectors.errors import CollectorError
from collectors.stamp.links import StampLinks, Trip
from collectors.stamp.settings import StampSessionSettings, StampSettings
from dataplane.clock import NS_PER_S, Clock
from dataplane.errors import WireError
from dataplane.given import read_given
from dataplane.topology.values import Topology
from dataplane.wire import stamp

LOGGER: Final = logging.getLogger("millrace.collector")
_LONGEST: Final = 2048
_KEY_BYTES: Final = 4096
_SEQUENCES: Final = 1 << 32
_TIMESPEC: Final = struct.Struct("@ll")
SO_TIMESTAMPNS: Final = 35
"""The kernel's time of a datagram's arrival (asm-generic/socket.h), which Python's socket has no name for."""


@dataclass(slots=True, eq=False)
class _Session:
    """A connected socket, the probe that is out, and its outcome."""

    settings: StampSessionSettings
    socket: socket.socket
    key: bytes | None
    asked: stamp.Request | None = None
    trip: Trip | None = None
    silent: bool = False


class StampSender:
    """Probes until cancelled; raises CollectorError for paths, addresses and keys that are of no use."""

    def __init__(
        self,
        collector: Collector,
        topology: Topology,
        settings: StampSettings,
        clock: Clock,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._links = StampLinks(topology, settings)
        self._settings, self._clock, self._wall_ns, self._counters = settings, clock, wall_ns, collector.counters
        self._sessions: list[_Session] = []
        try:
            for number, session in enumerate(settings.sessions):
                self._sessions.append(_opened(session, settings.address, f"stamp.sessions[{number}]"))
        except CollectorError:
            self.close()
            raise
        self._round = 0
        collector.complete_by(self._links.complete)

    def __str__(self) -> str:
        count = len(self._sessions)
        return f"STAMP to {count} reflector{'s' if count != 1 else ''}"

    def close(self) -> None:
        """Close the sockets."""
        for session in self._sessions:
            session.socket.close()

    async def run(self) -> None:
        """Probe until cancelled."""
        loop = asyncio.get_running_loop()
        for session in self._sessions:
            loop.add_reader(session.socket, self._take, session)
        try:
            while True:
                self._ask()
                await self._answers()
                self._links.take([session.trip for session in self._sessions], self._clock.now_ns())
        finally:
            for session in self._sessions:
                loop.remove_reader(session.socket)
            self.close()

    def _ask(self) -> None:
        self._round = (self._round + 1) % _SEQUENCES
        for session in self._sessions:
            session.trip, session.asked = None, stamp.Request.at(self._round, self._wall_ns())
            try:
                session.socket.send(session.asked.encode(session.key))
            except OSError:  # a reflector that refused the last probe, or no route: an answer missing says the same
                continue

    async def _answers(self) -> None:
        """Wait for the interval, and beyond it for answers until they are late."""
        interval_s, timeout_s = self._settings.interval_ns / NS_PER_S, self._settings.timeout_ns / NS_PER_S
        await asyncio.sleep(interval_s)
        waited_s = interval_s
        while waited_s < timeout_s and any(session.trip is None and not session.silent for session in self._sessions):
            await asyncio.sleep(interval_s)
            waited_s += interval_s
        for session in self._sessions:
            self._counters[Count.STAMP_PROBES] += 1
            is_silent = session.trip is None
            self._counters[Count.STAMP_UNANSWERED] += is_silent
            if is_silent != session.silent:
                session.silent = is_silent
                said = "does not answer" if is_silent else "answers again"
                LOGGER.warning("STAMP reflector %s %s", session.settings.address, said)

    def _take(self, session: _Session) -> None:
        """Take an answer that came in."""
        try:
            data, ancillary, _, _ = session.socket.recvmsg(_LONGEST, socket.CMSG_SPACE(_TIMESPEC.size))
        except OSError:  # such as a refusal of the last probe by the reflector's host
            return
        arrived_ns = arrival_ns(ancillary) or self._wall_ns()
        try:
            answer = stamp.decode_answer(data, session.key)
        except WireError:
            self._counters[Count.STAMP_MALFORMED] += 1
            return
        # The time that the answer repeats cannot be guessed by who did not see the probe.
        if session.asked is None or answer.request != session.asked or session.trip is not None:
            self._counters[Count.STAMP_LATE] += 1
            return
        session.trip = _trip(session.asked.sent_ns, answer, arrived_ns, session.settings)


def _trip(sent_ns: int, answer: stamp.Answer, arrived_ns: int, settings: StampSessionSettings) -> Trip | None:
    """Return a probe's trip, None if a clock was set meanwhile."""
    if settings.synchronised_clocks:
        there_ns, back_ns = answer.received_ns - sent_ns, arrived_ns - answer.sent_ns
    else:
        both_ns = (arrived_ns - sent_ns) - (answer.sent_ns - answer.received_ns)
        there_ns, back_ns = both_ns // 2, both_ns // 2
    return Trip(there_ns, back_ns) if there_ns >= 0 and back_ns >= 0 else None


def arrival_ns(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    """Return when the kernel received a datagram, in ns since 1970; None if it does not say."""
    for level, kind, value in ancillary:
        if level == socket.SOL_SOCKET and kind == SO_TIMESTAMPNS and len(value) >= _TIMESPEC.size:
            seconds, more_ns = _TIMESPEC.unpack_from(value)
            return int(seconds * NS_PER_S + more_ns)
    return None


def opened_socket(host: str, key: str) -> socket.socket:
    """Return a UDP socket of an address's family that notes times of arrival; raise CollectorError for no address."""
    try:
        family = socket.AF_INET6 if ipaddress.ip_address(host).version == 6 else socket.AF_INET
    except ValueError:
        raise CollectorError(f"{key}: {host!r} is not an IP address") from None
    made = socket.socket(family, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    return made


def host_and_port(address: str, key: str) -> tuple[str, int]:
    """Return an address's host and port, STAMP's if it has none; raise CollectorError, which names `key`."""
    host, colon, port = address.rpartition(":")
    if not colon or (":" in host and not address.startswith("[")):
        return address.strip("[]"), stamp.UDP_PORT
    if not (port.isascii() and port.isdigit() and int(port) < 1 << 16):
        raise CollectorError(f"{key}: {address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def read_key(file: str | None) -> bytes | None:
    """Return the key in a file, without white space around it; raise CollectorError if it cannot be read."""
    if file is None:
        return None
    try:
        key = read_given(file, _KEY_BYTES).strip()
    except OSError as error:
        raise CollectorError(f"{file}: {error.strerror or error}") from error
    if not key:
        raise CollectorError(f"{file}: it holds no key")
    return key


def _opened(settings: StampSessionSettings, local: str | None, key: str) -> _Session:
    host, port = host_and_port(settings.address, f"{key}.address")
    secret = read_key(settings.key_file)
    made = opened_socket(host, f"{key}.address")
    try:
        if local is not None:
            made.bind((local, 0))
        made.connect((host, port))  # the kernel passes on what comes from there alone
    except OSError as error:
        made.close()
        raise CollectorError(f"{key}.address: cannot send to {settings.address}: {error.strerror or error}") from error
    return _Session(settings, made, secret)
