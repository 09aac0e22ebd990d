"""Choice of new weights for groups: traffic that a link cannot carry moves to equally good links that have room.

The program's hash is known. Where telemetry shows a 5-tuple where its hash puts it, the effect of other weights on it
is therefore computed, not guessed: many small flows that the hash has spread unevenly are spread again, and the result
is checked first. Traffic that is not where its hash would put it (another hash, another switch) counts by shares. No
link that keeps its headroom loses it, by the loads predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.network.algorithms.link_table import Longs
from controller.network.paths.balancing.forwarding import Forwarding
from controller.network.paths.balancing.group_traffic import (
    FlowPlacement,
    Footprints,
    GroupTraffic,
    Weights,
    weight_options,
)
from controller.network.paths.balancing.values import GroupKey, LinkWeights, MeasuredFlow
from controller.network.paths.deciding.graph import Rows
from controller.network.paths.settings import BalanceSettings

Floats = npt.NDArray[np.float64]

_TRIED: Final = 16
"""Groups tried for one link in a round, those first that load it most."""
_LARGEST: Final = 4096
"""Streams of a group that are predicted one by one; smaller ones are assumed to stay where they are."""


@dataclass(frozen=True, slots=True)
class Change:
    """A group's new weights, the row that they relieve, and that link's utilisation before and after as predicted."""

    group: GroupKey
    old: LinkWeights
    new: LinkWeights
    row: int
    before: float
    after: float


class Rebalancing:
    """One round's predictions: loads of links, and positions of flows; changes made are included.

    `load_bps` is the estimated load of links and `limit_bps` their limit, 0 for dead ones. A flow that crosses a
    crowded link needs `hidden` times its rate, because some of the traffic sent over such a link is lost.
    """

    def __init__(
        self,
        forwarding: Forwarding,
        footprints: Footprints,
        flows: Sequence[MeasuredFlow],
        *,
        load_bps: Longs,
        limit_bps: Longs,
        crowded: Rows,
        hidden: float,
    ) -> None:
        self.forwarding, self._footprints = forwarding, footprints
        self._rate = forwarding.table.rate_bps.astype(np.float64)
        self.load: Floats = np.maximum(load_bps, 0).astype(np.float64)
        self.limit: Floats = limit_bps.astype(np.float64)
        self._crowded = frozenset(crowded)
        self._members: dict[int, list[FlowPlacement]] = {}
        for flow in flows:
            self._add(flow, hidden)

    def _add(self, flow: MeasuredFlow, hidden: float) -> None:
        first = next((index for index, row in enumerate(flow.rows) if row in self._crowded), None)
        need = flow.rate_bps * (1.0 if first is None else hidden)
        for row in () if first is None else flow.rows[first:]:
            self.load[row] += need - flow.rate_bps
        exact = self.forwarding.path(flow.hashed, flow.source, flow.destination) == flow.rows
        placement = FlowPlacement(flow, flow.rows, need, exact)
        self._members.setdefault(flow.destination, []).append(placement)

    def relieve(self, free: Callable[[GroupKey], bool], settings: BalanceSettings) -> list[Change]:
        """Return the groups to change for the sake of crowded links, the fullest first; no group changes twice."""
        changes: list[Change] = []
        done: set[GroupKey] = set()
        for row in sorted(self._crowded, key=lambda row: (-self._excess(row), row)):
            for group in self._groups_over(row)[:_TRIED]:
                if len(changes) >= settings.changes_per_round or self._excess(row) <= 0:
                    break
                change = self._try(group, row, settings) if group not in done and free(group) else None
                if change is not None:
                    done.add(group)
                    changes.append(change)
        return changes

    def fits(self, group: GroupKey, link_weights: LinkWeights, limit: Floats) -> tuple[bool, float]:
        """Return whether all links have room with other weights at one group, and the fullest one's utilisation."""
        traffic = self._traffic(group, tuple(row for row, _ in link_weights))
        if traffic is None:
            return True, 0.0
        after, expected = traffic.predict([tuple(weight for _, weight in link_weights)], self.load)
        most = np.maximum(after, expected)[0] + traffic.uncertain_bps
        utilisation = most / self._rate[traffic.rows]
        return bool((most <= limit[traffic.rows]).all()), float(utilisation.max(initial=0.0))

    def _excess(self, row: int) -> float:
        """Return a link's load beyond its limit, as a share of its rate."""
        return float(max(0.0, self.load[row] - self.limit[row]) / self._rate[row])

    def _groups_over(self, row: int) -> list[GroupKey]:
        """Return the groups that could lead traffic around a link, beginning with those whose traffic loads it most."""
        groups: dict[GroupKey, tuple[float, int]] = {}
        for destination, placements in self._members.items():
            for placement in placements:
                if row not in placement.rows:
                    continue
                before = placement.rows[: placement.rows.index(row) + 1]
                for hops, link in enumerate(reversed(before)):
                    group = int(self.forwarding.table.tail[link]), destination
                    groups[group] = groups.get(group, (0.0, hops))[0] + placement.need_bps, hops
        several = (group for group in groups if len(self.forwarding.usable(*group)) > 1)
        return sorted(several, key=lambda group: (-groups[group][0], groups[group][1], group))

    def _try(self, group: GroupKey, row: int, settings: BalanceSettings) -> Change | None:
        """Give a group the weights that help a crowded link most, None where none help enough."""
        traffic = self._traffic(group, self.forwarding.usable(*group))
        if traffic is None:
            return None
        old = self.forwarding.link_weights(*group)
        options = [weights for weights in self._options(traffic) if traffic.link_weights(weights) != old]
        best = self._best(traffic, options) if options else None
        if best is None:
            return None
        before, excess = self.load[row], self._excess(row)
        change = traffic.change(best, self.load)
        left = max(0.0, before + change.get(row, 0.0) - self.limit[row]) / self._rate[row]
        # A small gain is worth the change if it ends the overload.
        if (left > 0 and excess - left < settings.min_gain) or excess <= left:
            return None
        for changed, more in change.items():
            self.load[changed] += more
        self._move(group, traffic, best)
        rate = self._rate[row]
        return Change(group, old, traffic.link_weights(best), row, float(before / rate), float(self.load[row] / rate))

    def _options(self, traffic: GroupTraffic) -> list[Weights]:
        room = traffic.room_bps(self.load, self.limit)
        wanted = room if any(room) else [float(self._rate[row]) for row in traffic.options]
        return weight_options(wanted, by_ratio=not traffic.exact, limit=traffic.affordable)

    def _best(self, traffic: GroupTraffic, options: list[Weights]) -> Weights | None:
        """Return the weights that leave the least excess on crowded links without taking another link's headroom."""
        before, limit, rate = self.load[traffic.rows], self.limit[traffic.rows], self._rate[traffic.rows]
        after, expected = traffic.predict(options, self.load)
        # One bit per second of tolerance absorbs rounding.
        gains = after > before + 1.0
        allowed = (~gains | (after + traffic.uncertain_bps <= limit)).all(axis=1)
        if not allowed.any():
            return None
        hot = np.isin(traffic.rows, list(self._crowded))
        excess = (np.maximum(after - limit, 0.0) / rate)[:, hot].sum(axis=1)
        uneven = ((after / rate) ** 2 + (expected / rate) ** 2).sum(axis=1)
        # lexsort sorts by its last key first: allowed, then excess, then evenness.
        order = np.lexsort((np.arange(len(options)), uneven.round(3), excess.round(3), ~allowed))
        return options[int(order[0])]

    def _traffic(self, group: GroupKey, options: Rows) -> GroupTraffic | None:
        """Return a group's traffic with the next hops that it may take; None if it has none."""
        placements = list(self._through(group))
        if not placements or not options:
            return None
        placements.sort(key=lambda placement: (-placement.need_bps, placement.flow.hashed))
        return GroupTraffic(self.forwarding, self._footprints, group, options, placements[:_LARGEST])

    def _through(self, group: GroupKey) -> Iterator[FlowPlacement]:
        switch, destination = group
        for placement in self._members.get(destination, ()):
            if any(int(self.forwarding.table.tail[row]) == switch for row in placement.rows):
                yield placement

    def _move(self, group: GroupKey, traffic: GroupTraffic, weights: Weights) -> None:
        """Apply a change; flows that count by shares are somewhere now, and not moved again."""
        self.forwarding.weights[group] = traffic.link_weights(weights)
        moved = traffic.moved(weights)
        kept = [
            moved.get(id(placement), placement)
            for placement in self._members[group[1]]
            if placement.exact or id(placement) not in traffic.ids
        ]
        self._members[group[1]] = kept
