"""Planned and actual load of a sender, to check that a network carried the planned load."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

LATE_NS: Final = 20_000_000
"""A packet that leaves later than this after its due time counts as late."""


@dataclass(frozen=True, slots=True)
class SentLoad:
    """Packets of one or several flows at their sender.

    `planned` were due and `sent` have left, `late` of them more than `LATE_NS` after their due time. The rest was
    `skipped` by a sender that was too far behind, or `refused` by its own machine (a full queue or socket buffer).
    """

    planned: int = 0
    sent: int = 0
    late: int = 0
    skipped: int = 0
    refused: int = 0
    worst_late_ns: int = 0

    @property
    def missing(self) -> int:
        """Packets that were due and have not left."""
        return self.planned - self.sent


def total_load(loads: Iterable[SentLoad]) -> SentLoad:
    """Return the sum of several loads."""
    every = tuple(loads)
    return SentLoad(
        planned=sum(load.planned for load in every),
        sent=sum(load.sent for load in every),
        late=sum(load.late for load in every),
        skipped=sum(load.skipped for load in every),
        refused=sum(load.refused for load in every),
        worst_late_ns=max((load.worst_late_ns for load in every), default=0),
    )
