"""A mergeable sketch of delays: counts in a fixed set of buckets, which give any percentile approximately.

Below 128 each number has its own bucket; above, each power of two is cut into 64. A percentile is the middle of
its bucket: at most 1 part in 128 (0.8 %) off, the greatest exact. Two sketches add up to the sketch of both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

SUB_BITS: Final = 6
"""A power of two is cut into 2**SUB_BITS buckets."""

EXACT_BELOW: Final = 2 << SUB_BITS
"""Smaller numbers have a bucket each."""

GREATEST_BITS: Final = 35
"""Numbers of more bits, 34 s and more as nanoseconds, share the last bucket; only the greatest of them is exact."""

BUCKETS: Final = (GREATEST_BITS - SUB_BITS + 1) << SUB_BITS


def bucket_of(number: int) -> int:
    """Return the bucket that a number, 0 or more, falls into."""
    if number < EXACT_BELOW:
        return number
    shift = number.bit_length() - 1 - SUB_BITS
    return min((shift << SUB_BITS) + (number >> shift), BUCKETS - 1)


def middle_of(bucket: int) -> int:
    """Return the number in the middle of a bucket."""
    if bucket < EXACT_BELOW:
        return bucket
    shift = (bucket >> SUB_BITS) - 1
    return ((bucket - (shift << SUB_BITS)) << shift) + (1 << shift - 1)


@dataclass(slots=True)
class Sketch:
    """Counts by bucket, with the exact number, sum, minimum and maximum of the values added."""

    count: int = 0
    total: int = 0
    least: int = 0
    greatest: int = 0
    buckets: Counter[int] = field(default_factory=Counter)

    def add(self, number: int) -> None:
        """Take one number, 0 or more."""
        self.least = min(self.least, number) if self.count else number
        self.greatest = max(self.greatest, number)
        self.count += 1
        self.total += number
        self.buckets[bucket_of(number)] += 1

    def merge(self, other: Sketch) -> None:
        """Take all that another sketch has taken."""
        if not other.count:
            return
        self.least = min(self.least, other.least) if self.count else other.least
        self.greatest = max(self.greatest, other.greatest)
        self.count += other.count
        self.total += other.total
        self.buckets.update(other.buckets)

    def remove(self, part: Sketch, rest: Iterable[Sketch]) -> None:
        """Remove a sketch that was added; `rest` are the other ones added, whose sum this is."""
        self.count -= part.count
        self.total -= part.total
        for bucket, count in part.buckets.items():
            self.buckets[bucket] -= count
            if not self.buckets[bucket]:
                del self.buckets[bucket]
        others = [other for other in rest if other.count]
        self.least = min((other.least for other in others), default=0)
        self.greatest = max((other.greatest for other in others), default=0)

    @property
    def mean(self) -> int | None:
        """The exact mean, rounded down; None of nothing."""
        return self.total // self.count if self.count else None

    def quantile(self, share: float) -> int | None:
        """Return the number of nearest rank, to one part in 128, None of nothing; `share` to four decimals."""
        # Round up in integers: a product with a float share may end just above a whole number.
        rank = max(-(-round(share * 10_000) * self.count // 10_000), 1)
        if not self.count:
            return None
        if rank >= self.count:
            return self.greatest
        below = 0
        for bucket in sorted(self.buckets):
            below += self.buckets[bucket]
            if below >= rank:
                # A bucket's middle may lie outside the range of the values.
                return min(max(middle_of(bucket), self.least), self.greatest)
        return self.greatest

    def to_bytes(self) -> bytes:
        """Return the sketch as MessagePack."""
        pairs = sorted(self.buckets.items())
        return msgspec.msgpack.encode((self.count, self.total, self.least, self.greatest, pairs))


def from_bytes(data: bytes) -> Sketch:
    """Return a sketch from its bytes; raise msgspec.DecodeError for invalid bytes."""
    kind = tuple[int, int, int, int, list[tuple[int, int]]]
    count, total, least, greatest, pairs = msgspec.msgpack.decode(data, type=kind)
    return Sketch(count, total, least, greatest, Counter(dict(pairs)))
