"""Handle interrupts in commands that can stop early and keep their results."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupted(Exception):  # noqa: N818 - it is no error
    """An interrupt came where it was to break off what is waited for."""


class Stop:
    """Interrupt flag: call it to test whether an interrupt arrived; `status` is the exit status to use then."""

    def __init__(self) -> None:
        self._number = 0
        self._breaks = False

    def __call__(self) -> bool:
        """Return whether to stop."""
        return bool(self._number)

    @property
    def status(self) -> int:
        """As a shell has it: 130 for Ctrl-C, 143 for SIGTERM."""
        return 128 + self._number

    def ask(self, number: int) -> None:
        """Take the first signal; by the second one, end."""
        is_second, self._number = bool(self._number), number
        if is_second and number == signal.SIGINT:
            raise KeyboardInterrupt
        if is_second:
            sys.exit(self.status)

    def break_off(self) -> None:
        """Raise Interrupted where that is wanted."""
        if self._breaks:
            raise Interrupted

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Have the first interrupt raise Interrupted here."""
        self._breaks = True
        try:
            yield
        finally:
            self._breaks = False


@contextmanager
def stopping(say: str) -> Iterator[Stop]:
    """Yield what tells that SIGINT or SIGTERM came, to which `say` is the answer; the second one ends at once."""
    stop = Stop()

    def take(number: int, _: FrameType | None) -> None:
        stop.ask(number)
        # Not by the streams of Python, which may be at a line themselves.
        os.write(2, f"{say}\n".encode())
        stop.break_off()

    before: dict[int, Callable[[int, FrameType | None], object] | int | None] = {
        number: signal.signal(number, take) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
