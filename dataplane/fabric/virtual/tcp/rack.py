"""Time-based loss detection (RACK, RFC 8985, section 6), without a clock.

A segment is lost if one that was sent or retransmitted after it has arrived, and a round trip plus the reordering
window have passed. That window is zero during loss recovery, or when three segments have arrived out of order, unless
this connection has seen reordering.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

PERSISTENT_RECOVERIES: Final = 16
"""Recoveries for which a reordering window widened by a needless retransmission persists."""


@dataclass(slots=True)
class Sent:
    """A piece of the stream, sent or retransmitted at a time."""

    start: int
    end: int
    sent_ns: int
    is_repeated: bool = False
    is_lost: bool = False
    is_there: bool = False
    """The receiver has it, out of order (SACK)."""

    @property
    def length(self) -> int:
        """Positions that it occupies, those of SYN and FIN included."""
        return self.end - self.start


@dataclass(slots=True)
class Rack:
    """The most recently sent piece that has arrived, and what is known about reordering on the path.

    `least_rtt_ns` covers the whole connection, where Linux uses the last five minutes.
    """

    sent_ns: int = -1  # RACK.xmit_ts
    end: int = 0  # RACK.end_seq
    rtt_ns: int = 0  # RACK.rtt
    least_rtt_ns: int | None = None  # RACK.min_RTT
    furthest: int = 0  # RACK.fack
    is_reordered: bool = False  # RACK.reordering_seen
    steps: int = 1  # RACK.reo_wnd_mult
    recoveries_left: int = 0  # RACK.reo_wnd_persist
    learned_until: int = 0  # RACK.dsack_round

    def note(self, piece: Sent, now_ns: int) -> None:
        """Process the arrival of a piece (section 6.2, steps 1 to 3)."""
        rtt_ns, before = now_ns - piece.sent_ns, self.furthest
        self.furthest = max(before, piece.end)
        if not piece.is_repeated:
            self.least_rtt_ns = rtt_ns if self.least_rtt_ns is None else min(self.least_rtt_ns, rtt_ns)
            self.is_reordered = self.is_reordered or piece.end < before
        elif self.least_rtt_ns is None or rtt_ns < self.least_rtt_ns:
            return  # the first transmission has arrived
        self.rtt_ns = rtt_ns
        self.sent_ns, self.end = max((self.sent_ns, self.end), (piece.sent_ns, piece.end))

    def patience_ns(self, smoothed_ns: int, *, is_hurried: bool) -> int:
        """Return the reordering window (step 4).

        Hurried: a loss is being repaired, or enough segments have arrived out of order to prove one elsewhere.
        """
        if is_hurried and not self.is_reordered:
            return 0
        return min((self.least_rtt_ns or 0) // 4 * self.steps, smoothed_ns)

    def was_needless(self, first: int, following: int) -> None:
        """Process a needless retransmission reported by DSACK: widen the window by one step per round trip.

        `first` is the next position expected, `following` is sent next. Without reordering it has another cause.
        """
        if self.is_reordered and first >= self.learned_until:
            self.steps, self.recoveries_left, self.learned_until = self.steps + 1, PERSISTENT_RECOVERIES, following

    def recovered(self) -> None:
        """Note that a recovery is over."""
        self.recoveries_left = max(0, self.recoveries_left - 1)
        if not self.recoveries_left:
            self.steps = 1

    def overdue(self, pieces: Iterable[Sent], patience_ns: int, now_ns: int) -> tuple[list[Sent], int | None]:
        """Return the lost pieces, and when the last possibly reordered one becomes lost (step 5)."""
        lost, due_ns = [], None
        for piece in pieces:
            if piece.is_there or piece.is_lost or (piece.sent_ns, piece.end) >= (self.sent_ns, self.end):
                continue
            piece_due_ns = piece.sent_ns + self.rtt_ns + patience_ns
            if piece_due_ns <= now_ns:
                lost.append(piece)
            else:
                due_ns = piece_due_ns if due_ns is None else max(due_ns, piece_due_ns)
        return lost, due_ns

    def is_recent(self, piece: Sent, now_ns: int) -> bool:
        """Return whether a piece may still be in flight at a timeout (section 6.3)."""
        return piece.sent_ns + self.rtt_ns > now_ns
