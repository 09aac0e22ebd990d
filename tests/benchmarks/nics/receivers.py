"""Receivers under test: what counts the frames that come out of the cable, on threads that can be measured."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.nics.cable import Cable
from tests.benchmarks.nics.generator import STAMP_OFFSET, Generator
from tests.benchmarks.nics.kernels import Tally
from tests.benchmarks.nics.usage import pin, thread_ids

Latencies = NDArray[np.uint32]

_MOST_TIMED = 1 << 20


@dataclass(frozen=True, slots=True)
class Wakes:
    """Counters of a driver: waits ended by the device, and all wake-ups, other waits and polling pauses included."""

    interrupts: int
    wakeups: int

    def since(self, before: Wakes) -> Wakes:
        """Return what happened after `before`."""
        return Wakes(self.interrupts - before.interrupts, self.wakeups - before.wakeups)


class Receiver(Protocol):
    """Frames out of the cable, counted in tallies; threads on which that is done."""

    @property
    def tallies(self) -> Sequence[TallySheet]:
        """One for each consumer."""
        ...

    @property
    def threads(self) -> frozenset[int]:
        """The kernel's ids of all threads that take part."""
        ...

    def read_wakes(self) -> Wakes | None:
        """Return the driver's statistics, None where there is none."""
        ...


class TallySheet:
    """A `Tally` and the memory that it writes latencies to."""

    def __init__(self) -> None:
        self.memory = np.zeros(_MOST_TIMED, np.uint32)
        self.tally = Tally(stamp_offset=STAMP_OFFSET, latencies=self.memory.ctypes.data, capacity=_MOST_TIMED)

    def latencies_ns(self, first: int) -> Latencies:
        """Return the latencies noted from the `first` one on."""
        return self.memory[first : self.tally.timed]


class Open(Protocol):
    """Opens a receiver at the cable's end with this many queues; the generator can wake it."""

    def __call__(self, cable: Cable, queues: int, generator: Generator) -> AbstractContextManager[Receiver]:
        """Receive while the `with` block lasts."""
        ...


class Consumers:
    """Pinned threads that each run a function until stopped, and their ids."""

    def __init__(self, bodies: Sequence[Callable[[], object]]) -> None:
        before = thread_ids()
        self._threads = [threading.Thread(target=body, name="consumer") for body in bodies]
        for thread in self._threads:
            thread.start()
        self.threads = frozenset(thread.native_id or 0 for thread in self._threads) - before
        pin(self.threads)

    @property
    def are_alive(self) -> bool:
        """True while any still runs."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self, timeout_s: float) -> None:
        """Wait for each of them at most this long."""
        for thread in self._threads:
            thread.join(timeout_s)
