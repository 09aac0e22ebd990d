"""A listening nanomsg PAIR socket: the scalability protocols over TCP and over UNIX sockets.

Both sides begin with eight bytes: zero, "SP", zero, the protocol's number (16 is PAIR), two zeros. A message is its
length in eight bytes, most significant first, and its bytes; over a UNIX socket a byte 1 precedes the length (nanomsg's
rfc/sp-tcp-mapping-01 and rfc/sp-ipc-mapping-01).
"""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Final

from dataplane.errors import PortError
from dataplane.rpc.addresses import is_loopback, is_plain, target_of, unavailable

GREETING: Final = struct.pack(">BBBBHH", 0, ord("S"), ord("P"), 0, 16, 0)
LONGEST_MESSAGE: Final = 1 << 16
_LENGTH: Final = struct.Struct(">Q")
_IPC, _TCP = "ipc://", "tcp://"
_IPC_MARK: Final = b"\x01"
_MOST_WAITING: Final = 8 << 20
"""Maximum bytes waiting for a peer that does not read."""
_AT_ONCE: Final = 1 << 16


class PairListener:
    """Listens for one peer at a time, non-blocking, on a selector whose data are callbacks.

    `take` is called with each message. Raises PortError if it cannot listen.
    """

    def __init__(self, address: str, selector: selectors.BaseSelector, take: Callable[[bytes], None]) -> None:
        self._selector, self._take = selector, take
        self._path, self._socket = _listen(address)
        self._socket.setblocking(False)
        self._mark = b"" if self._path is None else _IPC_MARK
        self._peer: socket.socket | None = None
        self._came, self._waiting = bytearray(), bytearray()
        self._greeted = False
        selector.register(self._socket, selectors.EVENT_READ, self._accept)

    def send(self, message: bytes) -> bool:
        """Send a message, as soon as the peer reads; return False if there is none, or too much is waiting for it."""
        if self._peer is None or len(self._waiting) > _MOST_WAITING:
            return False
        self._waiting += self._mark + _LENGTH.pack(len(message)) + message
        self._flush()
        return True

    def close(self) -> None:
        """Close all sockets."""
        self._leave()
        self._selector.unregister(self._socket)
        self._socket.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        try:
            peer, _ = self._socket.accept()
        except OSError:  # it is already gone
            return
        if self._peer is not None and self._greeted:  # a PAIR socket has one peer
            peer.close()
            return
        self._leave()  # a silent connection must not block others
        peer.setblocking(False)
        self._peer, self._greeted = peer, False
        self._came.clear()
        self._waiting[:] = GREETING
        self._selector.register(peer, selectors.EVENT_READ, self._serve)
        self._flush()

    def _serve(self) -> None:
        peer = self._peer
        if peer is None:
            return
        try:
            data = peer.recv(_AT_ONCE)
        except BlockingIOError:
            data = None
        except OSError:
            data = b""
        if data == b"":
            self._leave()
            return
        self._came += data or b""
        if not self._read():
            self._leave()
        self._flush()

    def _read(self) -> bool:
        """Take complete messages; return False if the peer speaks another protocol."""
        if not self._greeted:
            if len(self._came) < len(GREETING):
                return True
            if self._came[: len(GREETING)] != GREETING:
                return False
            self._greeted = True
            del self._came[: len(GREETING)]
        head = len(self._mark) + _LENGTH.size
        while len(self._came) >= head:
            (length,) = _LENGTH.unpack_from(self._came, len(self._mark))
            if self._came[: len(self._mark)] != self._mark or length > LONGEST_MESSAGE:
                return False
            if len(self._came) < head + length:
                break
            message = bytes(self._came[head : head + length])
            del self._came[: head + length]
            self._take(message)
        return True

    def _flush(self) -> None:
        if self._peer is None:
            return
        try:
            while self._waiting:
                del self._waiting[: self._peer.send(self._waiting)]
        except BlockingIOError:
            pass
        except OSError:
            self._leave()
            return
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._waiting else 0)
        self._selector.modify(self._peer, events, self._serve)

    def _leave(self) -> None:
        peer, self._peer = self._peer, None
        if peer is not None:
            self._selector.unregister(peer)
            peer.close()


def _listen(address: str) -> tuple[Path | None, socket.socket]:
    """Return the path of a UNIX socket, None for TCP, and the socket."""
    target = target_of(address)
    if not target.startswith((_IPC, _TCP)):
        raise PortError(f"--packet-in {address}: is neither ipc://PATH nor tcp://HOST:PORT")
    endpoint = target[len(_IPC) :]
    is_path = target.startswith(_IPC)
    if not is_path and not is_plain(address) and not is_loopback(endpoint):
        raise PortError(
            f"--packet-in {address}: is not loopback, and anyone who connects can inject packets; if that is"
            f" intended, call it plain:{address}"
        )
    problem = unavailable(f"unix:{endpoint}" if is_path else endpoint.replace("*", "0.0.0.0"))  # noqa: S104 - "*" is nanomsg's
    if problem is not None:
        raise PortError(f"--packet-in {address}: {problem}")
    try:
        if is_path:
            path = Path(endpoint)
            path.unlink(missing_ok=True)
            listening = socket.socket(socket.AF_UNIX)
            listening.bind(endpoint)
            path.chmod(0o600)  # before any peer can connect
            listening.listen()
            return path, listening
        host, _, port = endpoint.rpartition(":")
        return None, socket.create_server(("" if host == "*" else host.strip("[]"), int(port)))
    except OSError as error:
        raise PortError(f"--packet-in {address}: {error.strerror}") from error
