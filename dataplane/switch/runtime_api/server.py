"""Listens for clients of the runtime API: on loopback, one thread per connection, connections and messages bounded."""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.protocol.TProtocol import TProtocolException
from thrift.transport.TTransport import TTransportBase, TTransportException

from dataplane.errors import SwitchError
from dataplane.switch.runtime_api.calls import Handlers, answer

LOGGER = logging.getLogger("millrace.switch.thrift")
HOST: Final = "127.0.0.1"
"""Nothing is encrypted or authenticated; bmv2 listens on every interface."""

NO_CALL: Final = (TProtocolException, TTransportException, OSError, UnicodeDecodeError, RecursionError)
"""Errors that the library raises for invalid calls and closed connections."""

_RECEIVE_BYTES: Final = 1 << 16
_KEEPALIVE_S: Final = 5


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """Limits on clients."""

    connections: int = 32
    """Maximum concurrent connections; another is closed at once."""
    message_bytes: int = 32 << 20
    """Size of a call; programs are loaded by calls."""
    items: int = 1 << 17
    """Length of a list."""
    message_s: float = 30.0
    """Time to complete a call that has begun, including delivery of its response."""
    first_s: float = 10.0
    """Time to a connection's first call; between calls it may be silent, as shells are."""


class ApiServer:
    """Serves the runtime API on a loopback TCP port, 0 for any; use it as a context manager.

    Raises SwitchError if the port is not available.
    """

    def __init__(self, handlers: Handlers, port: int, limits: ApiLimits | None = None) -> None:
        self._handlers, self._limits = handlers, limits or ApiLimits()
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        try:
            self._listener = socket.create_server((HOST, port), backlog=16)
        except (OSError, OverflowError) as error:
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            problem = "is taken" if taken else str(error)
            raise SwitchError(f"--thrift-port {port}: {HOST}:{port} {problem}") from error
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="thrift", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        with self._lock:
            left = list(self._connections)
        for connection in left:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed, or no descriptor is left for the moment
                if self._listener.fileno() < 0 or not self._is_listening():
                    return
                time.sleep(0.1)
                continue
            with self._lock:
                full = len(self._connections) >= self._limits.connections
                if not full:
                    self._connections.add(connection)
            if full:
                LOGGER.warning("a connection was refused: %d are open", self._limits.connections)
                connection.close()
            else:
                threading.Thread(target=self._serve, args=(connection,), name="thrift-call", daemon=True).start()

    def _is_listening(self) -> bool:
        with suppress(OSError):
            return bool(self._listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
        return False

    def _serve(self, connection: socket.socket) -> None:
        transport = Connection(connection, self._limits)
        protocol = TBinaryProtocol(
            transport, string_length_limit=self._limits.message_bytes, container_length_limit=self._limits.items
        )
        try:
            while transport.begin():
                answer(protocol, self._handlers)
        except NO_CALL as error:
            LOGGER.info("a connection ended: %s", error)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()


class Connection(TTransportBase):  # type: ignore[misc]  # the library has no types
    """A socket as the library reads and writes it, with limits on each message."""

    def __init__(self, connection: socket.socket, limits: ApiLimits) -> None:
        self._socket, self._limits = connection, limits
        self._input = b""
        self._place = 0
        self._left = 0
        self._until_s = 0.0
        self._output: list[bytes] = []
        self._wait_s: float | None = limits.first_s
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_S)

    def begin(self) -> bool:
        """Wait for a message to begin; return False at the end of the connection."""
        if self._place == len(self._input):
            self._socket.settimeout(self._wait_s)
            self._input, self._place = self._socket.recv(_RECEIVE_BYTES), 0
        self._wait_s = None
        self._left = self._limits.message_bytes
        self._until_s = time.monotonic() + self._limits.message_s
        return bool(self._input)

    def isOpen(self) -> bool:  # noqa: N802 - the library's name
        """Return True: it is created open."""
        return True

    def read(self, size: int) -> bytes:
        """Return at most that many bytes of the message; raise TTransportException past a limit or the end."""
        if size > self._left:
            raise TTransportException(TTransportException.SIZE_LIMIT, "the message is too long")
        if self._place == len(self._input):
            self._socket.settimeout(max(self._until_s - time.monotonic(), 0.001))
            self._input, self._place = self._socket.recv(_RECEIVE_BYTES), 0
            if not self._input:
                raise TTransportException(TTransportException.END_OF_FILE, "the connection ended within a message")
        data = self._input[self._place : self._place + size]
        self._place += len(data)
        self._left -= len(data)
        return data

    def write(self, data: bytes) -> None:
        """Buffer data for `flush`."""
        self._output.append(data)

    def flush(self) -> None:
        """Send the response."""
        data, self._output = b"".join(self._output), []
        self._socket.settimeout(self._limits.message_s)
        self._socket.sendall(data)
