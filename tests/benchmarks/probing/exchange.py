"""An all-reduce between two workers over TCP: each sends its values and adds what the other sends (recursive doubling).

`Exchange` is the caller's end, `serve` the worker's at the other end, which takes part in all all-reduces of whoever
connects.
"""

from __future__ import annotations

import select
import socket
import struct
import sys
import threading
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

PEER: Final = "BENCH_PEER"
"""Environment variable with the other worker's HOST:PORT."""
FEATURES: Final = 352
GRADIENT_BYTES: Final = FEATURES * FEATURES * 4
"""Size of the gradient that each worker adds up in a step."""
_HEADER: Final = struct.Struct("!Q")
_PATIENCE_S: Final = 30.0
_MOST_BYTES: Final = 1 << 26
Values = NDArray[np.float32]


class Exchange:
    """A connection to the other worker, for all-reduces of equal size."""

    def __init__(self, peer: str, nbytes: int) -> None:
        host, _, port = peer.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(_HEADER.pack(nbytes))
        self._theirs = bytearray(nbytes)

    def swap(self, values: Values) -> Values:
        """Return the other worker's values, while it gets these."""
        _swap(self._socket, np.ascontiguousarray(values).data.cast("B"), memoryview(self._theirs))
        return np.frombuffer(self._theirs, np.float32).reshape(values.shape)

    def close(self) -> None:
        """Leave."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def serve(host: str, port: int) -> None:
    """Take part, until killed; prints a line once it can."""
    listening = socket.create_server((host, port))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        connection, _ = listening.accept()
        threading.Thread(target=_take_part, args=(connection,), daemon=True).start()


def _take_part(connection: socket.socket) -> None:
    with connection:
        connection.settimeout(_PATIENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        (nbytes,) = _HEADER.unpack(connection.recv(_HEADER.size, socket.MSG_WAITALL))
        if nbytes > _MOST_BYTES or nbytes % 4:
            return
        ours = np.ones(nbytes // 4, np.float32).data.cast("B")
        theirs = memoryview(bytearray(nbytes))
        while connection.recv(1, socket.MSG_PEEK):  # the other worker has begun, or is gone
            _swap(connection, ours, theirs)


def _swap(connection: socket.socket, out: memoryview, into: memoryview) -> None:
    """Send one and receive the other at the same time."""
    connection.setblocking(False)
    sent = received = 0
    try:
        while sent < len(out) or received < len(into):
            writable = [connection] if sent < len(out) else []
            readable, writable, _ = select.select([connection], writable, [], _PATIENCE_S)
            if not readable and not writable:
                raise TimeoutError(f"the other worker has said nothing for {_PATIENCE_S:g} s")
            if writable:
                sent += connection.send(out[sent:])
            if readable and received < len(into):
                count = connection.recv_into(into[received:])
                if not count:
                    raise ConnectionError("the other worker is gone")
                received += count
    finally:
        connection.settimeout(_PATIENCE_S)


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
