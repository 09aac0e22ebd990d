"""The effect of a drain, foreseen by the path server's own deciders: what moves, what stays, how full links become."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, replace

import numpy as np

from collectors.values import Snapshot
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.decide import Assignment, Decision
from controller.network.paths.deciding.decider import Decider
from controller.network.paths.deciding.evacuation import Avoided, Choose, Evacuation
from controller.network.paths.deciding.graph import Path
from controller.network.paths.deciding.located import LocatedFlows
from controller.network.paths.drains import Drains
from controller.network.paths.positions import FlowPositions
from controller.network.paths.records.values import DrainEffect, StayingFlow
from dataplane.topology.values import LinkKey

Flows = Mapping[FlowSpec, Assignment]


@dataclass(frozen=True, slots=True)
class Present:
    """State of the network by which an effect is foreseen."""

    snapshot: Snapshot
    now_ns: int
    located: LocatedFlows
    choose: Choose


class DrainForecast:
    """Foresees effects of drains; the decider must have observed the links as they would be."""

    def __init__(self, decider: Decider, evacuation: Evacuation, positions: FlowPositions) -> None:
        self._decider, self._evacuation, self._positions = decider, evacuation, positions

    def effect(self, element: str, before: Drains, after: Drains, present: Present) -> DrainEffect:
        """Return the effect of a change of one element's drain."""
        self._decider.locate(present.located)
        links = before.links_of(element)
        crossing = present.located.on_links(self._decider.network.table.flags(links)) if links else {}
        current = self._positions.decided(crossing)
        is_drained = element in after.elements
        if is_drained:
            avoided = Avoided(self._decider.dead_links(), after.links)
            left = self._evacuation.moves(current, avoided, present.choose, present.now_ns)
            moves = [replace(move, reason=self._positions.pins.told(move.flow, move.reason)) for move in left]
        else:
            moves = self._returning(before.links - after.links, present)
        fullest = [self._decider.busiest(each) or (None, 0.0) for each in ((), moves)]
        return DrainEffect(
            drain=after.elements.get(element),
            is_change=after is not before,
            moves=tuple(moves),
            stays=staying(current, moves, after) if is_drained else (),
            others=self._others(links, current, present.snapshot),
            hosts=before.hosts_of(element) if is_drained else (),
            fullest_before=fullest[0][0],
            utilisation_before=fullest[0][1],
            fullest_after=fullest[1][0],
            utilisation_after=fullest[1][1],
            revision=before.revision,
        )

    def _returning(self, undrained: Set[LinkKey], present: Present) -> list[Decision]:
        """Return the moves back of flows that left links for being drained."""

        def is_usable(path: Path) -> bool:
            return self._evacuation.is_usable(path, undrained)

        paths = {flow: present.located[flow].path for flow in self._positions.pins.paths if flow in present.located}
        pinned = list(self._positions.pins.returning(paths, is_usable, present.now_ns))
        held = {decision.flow for decision in pinned}
        back = self._evacuation.returning(present.located, is_usable, present.now_ns)
        return [*pinned, *(decision for decision, _ in back if decision.flow not in held)]

    def _others(self, links: Set[LinkKey], current: Flows, snapshot: Snapshot) -> int:
        """Return how many measured 5-tuples on some links belong to no flow in `current`."""
        rows = self._positions.seen.rows(snapshot)
        pool, hops = rows.book.rows.links(rows.path)
        hit = np.zeros(len(rows.path), np.bool_)
        hit[np.repeat(np.arange(len(hops)), hops)[self._decider.network.table.flags(links)[pool]]] = True
        managed = np.isin(rows.code, [self._positions.seen.code(flow) for flow in current])
        return int((hit & ~managed & ~rows.is_probe).sum())


def staying(current: Flows, moves: Iterable[Decision], drains: Drains) -> tuple[StayingFlow, ...]:
    """Return which flows on drained links stay, and why."""
    moved = {move.flow for move in moves}

    def why(path: Path) -> str:
        end = next((name for name in (path[0], path[-1]) if name in drains.elements), None)
        return "no other path may be used" if end is None else f"{end}, which is drained, is its host's only switch"

    left = ((flow, assignment.path) for flow, assignment in current.items() if flow not in moved)
    return tuple(StayingFlow(flow, path, why(path)) for flow, path in left)
