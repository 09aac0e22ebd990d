"""Blocks of long values that are no value's: not yet, as some are missing, or not any more, as others replaced it.

They are in memory only, for half a minute after the last one came, and bounded: where there is no room, who has most
loses what has waited longest.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from dataplane.store.content_database import SEGMENT_COST

_GRACE_NS: Final = 30_000_000_000
"""How long blocks are kept, for their writer to go on, or for those who are reading them."""


@dataclass(slots=True)
class Staged:
    """Blocks of one hash by segment, who sent the first of them, and when one came last."""

    writer: int
    since_ns: int
    blocks: dict[int, bytes] = field(default_factory=dict)
    nbytes: int = 0
    length: int | None = None
    """How long the value is that they have been found to be, by its hash."""


class Staging:
    """All staged blocks, by the hash that they are to have, as `key_of` makes it."""

    def __init__(self, most_values: int, most_bytes: int) -> None:
        self._most_values, self._most_bytes = most_values, most_bytes
        self.nbytes = 0
        """What all of it takes."""
        self._staged: dict[bytes, Staged] = {}
        self._bytes: Counter[int] = Counter()
        self._values: Counter[int] = Counter()

    def __len__(self) -> int:
        """Return of how many values there are blocks."""
        return len(self._staged)

    def get(self, number: bytes) -> Staged | None:
        """Return the blocks of a hash."""
        return self._staged.get(number)

    def put(self, number: bytes, segment: int, block: bytes, writer: int, now_ns: int) -> bool:
        """Keep a block; return whether there is room for so many of one value."""
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
        """Keep the blocks of a hash no more."""
        staged = self._staged.pop(number, None)
        if staged is not None:
            self.nbytes -= staged.nbytes
            self._bytes[staged.writer] -= staged.nbytes
            self._values[staged.writer] -= 1
            if not self._values[staged.writer]:
                del self._bytes[staged.writer], self._values[staged.writer]

    def tidy(self, now_ns: int) -> None:
        """Forget what nobody has gone on with."""
        for number in [number for number, one in self._staged.items() if now_ns - one.since_ns > _GRACE_NS]:
            self.remove(number)

    def _drop_one(self, shares: Counter[int], spare: bytes | None = None) -> None:
        """Remove the oldest value of the writer who has most of what is short."""
        for writer, _ in shares.most_common():
            for number, staged in self._staged.items():
                if staged.writer == writer and number != spare:
                    self.remove(number)
                    return
