"""A STAMP session reflector (RFC 8762, section 4.3): answers each probe at the same length, and forgets it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Final

from collectors.errors import CollectorError
from collectors.stamp.sender import arrival_ns, opened_socket
from dataplane.errors import WireError
from dataplane.event_loop.readable import whenever_readable
from dataplane.wire import stamp

_LONGEST: Final = 2048
_TURN: Final = 64
_SPACE: Final = 2 * socket.CMSG_SPACE(16)
_UNKNOWN_TTL: Final = 255
_IP_RECVTTL: Final = 12
"""The number in linux/in.h; Python's socket has no name for it."""


class Reflector:
    """Answers at an address until cancelled; raises CollectorError if nothing can listen there.

    With a key it answers only to packets that are signed with it.
    """

    def __init__(self, host: str, port: int, key: bytes | None, wall_ns: Callable[[], int] = time.time_ns) -> None:
        self._key, self._wall_ns = key, wall_ns
        self._socket = opened_socket(host, "address")
        if self._socket.family is socket.AF_INET:
            self._socket.setsockopt(socket.IPPROTO_IP, _IP_RECVTTL, 1)
        try:
            self._socket.bind((host, port))
        except OSError as error:
            self._socket.close()
            raise CollectorError(f"cannot reflect at {host}:{port}: {error.strerror or error}") from error
        self.answered = self.refused = 0

    @property
    def port(self) -> int:
        """The UDP port that answers."""
        port: int = self._socket.getsockname()[1]
        return port

    async def run(self) -> None:
        """Answer until cancelled, then close the socket."""
        try:
            await whenever_readable(self._socket, self._drain)
        finally:
            self._socket.close()

    def _drain(self) -> None:
        for _ in range(_TURN):
            if not self._answer():
                return

    def _answer(self) -> bool:
        """Answer one packet; return whether there was one."""
        try:
            data, ancillary, _, sender = self._socket.recvmsg(_LONGEST, _SPACE)
        except BlockingIOError:
            return False
        received_ns = arrival_ns(ancillary) or self._wall_ns()
        try:
            request = stamp.decode_request(data, self._key)
        except WireError:
            self.refused += 1
            return True
        answer = stamp.Answer(request.sequence, received_ns, self._wall_ns(), request, _ttl(ancillary))
        packet = answer.encode(self._key)
        try:
            self._socket.sendto(packet + bytes(max(0, len(data) - len(packet))), sender)
        except OSError:  # a full queue, or a sender that cannot be reached: as if the packet were lost
            return True
        self.answered += 1
        return True


def _ttl(ancillary: list[tuple[int, int, bytes]]) -> int:
    for level, kind, value in ancillary:
        if level == socket.IPPROTO_IP and kind == socket.IP_TTL and value:
            return int.from_bytes(value[:4], "little") & 0xFF
    return _UNKNOWN_TTL
