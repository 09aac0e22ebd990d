"""Admission of flows to the path server: when there are more than it can manage, it keeps the heaviest.

Flows that a decision or a person put on a path stay; of the others those with the lowest rates are replaced by those
with clearly higher ones. A newcomer must send twice as much: a rate from few packets is uncertain, and a flow that
alternates would lose the decider's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.network.algorithms.link_table import Flags, Longs

_CLEARLY: Final = 2


@dataclass(frozen=True, slots=True)
class Admission:
    """Rows of the newcomers that are admitted, heaviest first, and of the known flows that make room for them."""

    admitted: Longs
    removed: Longs


def admit(new_bps: Longs, known_bps: Longs, held: Flags, *, room: int) -> Admission:
    """Return which newcomers are admitted with `room` free places.

    `new_bps` and `known_bps` are the rates of newcomers and known flows, 0 if unknown; known flows that are
    `held` never make room. Of equal newcomers the first is admitted, of equal known flows the first makes room.
    """
    heaviest = np.argsort(-new_bps, kind="stable")
    challengers = heaviest[room:]
    movable = np.flatnonzero(~held)
    lightest = movable[np.argsort(known_bps[movable], kind="stable")]
    count = min(len(challengers), len(lightest))
    # Challengers get lighter and their opponents heavier: once one loses, all that follow do.
    wins = int((new_bps[challengers[:count]] > _CLEARLY * known_bps[lightest[:count]]).sum())
    return Admission(heaviest[: room + wins], lightest[:wins])
