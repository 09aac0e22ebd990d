"""Pull protocol of two hosts over TCP: the handshake, and the side that serves the bytes.

The server sends a nonce of 16 bytes; the client answers with a request (bytes, seed, and a number made of its inputs)
and HMAC-SHA256 of nonce and request under a shared secret. A client without the secret gets nothing but the nonce; an
overheard answer is of no use with another nonce. Then blocks follow, each stamped with its number.

As a process, the server reads its secret from standard input, and exits when that ends: no server outlives its client.
"""

from __future__ import annotations

import hmac
import os
import random
import secrets
import socket
import struct
import sys
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

BLOCK: Final = 1 << 20
NONCE_BYTES: Final = 16
SECRET_BYTES: Final = 32
_EDGE: Final = 4096
_REQUEST: Final = struct.Struct("!QQQ")
_DIGEST: Final = "sha256"
_DIGEST_BYTES: Final = 32
ANSWER_BYTES: Final = _REQUEST.size + _DIGEST_BYTES


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server: connections at a time, bytes per connection, and seconds of waiting and in all."""

    connections: int = 256
    most_bytes: int = 64 << 30
    handshake_s: float = 5.0
    silence_s: float = 10.0
    for_s: float = 600.0


@dataclass(slots=True)
class Counters:
    """Connections by outcome."""

    served: int = 0
    refused: int = 0
    too_many: int = 0
    broken: int = 0
    sent_bytes: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def count(self, name: str, by: int = 1) -> None:
        """Add to a counter."""
        with self.lock:
            setattr(self, name, getattr(self, name) + by)


def content_of(seed: int) -> bytes:
    """Return a block's bytes after its stamp, which client and server each compute."""
    return random.Random(seed).randbytes(BLOCK)


def stamp_of(block: int, number: int) -> bytes:
    """Return the beginning of a block: its place, and the number made of the client's inputs."""
    return (block << 32 | number & 0xFFFFFFFF).to_bytes(8, "big")


def ends_of(block: memoryview) -> int:
    """Return a checksum of a block's first and last bytes: one of all would take as long as a fast network does."""
    return zlib.crc32(block[-_EDGE:], zlib.crc32(block[:_EDGE]))


def blocks_of(nbytes: int) -> Iterator[tuple[int, int]]:
    """Yield the blocks' places and sizes."""
    for start in range(0, nbytes, BLOCK):
        yield start // BLOCK, min(BLOCK, nbytes - start)


def answer(secret: bytes, nonce: bytes, nbytes: int, seed: int, number: int) -> bytes:
    """Return a client's answer to a nonce."""
    request = _REQUEST.pack(nbytes, seed, number)
    return request + hmac.digest(secret, nonce + request, _DIGEST)


def serve(listening: socket.socket, secret: bytes, limits: Limits, stop: threading.Event, counters: Counters) -> None:
    """Serve every client that knows the secret, until `stop` or the limits' end; close all connections then."""
    ends_s = time.monotonic() + limits.for_s
    listening.settimeout(0.2)
    places = threading.BoundedSemaphore(limits.connections)
    while not stop.is_set() and time.monotonic() < ends_s:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        if not places.acquire(blocking=False):
            counters.count("too_many")
            connection.close()
            continue
        arguments = (connection, secret, limits, ends_s, counters, places)
        threading.Thread(target=_served, args=arguments, daemon=True).start()
    listening.close()


def _served(  # noqa: PLR0917 - what one connection has to do with
    connection: socket.socket,
    secret: bytes,
    limits: Limits,
    ends_s: float,
    counters: Counters,
    places: threading.BoundedSemaphore,
) -> None:
    try:
        with connection:
            try:
                asked = _admitted(connection, secret, limits)
                if asked is None:
                    counters.count("refused")
                    return
                counters.count("served")
                _send(connection, *asked, limits, ends_s, counters)
            finally:
                places.release()  # before the peer sees the close: it may reconnect at once
    except OSError:
        counters.count("broken")


def _admitted(connection: socket.socket, secret: bytes, limits: Limits) -> tuple[int, int, int] | None:
    """Return a client's request, None if it does not know the secret or wants too much."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    connection.settimeout(limits.handshake_s)
    connection.sendall(nonce)
    received = exactly(connection, ANSWER_BYTES, time.monotonic() + limits.handshake_s)
    request, digest = received[: _REQUEST.size], received[_REQUEST.size :]
    if not hmac.compare_digest(digest, hmac.digest(secret, nonce + request, _DIGEST)):
        return None
    nbytes, seed, number = _REQUEST.unpack(request)
    return (nbytes, seed, number) if nbytes <= limits.most_bytes else None


def _send(  # noqa: PLR0917 - what was asked for, and how
    connection: socket.socket, nbytes: int, seed: int, number: int, limits: Limits, ends_s: float, counters: Counters
) -> None:
    connection.settimeout(limits.silence_s)
    buffer = bytearray(content_of(seed))
    view = memoryview(buffer)
    for block, size in blocks_of(nbytes):
        if time.monotonic() > ends_s:
            raise TimeoutError
        buffer[:8] = stamp_of(block, number)
        connection.sendall(view[:size])
        counters.count("sent_bytes", size)


def exactly(connection: socket.socket, nbytes: int, ends_s: float) -> bytes:
    """Return exactly this many bytes; raise OSError if the connection ends before, or misses a deadline."""
    buffer = bytearray(nbytes)
    receive_into(connection, memoryview(buffer), ends_s)
    return bytes(buffer)


def receive_into(connection: socket.socket, view: memoryview, ends_s: float) -> None:
    """Fill a buffer; raise OSError if the connection ends before, or misses a deadline."""
    while view:
        if time.monotonic() > ends_s:
            raise TimeoutError("too slow")
        got = connection.recv_into(view)
        if got == 0:
            raise ConnectionError("the connection ended early")
        view = view[got:]


def main() -> None:
    """Serve on the socket with descriptor argv[1], for argv[2] seconds; read the secret from standard input."""
    secret = os.read(0, SECRET_BYTES)
    stop = threading.Event()

    def watch() -> None:
        while os.read(0, 1024):
            continue
        stop.set()

    threading.Thread(target=watch, daemon=True).start()
    with socket.socket(fileno=int(sys.argv[1])) as listening:
        serve(listening, secret, Limits(for_s=float(sys.argv[2])), stop, Counters())


if __name__ == "__main__":
    main()
