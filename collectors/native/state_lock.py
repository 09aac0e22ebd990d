"""The lock of a collector's state: native code that receives holds it in short turns, Python for each access."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from types import TracebackType

from dataplane.native import kernel_library
from dataplane.native.locks import TicketLock, release_lock, take_lock


@functools.cache
def _calls() -> tuple[Callable[..., None], Callable[..., None]]:
    library = kernel_library(take_lock, release_lock)
    return library.bind(take_lock), library.bind(release_lock)


class StateLock:
    """A context manager; threads get the lock in the order in which they ask, and may take it again inside."""

    def __init__(self) -> None:
        self.native = TicketLock()
        """The same lock as kernels take it."""
        self._take, self._release = _calls()
        self._address = self.native.address
        self._owner = self._depth = 0

    def __enter__(self) -> None:
        """Wait for the lock, without the interpreter's."""
        thread = threading.get_ident()
        if self._owner != thread:
            self._take(self._address)
            self._owner = thread
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the lock."""
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
            self._release(self._address)

    def step_aside(self) -> None:
        """Yield the lock to all that wait for it; the caller holds it once, and holds it again afterwards."""
        if self._depth == 1 and self.native.drawn - self.native.served > 1:
            self.__exit__(None, None, None)
            self.__enter__()
