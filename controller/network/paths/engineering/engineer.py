"""Traffic engineering round by round: measured demands in, weighted routes out, changed no more than necessary."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from importlib.util import find_spec
from types import MappingProxyType

import numpy as np

from controller.common.errors import PathError
from controller.network.base_paths import next_hops
from controller.network.intents import WeightedRoute
from controller.network.paths.engineering.in_force import InForce
from controller.network.paths.engineering.search import Draft, Problem, Search
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.engineering.splits import ecmp
from controller.network.paths.engineering.values import Demands, FloatArray, Splits, SwitchGraph
from dataplane.clock import Clock, VirtualClock
from dataplane.extras import EXTRA_OF
from dataplane.topology.values import LinkKey, Topology

TURN_NS = 200_000_000
"""Longest computation of a step before other decisions get a turn; the next step continues."""


@dataclass(frozen=True, slots=True)
class EngineeringRound:
    """Result of one round: utilisation of the busiest link before and (as predicted) after, and the reason."""

    time_ns: int
    max_utilisation_before: float
    max_utilisation_after: float
    destinations: tuple[str, ...]
    reason: str


class TrafficEngineer:
    """Keeps weighted routes that suit the measured demands; `weighted` are those in force.

    `clock` measures a step's computing time; without one, time stands still and a round ends in one step.
    """

    def __init__(
        self,
        topology: Topology,
        settings: EngineeringSettings,
        weighted: Sequence[WeightedRoute] = (),
        clock: Clock | None = None,
    ) -> None:
        if find_spec("scipy") is None:  # an extra: fail now rather than in the first round
            raise PathError(f"traffic engineering needs scipy: pip install 'millrace-net[{EXTRA_OF['scipy']}]'")
        self.topology, self.settings = topology, settings
        self.weighted = tuple(weighted)
        self.failed_rounds = 0
        self.last_problem: str | None = None
        self.rounds: deque[EngineeringRound] = deque(maxlen=1000)
        self._clock = clock or VirtualClock()
        self._in_force = InForce(topology, next_hops(topology), weighted)
        self._demands: dict[tuple[str, str], float] = {}
        self._last_ns: int | None = None
        self._search: Search | None = None
        self._spent_ns = 0
        self._prices: FloatArray | None = None
        self._unfinished: Draft | None = None
        """State of a round that ran out of time."""
        self._detours: set[int] = set()
        self._is_returning = False
        self._avoid(frozenset())

    def step(
        self,
        demands: Demands,
        dead: frozenset[LinkKey],
        now_ns: int,
        pinned_bps: Mapping[LinkKey, float] = MappingProxyType({}),
        drained: frozenset[LinkKey] = frozenset(),
    ) -> EngineeringRound | None:
        """Take the newest demands; return the changes in `weighted`, None if there are none.

        `pinned_bps` is the additional load of links, on paths that are not engineered. Routes over a link that has died
        or is drained change at once, and only detours are computed then. A round begins after each interval, and in the
        next step after such links have changed; it may continue over several steps. A round that fails is counted, and
        changes nothing.
        """
        if dead | drained != self._avoided:
            self._last_ns = None
            has_died = bool((dead | drained) - self._avoided)
            around = self._leave(dead, drained, demands, now_ns, pinned_bps)
            if has_died or around is not None:
                return around
        if self._search is None:
            if self._last_ns is not None and now_ns - self._last_ns < self.settings.interval_ns:
                return None
            self._last_ns, self._spent_ns = now_ns, 0
            self._smooth(demands)
        try:
            self._search = self._search or self._begun(pinned_bps)
            return None if self._search is None else self._go_on(self._search, now_ns)
        except PathError as error:
            self.failed_rounds += 1
            self.last_problem = str(error)
            self._search = self._unfinished = None
            return None

    def foresee(
        self,
        demands: Demands,
        pinned_bps: Mapping[LinkKey, float],
        dead: frozenset[LinkKey],
        drained: frozenset[LinkKey],
        now_ns: int,
    ) -> tuple[float, float]:
        """Return the busiest link's utilisation now, and with detours around these links; change nothing.

        Links that come back change nothing at once: a later round decides about them.
        """
        trial = copy(self)
        # `step` changes these in place; everything else it replaces.
        trial._in_force, trial._detours = copy(self._in_force), set(self._detours)  # noqa: SLF001 - its own
        trial.rounds = deque(maxlen=1)
        if (dead | drained) - self._avoided:
            trial.step(demands, dead, now_ns, pinned_bps, drained)
        before, after = (
            engineer._problem(pinned_bps).max_utilisation(engineer._present())  # noqa: SLF001 - its own
            for engineer in (self, trial)
        )
        return before, after

    @property
    def prices(self) -> FloatArray | None:
        """Prices of links that gave the last round's bound, None before the first."""
        return self._prices

    def splits(self) -> Splits:
        """Return the splits in force; destinations that met a dead link go by shortest paths."""
        return self._present()

    @property
    def is_searching(self) -> bool:
        """Return whether an unfinished round remains for the next step."""
        return self._search is not None

    def explain(self, path: Sequence[str]) -> str:
        """Return why traffic is on a path: the weights along it, and the result of the last round."""
        at = {route.switch: route.next_hops for route in self.weighted if route.destination == path[-1]}
        ways = (
            f"at {name} by {', '.join(f'{peer} ({weight})' for peer, weight in at[name])}"
            for name in path
            if name in at
        )
        spread = "; ".join(ways) or "by base routes only"
        last = f"; last round: {self.rounds[-1].reason}" if self.rounds else ""
        return f"managed by traffic engineering: to {path[-1]} {spread}{last}"

    def _smooth(self, demands: Demands) -> None:
        # The first demands have no earlier ones to be smoothed with.
        kept = self.settings.smoothing if self._demands else 0.0
        pairs = self._demands.keys() | demands.keys()
        mixed = {pair: kept * self._demands.get(pair, 0.0) + (1 - kept) * demands.get(pair, 0.0) for pair in pairs}
        self._demands = {pair: rate_bps for pair, rate_bps in mixed.items() if rate_bps >= 1.0}

    def _avoid(self, links: frozenset[LinkKey]) -> None:
        self._avoided = links
        self._graph = SwitchGraph.of(self.topology, links)
        self._usual = ecmp(self._graph, self._graph.delay_ns)
        self._search = self._unfinished = self._prices = None

    def _leave(
        self,
        dead: frozenset[LinkKey],
        drained: frozenset[LinkKey],
        demands: Demands,
        now_ns: int,
        pinned_bps: Mapping[LinkKey, float],
    ) -> EngineeringRound | None:
        """Route destinations whose traffic met a dead or drained link by shortest paths around it."""
        links = dead | drained
        self._is_returning |= bool(self._avoided - links) and bool(self._detours)
        self._avoid(links)
        if not self._demands:
            self._smooth(demands)
        self._detours |= set(self._in_force.uses(links).tolist())
        splits = self._present()
        most = self._problem(pinned_bps).max_utilisation(splits)
        states = (("dead", dead), ("drained", drained - dead))
        names = "; ".join(f"{state}: {', '.join(sorted(map(str, each)))}" for state, each in states if each)
        reason = f"{names or 'links are back'}; rerouted by shortest paths, the busiest link is at {most:.1%}"
        return self._put_in_force(splits, now_ns, most, most, reason)

    def _present(self) -> Splits:
        """Return the splits in force; destinations that met a dead link go by shortest paths."""
        shares = self._in_force.over(self._graph)
        lost = self._in_force.uses(self._avoided)
        shares[lost] = self._usual.shares[lost]
        return Splits(self._graph, shares)

    def _begun(self, pinned_bps: Mapping[LinkKey, float]) -> Search | None:
        """Begin a round; return None if nothing can be gained."""
        settings, present = self.settings, self._present()
        problem = self._problem(pinned_bps)
        keep = self._without_detours(present) if self._is_returning else present
        search = Search(problem, keep, draft=self._unfinished)
        if self._is_returning or search.could_gain(settings.min_gain, self._prices):
            return search
        self._prices, self._unfinished = search.prices, None
        return None

    def _without_detours(self, present: Splits) -> Splits:
        """Return splits that use shortest paths again where a link had been dead."""
        shares, back = present.shares.copy(), sorted(self._detours)
        shares[back] = self._usual.shares[back]
        return Splits(self._graph, shares)

    def _go_on(self, search: Search, now_ns: int) -> EngineeringRound | None:
        """Search for a turn; conclude the round when the search is finished or the round's time is used up."""
        began_ns = self._clock.now_ns()
        left_ns = self.settings.round_time_ns - self._spent_ns
        for _ in search:
            turn_ns = self._clock.now_ns() - began_ns
            if turn_ns >= min(TURN_NS, left_ns):
                self._spent_ns += turn_ns
                break
        if not search.is_finished and self._spent_ns < self.settings.round_time_ns:
            return None
        return self._conclude(search, now_ns)

    def _conclude(self, search: Search, now_ns: int) -> EngineeringRound | None:
        """Apply the result if it gains enough; after links returned, if it loses nothing."""
        self._search, self._prices = None, search.prices
        self._unfinished = None if search.is_finished else search.draft()
        problem, result, present = search.problem, search.result(), self._present()
        before, after = problem.max_utilisation(present), search.result_utilisation
        is_gain = before > after and before - after >= self.settings.min_gain * before
        if self._is_returning:
            if not is_gain and after > max(before, self.settings.enough):
                return None
            self._is_returning = False
            self._detours = self._detours if self._avoided else set()
        elif not is_gain:
            return None
        return self._put_in_force(result, now_ns, before, after, self._reason(before, after))

    def _reason(self, before: float, after: float) -> str:
        gain = f"the busiest link goes from {before:.1%} to {after:.1%}"
        return gain if self._unfinished is None else f"{gain}; continued in the next round"

    def _put_in_force(
        self, splits: Splits, now_ns: int, before: float, after: float, reason: str
    ) -> EngineeringRound | None:
        weighted = self._in_force.replace(splits)
        difference = set(weighted) ^ set(self.weighted)
        if not difference:
            return None
        changed = tuple(sorted({route.destination for route in difference}))
        self.weighted = weighted
        done = EngineeringRound(now_ns, before, after, changed, reason)
        self.rounds.append(done)
        return done

    def _problem(self, pinned_bps: Mapping[LinkKey, float]) -> Problem:
        """Return the current problem: the demands that have a route, as those cut off by dead links have none."""
        graph, demand = self._graph, self._graph.demand_matrix(self._demands)
        has_way = np.zeros_like(demand, dtype=bool)
        destination, link = np.nonzero(self._usual.shares > 0)
        has_way[graph.tails[link], destination] = True
        pinned = np.array([pinned_bps.get(link, 0.0) for link in graph.links])
        return Problem.of(graph, np.where(has_way, demand, 0.0), pinned, self.settings.enough)
