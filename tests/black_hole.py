"""A TCP proxy that can stop forwarding with everything open: a machine that lost its power, a cable that was cut."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class BlackHole:
    """Forwards connections to a port of this machine until `swallow`; use it as a context manager."""

    def __init__(self, port: int) -> None:
        self._there = port
        self._here = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        self._ends: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, name="black hole", daemon=True)

    @property
    def address(self) -> str:
        """Address that clients connect to."""
        return f"127.0.0.1:{self._here.getsockname()[1]}"

    def swallow(self) -> None:
        """Let nothing through any more, in either direction, with all connections open."""
        self._open.clear()

    def restore(self) -> None:
        """Forward again; what was swallowed is gone, so connections that carried something break."""
        self._open.set()

    def __enter__(self) -> BlackHole:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for end in (self._here, *self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._thread.join()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._here.accept()[0]
                far = socket.create_connection(("127.0.0.1", self._there))
                self._ends += [near, far]
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=(source, sink), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self._open.is_set():
                    sink.sendall(data)
            if self._open.is_set():
                sink.shutdown(socket.SHUT_WR)
