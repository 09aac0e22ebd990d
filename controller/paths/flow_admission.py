"""Admission of flows to the path server: when there are more than it looks after, it keeps the heaviest.

Flows that a decision or a person put on a path stay; of the others those that send least make room for those that send
clearly more. Twice as much is asked of a newcomer, as a rate of few packets is uncertain and a flow that comes and goes
would lose what the decider knows of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from heapq import nlargest, nsmallest
from typing import Final

from controller.intents import FlowSpec

_CLEARLY: Final = 2
"""A newcomer has to send this many times what the flow sends that makes room for it."""


@dataclass(frozen=True, slots=True)
class Admission:
    """Flows that come to be looked after, those that make room for them, and how many find none."""

    admitted: tuple[FlowSpec, ...]
    removed: tuple[FlowSpec, ...] = ()
    refused: int = 0


def admit(
    newcomers: Collection[FlowSpec],
    known: Iterable[FlowSpec],
    rates_bps: Mapping[FlowSpec, int],
    held: Collection[FlowSpec],
    *,
    room: int,
) -> Admission:
    """Return which newcomers find a place where `room` places are free.

    A flow without a rate sends nothing; `held` flows of those `known` never make room.
    """
    if len(newcomers) <= room:
        return Admission(tuple(newcomers))

    def rate_bps(flow: FlowSpec) -> int:
        return rates_bps.get(flow, 0)

    heaviest = nlargest(len(newcomers), newcomers, key=rate_bps)
    admitted, challengers = heaviest[:room], heaviest[room:]
    # No more can change places than there are challengers.
    lightest = nsmallest(len(challengers), (flow for flow in known if flow not in held), key=rate_bps)
    removed: list[FlowSpec] = []
    for challenger, flow in zip(challengers, lightest, strict=False):
        if rate_bps(challenger) <= _CLEARLY * rate_bps(flow):
            break
        admitted.append(challenger)
        removed.append(flow)
    return Admission(tuple(admitted), tuple(removed), len(newcomers) - len(admitted))
