"""Which groups get other weights, and which: what a link cannot carry goes by equally good links that have room.

The program's hash is known, so where telemetry shows a 5-tuple where its hash puts it, what other weights do to it is
worked out and not guessed: many small flows that the hash has laid unevenly are laid anew, and looked at before.
Traffic that is not where its hash would put it (another hash, another switch) counts by shares. No link that keeps its
headroom loses it, by the loads predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.algorithms.link_table import Longs
from controller.paths.balancing.candidates import Weights, candidates
from controller.paths.balancing.footprints import Footprints
from controller.paths.balancing.lanes import Lanes, Member
from controller.paths.balancing.values import Group, Spread, Stream
from controller.paths.balancing.ways import Ways
from controller.paths.deciding.graph import Rows
from controller.paths.settings import BalanceSettings

Floats = npt.NDArray[np.float64]

_TRIED: Final = 16
"""Groups that are tried for one link in a round, those first that load it most."""
_LARGEST: Final = 4096
"""Streams of a group that are looked at one by one; smaller ones stay where they are in what is predicted."""


@dataclass(frozen=True, slots=True)
class Change:
    """A group's new weights, the row that they relieve, and that link's utilisation before and after as predicted."""

    group: Group
    old: Spread
    new: Spread
    row: int
    before: float
    after: float


class Rebalancing:
    """One round's predictions: loads of links, and where streams go; changes that are made are part of them.

    `load_bps` is what links are believed to carry and `limit_bps` what they may, 0 for dead ones. A stream that crosses
    a crowded link needs `hidden` times its rate: of what is sent over such a link not all comes out.
    """

    def __init__(
        self,
        ways: Ways,
        footprints: Footprints,
        streams: Sequence[Stream],
        *,
        load_bps: Longs,
        limit_bps: Longs,
        crowded: Rows,
        hidden: float,
    ) -> None:
        self.ways, self._footprints = ways, footprints
        self._rate = ways.table.rate_bps.astype(np.float64)
        self.load: Floats = np.maximum(load_bps, 0).astype(np.float64)
        self.limit: Floats = limit_bps.astype(np.float64)
        self._crowded = frozenset(crowded)
        self._members: dict[int, list[Member]] = {}
        for stream in streams:
            self._add(stream, hidden)

    def _add(self, stream: Stream, hidden: float) -> None:
        first = next((place for place, row in enumerate(stream.rows) if row in self._crowded), None)
        need = stream.rate_bps * (1.0 if first is None else hidden)
        for row in () if first is None else stream.rows[first:]:
            self.load[row] += need - stream.rate_bps
        exact = self.ways.path(stream.hashed, stream.source, stream.destination) == stream.rows
        member = Member(stream, stream.rows, need, exact)
        self._members.setdefault(stream.destination, []).append(member)

    def relieve(self, free: Callable[[Group], bool], settings: BalanceSettings) -> list[Change]:
        """Return the groups to change for the sake of crowded links, the fullest first; no group changes twice."""
        changes: list[Change] = []
        done: set[Group] = set()
        for row in sorted(self._crowded, key=lambda row: (-self._excess(row), row)):
            for group in self._groups_over(row)[:_TRIED]:
                if len(changes) >= settings.changes_per_round or self._excess(row) <= 0:
                    break
                change = self._try(group, row, settings) if group not in done and free(group) else None
                if change is not None:
                    done.add(group)
                    changes.append(change)
        return changes

    def fits(self, group: Group, spread: Spread, limit: Floats) -> tuple[bool, float]:
        """Return whether all links have room with other weights at one group, and the fullest one's utilisation."""
        lanes = self._lanes(group, tuple(row for row, _ in spread))
        if lanes is None:
            return True, 0.0
        after, expected = lanes.predict([tuple(weight for _, weight in spread)], self.load)
        most = np.maximum(after, expected)[0] + lanes.uncertain_bps
        utilisation = most / self._rate[lanes.rows]
        return bool((most <= limit[lanes.rows]).all()), float(utilisation.max(initial=0.0))

    def _excess(self, row: int) -> float:
        """Return what a link carries beyond what it may, as a share of its rate."""
        return float(max(0.0, self.load[row] - self.limit[row]) / self._rate[row])

    def _groups_over(self, row: int) -> list[Group]:
        """Return the groups that could lead traffic around a link, those first whose traffic loads it most."""
        found: dict[Group, tuple[float, int]] = {}
        for destination, members in self._members.items():
            for member in members:
                if row not in member.rows:
                    continue
                before = member.rows[: member.rows.index(row) + 1]
                for hops, link in enumerate(reversed(before)):
                    group = int(self.ways.table.tail[link]), destination
                    found[group] = found.get(group, (0.0, hops))[0] + member.need_bps, hops
        several = (group for group in found if len(self.ways.usable(*group)) > 1)
        return sorted(several, key=lambda group: (-found[group][0], found[group][1], group))

    def _try(self, group: Group, row: int, settings: BalanceSettings) -> Change | None:
        """Give a group the weights that help a crowded link most, None where none help enough."""
        lanes = self._lanes(group, self.ways.usable(*group))
        if lanes is None:
            return None
        old = self.ways.spread(*group)
        options = [weights for weights in self._options(lanes) if lanes.spread(weights) != old]
        best = self._best(lanes, options) if options else None
        if best is None:
            return None
        before, excess = self.load[row], self._excess(row)
        change = lanes.change(best, self.load)
        left = max(0.0, before + change.get(row, 0.0) - self.limit[row]) / self._rate[row]
        if (left > 0 and excess - left < settings.min_gain) or excess <= left:
            return None
        for changed, more in change.items():
            self.load[changed] += more
        self._move(group, lanes, best)
        rate = self._rate[row]
        return Change(group, old, lanes.spread(best), row, float(before / rate), float(self.load[row] / rate))

    def _options(self, lanes: Lanes) -> list[Weights]:
        room = lanes.room_bps(self.load, self.limit)
        wanted = room if any(room) else [float(self._rate[row]) for row in lanes.options]
        return candidates(wanted, by_ratio=not lanes.exact, limit=lanes.affordable)

    def _best(self, lanes: Lanes, options: list[Weights]) -> Weights | None:
        """Return the weights that leave least beyond the headroom of crowded links and take no other link's."""
        before, limit, rate = self.load[lanes.rows], self.limit[lanes.rows], self._rate[lanes.rows]
        after, expected = lanes.predict(options, self.load)
        gains = after > before + 1.0
        allowed = (~gains | (after + lanes.uncertain_bps <= limit)).all(axis=1)
        if not allowed.any():
            return None
        hot = np.isin(lanes.rows, list(self._crowded))
        excess = (np.maximum(after - limit, 0.0) / rate)[:, hot].sum(axis=1)
        uneven = ((after / rate) ** 2 + (expected / rate) ** 2).sum(axis=1)
        order = np.lexsort((np.arange(len(options)), uneven.round(3), excess.round(3), ~allowed))
        return options[int(order[0])]

    def _lanes(self, group: Group, options: Rows) -> Lanes | None:
        """Return a group's traffic with the ways that it may take; None if it has none."""
        members = list(self._through(group))
        if not members or not options:
            return None
        members.sort(key=lambda member: (-member.need_bps, member.stream.hashed))
        return Lanes(self.ways, self._footprints, group, options, members[:_LARGEST])

    def _through(self, group: Group) -> Iterator[Member]:
        switch, destination = group
        for member in self._members.get(destination, ()):
            if any(int(self.ways.table.tail[row]) == switch for row in member.rows):
                yield member

    def _move(self, group: Group, lanes: Lanes, weights: Weights) -> None:
        """Take a change as made; streams that count by shares are somewhere now, and left alone from here on."""
        self.ways.weights[group] = lanes.spread(weights)
        moved = lanes.moved(weights)
        kept = [
            moved.get(id(member), member)
            for member in self._members[group[1]]
            if member.exact or id(member) not in lanes.ids
        ]
        self._members[group[1]] = kept
