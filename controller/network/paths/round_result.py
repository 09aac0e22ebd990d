"""Result of one round of the path server."""

from __future__ import annotations

from dataclasses import dataclass

from controller.network.intents import RouteSet
from controller.network.paths.balancing.values import Rebalance
from controller.network.paths.deciding.decide import Decision


@dataclass(frozen=True, slots=True)
class RoundResult:
    """The new full set of routes, and the moves and changes of weights that made it, each in order."""

    routes: RouteSet
    moves: tuple[Decision, ...] = ()
    rebalances: tuple[Rebalance, ...] = ()
