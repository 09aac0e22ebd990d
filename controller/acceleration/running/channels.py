"""Mutually authenticated connections between workers and the client that runs a statement on them.

The accepting end sends a nonce of 16 bytes, the connecting end its own nonce and HMAC-SHA256 of both under the secret,
then the accepting end proves itself the same way. Each frame after that is

    length      4 bytes, big-endian
    tag        32 bytes: HMAC-SHA256 of the frame's number, length and body, by a key of connection and direction
    body       a message in JSON, or a piece of a table

so that an attacker in between can read everything, but cannot insert, drop, repeat or reorder frames. A table follows
the message that states its length; one longer than the receiver's limit is refused before it is read.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from controller.acceleration.running.errors import RunError
from dataplane.rpc.own_folder import prepare

SECRET_BYTES: Final = 32
_NONCE_BYTES: Final = 16
_TAG_BYTES: Final = 32
_HEADER: Final = struct.Struct("!I")
_NUMBER: Final = struct.Struct("!QI")
_MOST_WORDS: Final = 1 << 20
"""Maximum bytes of a message without its table."""
_PIECE: Final = 4 << 20
"""Maximum bytes of a table in one frame."""
_HANDSHAKE_S: Final = 5.0
_UNIX: Final = "unix:"

Message = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one end of a connection.

    `most_table_bytes` is for one table, `most_held_bytes` for everything that a worker holds for others at a time,
    `silence_s` how long the other end may be silent when data is due.
    """

    most_table_bytes: int = 1 << 30
    most_held_bytes: int = 4 << 30
    silence_s: float = 30.0
    connections: int = 256


class Channel:
    """An authenticated connection; raises OSError if it breaks, RunError for protocol violations."""

    def __init__(self, connection: socket.socket, secret: bytes, limits: Limits, *, is_listener: bool) -> None:
        self._socket, self._limits = connection, limits
        self._sent = self._received = 0
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        session = self._introduce(secret, is_listener=is_listener)
        ours, theirs = (b"listener", b"caller") if is_listener else (b"caller", b"listener")
        self._out_key = hmac.digest(session, ours, "sha256")
        self._in_key = hmac.digest(session, theirs, "sha256")

    def send(self, message: Message, table: pa.Table | None = None) -> int:
        """Send a message, optionally with a table; return the table's bytes."""
        body = b"" if table is None else memoryview(_encoded(table))
        words = json.dumps(message | {"table_bytes": None if table is None else len(body)}).encode()
        self._frame(memoryview(words))
        for start in range(0, len(body), _PIECE):
            self._frame(memoryview(body)[start : start + _PIECE])
        return len(body)

    def receive(self, within_s: float, room_bytes: int | None = None) -> tuple[Message, pa.Table | None]:
        """Return the next message, which must begin within this time, with its table up to this size."""
        ends_s = time.monotonic() + within_s
        words = self._body(_MOST_WORDS, ends_s)
        ends_s = max(ends_s, time.monotonic() + self._limits.silence_s)
        try:
            message: Message = json.loads(bytes(words))
            nbytes = message.pop("table_bytes")
            if nbytes is not None and (not isinstance(nbytes, int) or nbytes < 0):
                raise ValueError
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise RunError("invalid message from the other end") from None
        if nbytes is None:
            return message, None
        most = min(self._limits.most_table_bytes, self._limits.most_held_bytes if room_bytes is None else room_bytes)
        if nbytes > most:
            raise RunError(f"a table of {nbytes} bytes refused: at most {most} allowed")
        return message, _decoded(self._table(nbytes))

    def close(self) -> None:
        """Close the connection; waiters at both ends are notified."""
        with suppress(OSError):  # the other end is already gone
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _introduce(self, secret: bytes, *, is_listener: bool) -> bytes:
        """Authenticate both ends to each other; return a session key."""
        ends_s = time.monotonic() + _HANDSHAKE_S
        ours = secrets.token_bytes(_NONCE_BYTES)
        self._socket.settimeout(_HANDSHAKE_S)
        if is_listener:
            self._socket.sendall(ours)
            theirs = bytes(self._exactly(_NONCE_BYTES, ends_s))
            self._check(secret, b"caller" + ours + theirs, ends_s)
            self._socket.sendall(hmac.digest(secret, b"listener" + ours + theirs, "sha256"))
            both = ours + theirs
        else:
            theirs = bytes(self._exactly(_NONCE_BYTES, ends_s))
            both = theirs + ours
            self._socket.sendall(ours + hmac.digest(secret, b"caller" + both, "sha256"))
            self._check(secret, b"listener" + both, ends_s)
        return hmac.digest(secret, b"session" + both, "sha256")

    def _check(self, secret: bytes, content: bytes, ends_s: float) -> None:
        try:
            tag = self._exactly(_TAG_BYTES, ends_s)
        except ConnectionError:
            raise RunError("the other end rejects our secret") from None
        if not hmac.compare_digest(bytes(tag), hmac.digest(secret, content, "sha256")):
            raise RunError("the other end does not know the secret")

    def _frame(self, body: memoryview) -> None:
        tag = _tag(self._out_key, self._sent, body)
        self._sent += 1
        self._socket.settimeout(self._limits.silence_s)
        self._socket.sendall(_HEADER.pack(len(body)) + tag)
        self._socket.sendall(body)

    def _table(self, nbytes: int) -> bytearray:
        """Return this many bytes, received in frames."""
        buffer = bytearray(nbytes)
        view, offset = memoryview(buffer), 0
        while offset < nbytes:
            piece = min(_PIECE, nbytes - offset)
            self._body(piece, time.monotonic() + self._limits.silence_s, view[offset : offset + piece])
            offset += piece
        return buffer

    def _body(self, most: int, ends_s: float, into: memoryview | None = None) -> memoryview:
        """Return a frame's body; with `into`, store it there, if it is of exactly that length."""
        head = self._exactly(_HEADER.size + _TAG_BYTES, ends_s)
        (length,) = _HEADER.unpack_from(head)
        if length > most or (into is not None and length != len(into)):
            raise RunError(f"a frame of {length} bytes refused: at most {most} allowed")
        body = memoryview(bytearray(length)) if into is None else into
        self._fill(body, max(ends_s, time.monotonic() + self._limits.silence_s))
        if not hmac.compare_digest(bytes(head[_HEADER.size :]), _tag(self._in_key, self._received, body)):
            raise RunError("a frame was altered on its way")
        self._received += 1
        return body

    def _exactly(self, nbytes: int, ends_s: float) -> bytearray:
        buffer = bytearray(nbytes)
        self._fill(memoryview(buffer), ends_s)
        return buffer

    def _fill(self, view: memoryview, ends_s: float) -> None:
        while view:
            remaining_s = ends_s - time.monotonic()
            if remaining_s <= 0:
                raise TimeoutError("timed out waiting for data")
            self._socket.settimeout(remaining_s)
            got = self._socket.recv_into(view)
            if got == 0:
                raise ConnectionError("the connection has ended")
            view = view[got:]


