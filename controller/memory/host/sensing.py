"""Sensors of a tier: latency of small accesses and rates of whole blocks, measured at start and in use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import TYPE_CHECKING, Final

from dataplane.clock import NS_PER_S

if TYPE_CHECKING:
    from controller.memory.host.tiers import Slots

_RECENT: Final = 1 / 32
"""Weight of the newest block in the mean."""
_ROUNDS: Final = 16


class Sensor:
    """Figures of a tier; whole numbers that concurrent readers may see one block late."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        self._clock_ns = clock_ns
        self.read_ns = self.write_ns = self.samples = 0
        self._read_block_ns = self._write_block_ns = 0.0
        self._block_bytes = 0

    @contextmanager
    def reading(self, nbytes: int) -> Iterator[None]:
        """Time a read of a block."""
        begin_ns = self._clock_ns()
        yield
        self._read_block_ns = self._mean(self._read_block_ns, self._clock_ns() - begin_ns, nbytes)

    @contextmanager
    def writing(self, nbytes: int) -> Iterator[None]:
        """Time a write of a block."""
        begin_ns = self._clock_ns()
        yield
        self._write_block_ns = self._mean(self._write_block_ns, self._clock_ns() - begin_ns, nbytes)

    def measure(self, slots: Slots, slot: int, block_bytes: int) -> None:
        """Measure in a slot that nobody uses: the median of small reads, and of whole writes and reads."""
        content = bytes(block_bytes)
        writes, reads, parts = [], [], []
        for _ in range(_ROUNDS):
            writes.append(self._timed(lambda: slots.write(slot, content)))
            reads.append(self._timed(lambda: slots.read(slot)))
            parts.append(self._timed(lambda: slots.read_part(slot)))
        self._block_bytes = block_bytes
        self.read_ns = round(median(parts))
        # Files write whole blocks only: what a small write would take is what remains without the transfer.
        write_ns, read_ns = median(writes), median(reads)
        self.write_ns = max(round(write_ns - (read_ns - self.read_ns)), 1)
        self._read_block_ns = self._read_block_ns or read_ns
        self._write_block_ns = self._write_block_ns or write_ns

    @property
    def read_bps(self) -> int:
        """Bits per second of reading blocks, recently; 0 if unknown."""
        return self._rate(self._read_block_ns)

    @property
    def write_bps(self) -> int:
        """Bits per second of writing blocks, recently; 0 if unknown."""
        return self._rate(self._write_block_ns)

    def _rate(self, block_ns: float) -> int:
        return round(8 * self._block_bytes * NS_PER_S / block_ns) if block_ns else 0

    def _timed(self, work: Callable[[], object]) -> int:
        begin_ns = self._clock_ns()
        work()
        return max(self._clock_ns() - begin_ns, 1)

    def _mean(self, mean_ns: float, sample_ns: int, nbytes: int) -> float:
        self._block_bytes = nbytes
        self.samples += 1
        return max(sample_ns, 1) if not mean_ns else mean_ns + _RECENT * (sample_ns - mean_ns)
