"""Proxies to job backends that tests can close."""

from __future__ import annotations

import select
import socket
import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dataplane.closing import Closing
from tests.free_ports import free_ports


class Door(Closing):
    """A proxy endpoint; while closed, it refuses connections."""

    def __init__(self) -> None:
        self._listener: socket.socket | None = None
        self.open()

    def open(self) -> None:
        """Accept connections."""
        listener = self._listener = self._listen()
        threading.Thread(target=self._serve, args=(listener,), daemon=True).start()

    def close(self) -> None:
        """Refuse connections."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()

    @contextmanager
    def shut(self) -> Iterator[None]:
        """Refuse connections for a while."""
        self.close()
        try:
            yield
        finally:
            self.open()

    @abstractmethod
    def _listen(self) -> socket.socket: ...

    @abstractmethod
    def _carry(self, inside: socket.socket) -> None: ...

    def _serve(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._carry, args=(listener.accept()[0],), daemon=True).start()


class PortDoor(Door):
    """A proxy from one loopback port to another."""

    def __init__(self, port: int) -> None:
        self._target, self.port = port, free_ports(1)[0]
        super().__init__()

    def _listen(self) -> socket.socket:
        return socket.create_server(("127.0.0.1", self.port))

    def _carry(self, inside: socket.socket) -> None:
        """Forward data both ways until one side ends."""
        with inside, suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as outside:
            others = {inside: outside, outside: inside}
            while True:
                for source in select.select(list(others), [], [])[0]:
                    if not (data := source.recv(1 << 16)):
                        return
                    others[source].sendall(data)


class UnixDoor(Door):
    """A proxy from one UNIX socket to another, which can also be silent."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self._target, self.is_silent = path, target, False
        self._inside: list[socket.socket] = []
        super().__init__()

    def close(self) -> None:
        """Refuse connections, and end open ones."""
        super().close()
        self.path.unlink(missing_ok=True)
        for inside in self._inside:
            with suppress(OSError):
                inside.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.path))
        listener.listen(16)
        return listener

    def _carry(self, inside: socket.socket) -> None:
        """Forward data both ways unless silent."""
        self._inside.append(inside)
        with inside, socket.socket(socket.AF_UNIX) as outside, suppress(OSError):
            outside.connect(str(self._target))
            back = threading.Thread(target=_copy, args=(outside, inside), daemon=True)
            back.start()
            while (data := inside.recv(1 << 16)) and not self.is_silent:
                outside.sendall(data)
            while self.is_silent and inside.recv(1 << 16):
                pass
            outside.shutdown(socket.SHUT_RDWR)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)
