"""Tables that driver threads read without locks: replaced by one store, freed once no thread can still be reading.

Each driver thread has an epoch, a number that is odd while the thread may hold what it read from such a word. Whoever
replaces a word records the epochs afterwards: a thread whose epoch was even, or has changed since, has moved on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from dataplane.native import Array, fence, kernel, kernel_library, store_release, u64

Epoch = Callable[[], int]


@kernel
def exchange_word(word: Array[u64], value: u64) -> None:
    """Store an address that other threads load, ordered before anything that follows."""
    store_release(word[0], value)
    fence()


@functools.cache
def _exchange_word() -> Callable[..., None]:
    return kernel_library(exchange_word).bind(exchange_word)


class EpochReclamation:
    """Replaced objects that may still be in use; not locked: used by one thread at a time."""

    def __init__(self, epochs: Sequence[Epoch] = ()) -> None:
        self._epochs = tuple(epochs)
        self._waiting: list[tuple[list[tuple[Epoch, int]], Callable[[], None]]] = []

    def follow(self, epochs: Sequence[Epoch]) -> None:
        """Follow these threads from now on, and no others: those have ended."""
        self._epochs = tuple(epochs)

    def publish(self, word: Array[int], value: int) -> None:
        """Replace the address that a word holds."""
        _exchange_word()(word, value)

    def when_unused(self, then: Callable[[], None]) -> None:
        """Call a function, in a later `collect`, once no thread uses what was replaced before this call.

        Whatever the function references lives that long.
        """
        self._waiting.append(([(epoch, epoch()) for epoch in self._epochs], then))

    def collect(self) -> int:
        """Call the functions that are due, in order; return how many remain."""
        ripe: list[Callable[[], None]] = []
        while self._waiting and self._have_passed(self._waiting[0][0]):
            ripe.append(self._waiting.pop(0)[1])
        for then in ripe:
            then()
        return len(self._waiting)

    def finish(self) -> None:
        """Call all functions: the threads have ended."""
        self._epochs = ()
        self.collect()

    def _have_passed(self, noted: Sequence[tuple[Epoch, int]]) -> bool:
        return all(then % 2 == 0 or epoch not in self._epochs or epoch() != then for epoch, then in noted)
