"""Tail loss probes (TLP, RFC 8985, section 7), as values: when to probe, and how to interpret the answer.

If the last segments of a burst are lost, none follow whose arrival would reveal it. So after two round trips without an
acknowledgment one segment is sent, new or the last again: its SACK lets RACK find the losses before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

_SLACK_NS: Final = 2_000_000
"""Margin that Linux adds to two round trips (TCP_TIMEOUT_MIN_US)."""


class Answer(Enum):
    """Meaning of an acknowledgment for a probe: nothing yet, no loss, or a loss repaired by it."""

    OPEN = "open"
    NOTHING_LOST = "nothing lost"
    REPAIRED = "repaired"


@dataclass(frozen=True, slots=True)
class TailLossProbe:
    """A probe sent when everything up to `end` had been sent; repeated: it was the last segment again."""

    end: int
    is_repeated: bool

    def answered(self, position: int, *, is_duplicate: bool, needless_end: int | None) -> Answer:
        """Interpret an acknowledgment of everything before a position (section 7.4.2).

        `needless_end` is the end of the data that arrived twice (DSACK). Duplicate: it carries nothing new at all.
        """
        if position < self.end:
            return Answer.OPEN
        if not self.is_repeated or needless_end == self.end or (is_duplicate and position == self.end):
            return Answer.NOTHING_LOST
        return Answer.REPAIRED if position > self.end else Answer.OPEN


def probe_after_ns(smoothed_ns: int | None, initial_rto_ns: int, delayed_ack_ns: int, *, is_single: bool) -> int:
    """Return the wait before a probe (section 7.2); a single segment's acknowledgment may be delayed."""
    if smoothed_ns is None:
        return initial_rto_ns
    return 2 * smoothed_ns + (delayed_ack_ns if is_single else _SLACK_NS)
