"""The user's terminal: raw during a command, its input and size as frames."""

from __future__ import annotations

import os
import select
import shutil
import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType
from typing import Final, Self

from controller.apiserver.client.sessions import KEEP_ALIVE_S
from controller.apiserver.sessions.frames import KEEP_ALIVE, Frame, Stream, resize_frame
from controller.apiserver.sessions.values import TerminalSize

_AT_ONCE: Final = 4096
_RESIZED: Final = b"r"
_CLOSED: Final = b"c"


def size() -> TerminalSize:
    """Return the size of the terminal."""
    dimensions = shutil.get_terminal_size()
    return TerminalSize(rows=max(dimensions.lines, 1), columns=max(dimensions.columns, 1))


@contextmanager
def raw(descriptor: int) -> Iterator[None]:
    """Make a terminal pass on every key, Ctrl-C included, while the context lasts."""
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Input:
    """Standard input and terminal resizes as frames; one other thread reads `frames`, and closing wakes it."""

    def __init__(self, descriptor: int, *, resizes: bool) -> None:
        self._descriptor, self._resizes = descriptor, resizes
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self.is_closed = False

    def __enter__(self) -> Self:
        if self._resizes:
            signal.signal(signal.SIGWINCH, self._resized)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._resizes:
            signal.signal(signal.SIGWINCH, signal.SIG_DFL)
        self.close()

    def close(self) -> None:
        """End `frames`."""
        self.is_closed = True
        # A full pipe wakes the reader anyway, and `is_closed` is set.
        with suppress(BlockingIOError):
            os.write(self._wake_writer, _CLOSED)

    def frames(self) -> Iterator[Frame]:
        """Yield input, resizes and keep-alives until closed; the input's end is a frame."""
        is_open = True
        while not self.is_closed:
            watched = [self._wake_reader, *([self._descriptor] if is_open else [])]
            ready = select.select(watched, [], [], KEEP_ALIVE_S)[0]
            if not ready:
                yield KEEP_ALIVE
            if self._wake_reader in ready and _RESIZED in os.read(self._wake_reader, _AT_ONCE):
                yield resize_frame(size())
            if self._descriptor in ready and not self.is_closed:
                data = os.read(self._descriptor, _AT_ONCE)
                is_open = bool(data)
                yield Frame(Stream.STDIN, data) if data else Frame(Stream.END_OF_INPUT)

    def _resized(self, _: int, __: FrameType | None) -> None:
        with suppress(BlockingIOError):  # already reported
            os.write(self._wake_writer, _RESIZED)
