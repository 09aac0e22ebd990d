"""Received part of a stream: in order, or waiting for missing data before it (RFC 9293, RFC 2018); no clock."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from operator import itemgetter


@dataclass(slots=True)
class Reassembly:
    """Accepts pieces in any order; `position` is the first missing one."""

    position: int
    blocks: list[tuple[int, int]] = field(default_factory=list)
    """Ranges beyond `position`, merged, most recent first: the SACK blocks."""
    _pieces: list[tuple[int, bytes]] = field(default_factory=list)
    """Sorted by position, without overlaps."""

    def take(self, start: int, data: bytes) -> bytes:
        """Accept a piece; return the data that is newly in order."""
        end = start + len(data)
        if end <= self.position:
            return b""
        if start < self.position:
            start, data = self.position, data[self.position - start :]
        if start > self.position:
            self._keep(start, data)
            return b""
        in_order = [data]
        self.position = end
        self._join(in_order)
        self.blocks = [block for block in self.blocks if block[1] > self.position]
        return b"".join(in_order)

    def _join(self, in_order: list[bytes]) -> None:
        """Append the waiting pieces that are now in order."""
        done = 0
        for start, data in self._pieces:
            if start > self.position:
                break
            done += 1
            fresh = data[self.position - start :]
            if fresh:
                in_order.append(fresh)
                self.position += len(fresh)
        del self._pieces[:done]

    def _keep(self, start: int, data: bytes) -> None:
        end = start + len(data)
        position = start
        index = max(0, bisect_left(self._pieces, position, key=itemgetter(0)) - 1)
        while position < end:
            # The preceding piece may reach beyond it; the following one ends the gap.
            while index < len(self._pieces) and end_of(self._pieces[index]) <= position:
                index += 1
            if index < len(self._pieces) and self._pieces[index][0] <= position:
                position = end_of(self._pieces[index])
                continue
            stop = min(end, self._pieces[index][0]) if index < len(self._pieces) else end
            self._pieces.insert(index, (position, data[position - start : stop - start]))
            position = stop
        apart = [block for block in self.blocks if block[1] < start or block[0] > end]
        touched = [block for block in self.blocks if block not in apart]
        joined = (min([start, *(block[0] for block in touched)]), max([end, *(block[1] for block in touched)]))
        self.blocks = [joined, *apart]


def end_of(piece: tuple[int, bytes]) -> int:
    """Return the position after a piece."""
    return piece[0] + len(piece[1])