def connect(address: str, secret: bytes, limits: Limits, within_s: float = _HANDSHAKE_S) -> Channel:
    """Return a channel to a worker at HOST:PORT or unix:PATH; RunError names the address."""
    try:
        if address.startswith(_UNIX):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(within_s)
            connection.connect(address.removeprefix(_UNIX))
        else:
            connection = socket.create_connection(host_and_port(address), within_s)
    except OSError as error:
        raise RunError(f"worker {address}: {error.strerror or error}") from None
    try:
        return Channel(connection, secret, limits, is_listener=False)
    except (OSError, RunError) as error:
        connection.close()
        raise RunError(f"worker {address}: {getattr(error, 'strerror', None) or error}") from None


def listen(address: str, backlog: int) -> socket.socket:
    """Return a listening socket at HOST:PORT, or at unix:PATH in a folder that only its user can enter."""
    try:
        if not address.startswith(_UNIX):
            host, port = host_and_port(address, least_port=0)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            return socket.create_server((host, port), family=family, backlog=backlog)
        path = Path(address.removeprefix(_UNIX))
        if problem := prepare(path.parent):
            raise RunError(f"{address}: {problem}")
        if path.is_socket() and not _answers(path):
            path.unlink()  # left by a killed worker
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(backlog)
    except OSError as error:
        raise RunError(f"{address}: {error.strerror or error}") from None
    return listener


def _answers(path: Path) -> bool:
    """Return whether a process listens at a socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trying:
        try:
            trying.connect(str(path))
        except ConnectionRefusedError:
            return False
        return True


def host_and_port(address: str, least_port: int = 1) -> tuple[str, int]:
    """Return host and port of HOST:PORT; raise RunError if invalid."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and least_port <= int(port) < 1 << 16):
        raise RunError(f"{address!r} is neither HOST:PORT nor unix:PATH")
    return host.strip("[]"), int(port)


def _tag(key: bytes, number: int, body: memoryview) -> bytes:
    made = hmac.new(key, _NUMBER.pack(number, len(body)), sha256)
    made.update(body)
    return made.digest()


def _encoded(table: pa.Table) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _decoded(content: bytearray) -> pa.Table:
    try:
        return pa.ipc.open_stream(pa.py_buffer(content)).read_all()
    except pa.ArrowException as error:
        raise RunError(f"unreadable table: {str(error).splitlines()[0]}") from None
