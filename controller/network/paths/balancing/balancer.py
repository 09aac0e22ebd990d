"""Weights of groups round by round: changed where a link cannot carry its load, equal again when there is room.

Several rules keep them stable: a link must be crowded for some rounds; after any move, of a flow or of weights, the
network settles first; a group that changed is held down; and it returns only when equal weights have had room for a
time, longer each time that returning was wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

import numpy as np

from controller.network.algorithms.link_table import Flags, Longs
from controller.network.algorithms.trees import DestinationTrees
from controller.network.intents import WeightedRoute
from controller.network.paths.balancing.forwarding import Forwarding
from controller.network.paths.balancing.group_traffic import Footprints
from controller.network.paths.balancing.rebalance import Change, Rebalancing
from controller.network.paths.balancing.values import GroupKey, LinkWeights, MeasuredFlow, NextHops, Rebalance, show
from controller.network.paths.deciding.beliefs import Beliefs
from controller.network.paths.deciding.graph import Network
from controller.network.paths.settings import DecideSettings
from dataplane.topology.values import LinkKey

REMEMBERED: Final = 1000
"""Changes kept in memory; the store keeps more."""
_MOST_PATIENCE: Final = 64
_AT_EASE: Final = 4
"""Multiple of its patience for which a group must stay at equal weights before its patience is reset."""

GetFlows = Callable[[Forwarding], Sequence[MeasuredFlow]]
"""Returns the flows that telemetry shows now; only called when needed."""


@dataclass(slots=True)
class _History:
    """History of a group: its last change, since when equal weights would have had room, and its current patience."""

    changed_ns: int
    roomy_since_ns: int | None = None
    patience: int = 1
    is_back_at_equal: bool = False


class Balancer:
    """Keeps the weighted routes in force, `weighted`, by switch and destination."""

    def __init__(self, network: Network, settings: DecideSettings, weighted: Iterable[WeightedRoute] = ()) -> None:
        self.network, self.settings = network, settings
        self.changes: deque[Rebalance] = deque(maxlen=REMEMBERED)
        self._weights: dict[GroupKey, LinkWeights] = {}
        self._histories: dict[GroupKey, _History] = {}
        self._crowded_for: Longs = np.zeros(len(network.table.links), np.int64)
        self._last_ns: int | None = None
        self._looked_ns: int | None = None
        self._tried: tuple[tuple[int, ...], int] | None = None
        self._down: frozenset[LinkKey] = frozenset()
        self._drained: frozenset[LinkKey] = frozenset()
        self._around = (self._down, self._drained), network.base_trees
        self._restore(weighted)
        self.weighted = self._routes()

    @property
    def last_ns(self) -> int | None:
        """Time at which weights last changed; None if they never did."""
        return self._last_ns

    def step(
        self, beliefs: Beliefs, flows: GetFlows, now_ns: int, *, last_move_ns: int | None, confirming: bool
    ) -> list[Rebalance]:
        """Return this round's changes, which apply from now on; `last_move_ns` is that of single flows.

        A round that is not `confirming` does not count among those that a link must be crowded for.
        """
        if confirming:
            self._crowded_for = np.where(beliefs.crowded, self._crowded_for + 1, 0)
        times = [time_ns for time_ns in (self._last_ns, last_move_ns) if time_ns is not None and time_ns <= now_ns]
        if times and now_ns - max(times) < self.settings.settle_ns:
            return []
        rows = tuple(np.flatnonzero(self._crowded_for >= self.settings.balance.confirm_rounds).tolist())
        if rows:
            return [] if self._tried_lately(rows, now_ns) else self._relieve(beliefs, flows, now_ns)
        if self._weights and not beliefs.crowded.any() and self._is_time_to_look(now_ns):
            return self._return_to_equal(beliefs, flows, now_ns)
        return []

    def avoid(
        self, dead: Set[LinkKey], down: Set[LinkKey], now_ns: int, drained: Set[LinkKey] = frozenset()
    ) -> list[Rebalance]:
        """Give up weights that lead over dead links, or no longer along base routes around `down` and drained ones.

        `down` are the dead links that the controller knows, too, so that base routes lead around them.
        """
        self._down, self._drained = frozenset(down), frozenset(drained)
        gone = []
        for group, link_weights in sorted(self._weights.items()):
            base = {row for row, _ in self._forwarding().base(*group)}
            lost = next(
                (row for row, _ in link_weights if self.network.table.links[row] in dead or row not in base), None
            )
            if lost is not None:
                gone.append((group, lost))
        return [self._drop(group, lost, dead, now_ns) for group, lost in gone]

    def at(self, switch: str, destination: str) -> NextHops | None:
        """Return the weights in force at a switch for a destination, None for equal ones."""
        numbers = self.network.table.switch_number
        link_weights = self._weights.get((numbers[switch], numbers[destination]))
        return None if link_weights is None else self._names(link_weights)

    def _relieve(self, beliefs: Beliefs, flows: GetFlows, now_ns: int) -> list[Rebalance]:
        _, round_ = self._round(beliefs, flows)
        held = {
            group
            for group, history in self._histories.items()
            if 0 <= now_ns - history.changed_ns < self.settings.hold_down_ns
        }
        changes = round_.relieve(lambda group: group not in held, self.settings.balance)
        if not changes:
            rows = tuple(np.flatnonzero(beliefs.crowded).tolist())
            self._tried = rows, now_ns
        return [self._applied(change, now_ns) for change in changes]

    def _applied(self, change: Change, now_ns: int) -> Rebalance:
        history = self._histories.setdefault(change.group, _History(now_ns))
        if history.is_back_at_equal:
            calm_ns = now_ns - history.changed_ns
            is_at_ease = calm_ns >= _AT_EASE * history.patience * self.settings.hold_down_ns
            # Equal weights that did not last make the next return to them wait twice as long.
            history.patience = 1 if is_at_ease else min(2 * history.patience, _MOST_PATIENCE)
        history.is_back_at_equal = False
        link = self.network.table.links[change.row]
        after = f"from {change.before:.0%} to {change.after:.0%} of it"
        reason = f"{link} is overloaded; other weights reduce its load {after}"
        return self._set_weights(change.group, change.new, now_ns, reason, link, change.before, change.after)

    def _return_to_equal(self, beliefs: Beliefs, flows: GetFlows, now_ns: int) -> list[Rebalance]:
        """Return the change of the first group that may return to equal weights, if any."""
        forwarding, round_ = self._round(beliefs, flows)
        settings = self.settings
        spare = (settings.balance.return_room * beliefs.table.rate_bps).astype(np.float64)
        limit = np.maximum(round_.limit - spare, 0.0)
        for group in sorted(self._weights):
            history = self._histories[group]
            fits, utilisation = round_.fits(group, forwarding.base(*group), limit)
            if not fits:
                history.roomy_since_ns = None
                continue
            if history.roomy_since_ns is None:
                history.roomy_since_ns = now_ns
            wait_ns = history.patience * settings.hold_down_ns
            if now_ns - history.roomy_since_ns >= wait_ns and now_ns - history.changed_ns >= wait_ns:
                reason = f"equal weights suffice again: the fullest link would be at {utilisation:.0%}"
                history.is_back_at_equal, history.roomy_since_ns = True, None
                return [self._set_weights(group, None, now_ns, reason, None, 0.0, utilisation)]
        return []

    def _round(self, beliefs: Beliefs, flows: GetFlows) -> tuple[Forwarding, Rebalancing]:
        """Return the current state, ready to predict the effect of other weights."""
        table = beliefs.table
        forwarding = self._forwarding(table.alive)
        limit_bps = np.where(table.alive, table.rate_bps - beliefs.headroom_bps, 0)
        return forwarding, Rebalancing(
            forwarding,
            Footprints(self.network, self.settings.watch),
            flows(forwarding),
            load_bps=beliefs.load_bps,
            limit_bps=limit_bps,
            crowded=tuple(np.flatnonzero(beliefs.crowded).tolist()),
            hidden=self.settings.hidden,
        )

    def _is_time_to_look(self, now_ns: int) -> bool:
        """Return whether to check again for groups that can return: the check reads all flows and is never urgent."""
        since_ns = self._looked_ns
        if since_ns is not None and 0 <= now_ns - since_ns < self.settings.settle_ns:
            return False
        self._looked_ns = now_ns
        return True

    def _drop(self, group: GroupKey, lost: int, dead: Set[LinkKey], now_ns: int) -> Rebalance:
        link = self.network.table.links[lost]
        reason = f"link {link} is dead" if link in dead else f"base routes no longer lead over {link}"
        return self._set_weights(group, None, now_ns, f"{reason}; equal weights over the other links", link, 0.0, 0.0)

    def _set_weights(  # noqa: PLR0917 - what a change consists of
        self,
        group: GroupKey,
        new: LinkWeights | None,
        now_ns: int,
        reason: str,
        link: LinkKey | None,
        before: float,
        after: float,
    ) -> Rebalance:
        """Give a group other weights, None for equal ones."""
        forwarding = self._forwarding()
        old, base = forwarding.link_weights(*group), forwarding.base(*group)
        history = self._histories.setdefault(group, _History(now_ns))
        history.changed_ns, history.roomy_since_ns = now_ns, None
        if new is None or new == base:
            self._weights.pop(group, None)
        else:
            self._weights[group] = new
        self._last_ns = now_ns
        self.weighted = self._routes()
        switch, destination = (self.network.table.switches[number] for number in group)
        names = self._names(old), self._names(new or base)
        whole = f"{reason}: {show(names[0])} become {show(names[1])}"
        change = Rebalance(now_ns, switch, destination, *names, link, before, after, whole)
        self.changes.append(change)
        return change

    def _names(self, link_weights: LinkWeights) -> NextHops:
        links = self.network.table.links
        return tuple((links[row].dst, weight) for row, weight in link_weights)

    def _routes(self) -> tuple[WeightedRoute, ...]:
        names = self.network.table.switches
        return tuple(
            WeightedRoute(names[switch], names[destination], self._names(link_weights))
            for (switch, destination), link_weights in sorted(self._weights.items())
        )

    def _restore(self, weighted: Iterable[WeightedRoute]) -> None:
        """Restore saved weights of groups that the topology still has, as if they had changed long ago."""
        table = self.network.table
        forwarding = self._forwarding()
        for route in weighted:
            try:
                group = table.switch_number[route.switch], table.switch_number[route.destination]
                weights = {table.link_number[LinkKey(route.switch, peer)]: n for peer, n in route.next_hops}
            except KeyError:
                continue
            if weights.keys() <= {row for row, _ in forwarding.base(*group)} and weights:
                self._weights[group] = tuple(sorted(weights.items()))
                self._histories[group] = _History(0)

    def _forwarding(self, alive: Flags | None = None) -> Forwarding:
        """Return the current forwarding; base routes lead around links that are down or drained."""
        table, avoided = self.network.table, (self._down, self._drained)
        if self._around[0] != avoided:
            is_around = self._down or self._drained
            trees = DestinationTrees(table, table.costs_around(*avoided)) if is_around else self.network.base_trees
            self._around = avoided, trees
        every = np.ones(len(table.links), np.bool_)
        return Forwarding(self.network.topology, self._around[1], every if alive is None else alive, self._weights)

    def _tried_lately(self, rows: tuple[int, ...], now_ns: int) -> bool:
        """Return whether the same links were tried a short while ago without success."""
        tried, since_ns = self._tried or ((), now_ns)
        return bool(tried) and set(rows) <= set(tried) and 0 <= now_ns - since_ns < self.settings.settle_ns


def weights_on(path: Sequence[str], weights: Mapping[tuple[str, str], NextHops]) -> str:
    """Return the weights along a path for people, '' if there are none."""
    met = ((name, weights.get((name, path[-1]))) for name in path[:-1])
    return ", ".join(f"at {name} by {show(hops)}" for name, hops in met if hops)
