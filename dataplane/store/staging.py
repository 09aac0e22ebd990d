"""Blocks of long values that belong to no value: some are still missing, or a newer value has replaced them.

They are in memory only, for half a minute after the last one arrived, and bounded: when full, evict the oldest value of
the largest writer.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from dataplane.store.content_database import SEGMENT_COST

_GRACE_NS: Final = 30_000_000_000
"""Time for which blocks are kept, for their writer to continue, or for current readers."""


@dataclass(slots=True)
class Staged:
    """Blocks of one hash by segment, the sender of the first, and the arrival time of the last."""

    writer: int
    since_ns: int
    blocks: dict[int, bytes] = field(default_factory=dict)
    nbytes: int = 0
    length: int | None = None
    """Length of their value, once verified by its hash."""


class Staging:
    """All staged blocks, by their expected hash, as made by `key_of`."""

    def __init__(self, most_values: int, most_bytes: int) -> None:
        self._most_values, self._most_bytes = most_values, most_bytes
        self.nbytes = 0
        """Total size of the blocks."""
        self._staged: dict[bytes, Staged] = {}
        self._bytes: Counter[int] = Counter()
        self._values: Counter[int] = Counter()

    def __len__(self) -> int:
        """Return the number of values with blocks."""
        return len(self._staged)

    def get(self, number: bytes) -> Staged | None:
        """Return the blocks of a hash."""
        return self._staged.get(number)

    def put(self, number: bytes, segment: int, block: bytes, writer: int, now_ns: int) -> bool:
        """Keep a block; return whether there is room for this many of one value."""
        staged = self._staged.get(number)
        before = None if staged is None else staged.blocks.get(segment)
        more = len(block) - len(before) if before is not None else len(block) + SEGMENT_COST
        if (0 if staged is None else staged.nbytes) + more > self._most_bytes:
            return False
        while self.nbytes + more > self._most_bytes:
            self._drop_one(self._bytes, spare=number)
        if staged is None:
            while len(self._staged) >= self._most_values:
                self._drop_one(self._values)
            staged = self._staged[number] = Staged(writer, now_ns)
            self._values[writer] += 1
        if before != block:
            staged.blocks[segment], staged.length = block, None
        staged.nbytes += more
        self.nbytes += more
        self._bytes[staged.writer] += more
        staged.since_ns = now_ns
        return True

    def remove(self, number: bytes) -> None:
        """Drop the blocks of a hash."""
        staged = self._staged.pop(number, None)
        if staged is not None:
            self.nbytes -= staged.nbytes
            self._bytes[staged.writer] -= staged.nbytes
            self._values[staged.writer] -= 1
            if not self._values[staged.writer]:
                del self._bytes[staged.writer], self._values[staged.writer]

    def tidy(self, now_ns: int) -> None:
        """Drop values that have expired."""
        for number in [number for number, staged in self._staged.items() if now_ns - staged.since_ns > _GRACE_NS]:
            self.remove(number)

    def _drop_one(self, shares: Counter[int], spare: bytes | None = None) -> None:
        """Evict the oldest value of the writer that uses most of the scarce resource."""
        for writer, _ in shares.most_common():
            for number, staged in self._staged.items():
                if staged.writer == writer and number != spare:
                    self.remove(number)
                    return
