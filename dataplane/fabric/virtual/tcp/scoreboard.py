"""Unacknowledged data, arrived, lost or in flight (RFC 6675, RFC 8985); no clock.

Positions count the bytes of a stream from its SYN, unbounded. RACK (rack.py) detects losses; without it RFC 6675 does:
a segment is lost if three that were sent behind it, or more than two segments' worth, have arrived. A retransmission is
lost if data sent later than it by more than a quarter of a round trip has arrived.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from dataplane.fabric.virtual.tcp.rack import Rack, Sent

DUPLICATES: Final = 3
"""DupThresh."""


@dataclass(frozen=True, slots=True)
class Arrived:
    """Outcome of an acknowledgment: positions that arrived, and the age of the latest one that was sent once."""

    positions: int = 0
    rtt_ns: int | None = None


class Scoreboard:
    """Pieces in the order of their positions."""

    def __init__(self, mss_bytes: int) -> None:
        self.mss_bytes = mss_bytes
        self.under_way = 0
        """Positions neither arrived nor lost: pipe."""
        self.there = self.pieces_there = 0
        self._sent: deque[Sent] = deque()
        self.rack = Rack()
        self._lost: deque[Sent] = deque()

    def __iter__(self) -> Iterator[Sent]:
        return iter(self._sent)

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def first(self) -> Sent | None:
        """The next piece that the receiver expects."""
        return self._sent[0] if self._sent else None

    def add(self, start: int, end: int, now_ns: int) -> None:
        """Note the first transmission of a piece."""
        self._sent.append(Sent(start, end, now_ns))
        self.under_way += end - start

    def repeat(self, piece: Sent, now_ns: int) -> None:
        """Note the retransmission of a lost piece."""
        piece.sent_ns, piece.is_repeated, piece.is_lost = now_ns, True, False
        self.under_way += piece.length

    def probe(self, now_ns: int) -> Sent | None:
        """Note the retransmission of the last piece that has not arrived, lost or not; return it."""
        for piece in reversed(self._sent):
            if not piece.is_there:
                piece.sent_ns, piece.is_repeated = now_ns, True
                return piece
        return None

    def next_lost(self) -> Sent | None:
        """Return the first lost piece that was not retransmitted since."""
        while self._lost and not (self._lost[0].is_lost and not self._lost[0].is_there):
            self._lost.popleft()
        return self._lost[0] if self._lost else None

    def acknowledge(self, until: int, now_ns: int) -> Arrived:
        """Forget everything before a position; a piece that straddles it is cut."""
        positions, latest = 0, None
        while self._sent and self._sent[0].start < until:
            piece = self._sent[0]
            length = min(piece.end, until) - piece.start
            positions += self._take(piece, length)
            if piece.end > until:
                piece.start = until
                break
            if not piece.is_there:
                latest = piece
                self.rack.note(piece, now_ns)
            piece.is_lost = False
            self.pieces_there -= piece.is_there
            self._sent.popleft()
        return Arrived(positions, _rtt_ns(latest, now_ns))

    def select(self, blocks: Iterable[tuple[int, int]], now_ns: int) -> Arrived:
        """Note blocks that the receiver has out of order."""
        positions, latest = 0, None
        for start, end in sorted(blocks):  # the most recent comes first, unrelated to the send order
            for piece in self._sent:
                if piece.start >= end:
                    break
                if piece.start >= start and piece.end <= end and not piece.is_there:
                    positions += piece.length
                    self.there += piece.length
                    self.pieces_there += 1
                    if not piece.is_lost:
                        self.under_way -= piece.length
                    piece.is_there, piece.is_lost = True, False
                    self.rack.note(piece, now_ns)
                    latest = piece
        return Arrived(positions, _rtt_ns(latest, now_ns))

    def find_overdue(self, now_ns: int, smoothed_ns: int, *, is_repairing: bool) -> tuple[bool, int | None]:
        """Mark losses by RACK; return whether any is new, and when to check again if nothing arrives."""
        patience_ns = self.rack.patience_ns(smoothed_ns, is_hurried=is_repairing or self.pieces_there >= DUPLICATES)
        lost, due_ns = self.rack.overdue(self._sent, patience_ns, now_ns)
        self._lose(lost)
        return bool(lost), due_ns

    def find_lost(self, rtt_ns: int) -> bool:
        """Mark losses by RFC 6675; return whether any is new."""
        pieces = bytes_there = 0
        lost = []
        for piece in reversed(self._sent):
            if piece.is_there:
                pieces += 1
                bytes_there += piece.length
            elif piece.is_lost:
                continue
            elif piece.is_repeated:
                if self.rack.sent_ns > piece.sent_ns + rtt_ns // 4:
                    lost.append(piece)
            elif pieces >= DUPLICATES or bytes_there > (DUPLICATES - 1) * self.mss_bytes:
                lost.append(piece)
        self._lose(reversed(lost))
        return bool(lost)

    def lose_first(self) -> None:
        """Mark the next expected piece as lost."""
        if self._sent and not self._sent[0].is_lost and not self._sent[0].is_there:
            self._lose((self._sent[0],))

    def lose_all(self, now_ns: int | None = None) -> None:
        """Mark all pieces that have not arrived as lost; with a time, only the first and those RACK deems overdue."""
        first = self.first
        self._lose(
            piece
            for piece in self._sent
            if not piece.is_lost
            and not piece.is_there
            and (now_ns is None or piece is first or not self.rack.is_recent(piece, now_ns))
        )

    def _lose(self, pieces: Iterable[Sent]) -> None:
        new = list(pieces)
        for piece in new:
            piece.is_lost = True
            self.under_way -= piece.length
        if new:
            old = [piece for piece in self._lost if piece.is_lost]
            self._lost = deque(sorted(old + new, key=lambda piece: piece.start))

    def _take(self, piece: Sent, length: int) -> int:
        """Remove positions from a piece; return the number of those not known to have arrived."""
        if piece.is_there:
            self.there -= length
            return 0
        if not piece.is_lost:
            self.under_way -= length
        return length


def _rtt_ns(piece: Sent | None, now_ns: int) -> int | None:
    """Return the round trip, None for data sent twice: it is unknown which of the two arrived (Karn's rule)."""
    return None if piece is None or piece.is_repeated else now_ns - piece.sent_ns
