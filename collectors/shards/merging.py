"""One snapshot of those of several collectors, which each took the reports of some switches.

A link's figures are derived from its windows added up, as one collector derives them (`link_windows`, `link_states`):
with stacks of INT every sink's collector has a part of them. What has one owner, as a flow by its sink, is taken from
the collector that heard of it last. A collector that is away stays in the sums with what it said last: the ages of its
links and flows grow, until they count as unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Final, TypeVar

import numpy as np

from collectors.feed.windows.windows import NamedWindows
from collectors.settings import StateSettings
from collectors.state.link_states import LinkColumns, LinkStates, link_states_of
from collectors.state.loss import LinkLoss
from collectors.state.path_states import FIGURES, PathColumns, PathStates, columns_of
from collectors.statistics.columns import UNKNOWN, Flags, Integers
from collectors.statistics.link_windows import BucketRows, LinkWindows, Readings, SlotRows, figures_of, merged
from collectors.statistics.window import SLOTS, WindowColumns
from collectors.values import LossSource, ReporterState, Snapshot
from dataplane.topology.values import LinkKey, Topology

R = TypeVar("R", SlotRows, BucketRows, Readings)

_EXPORTED: Final = ("utilisation", "available_bps", "queue_occupancy_frames", "load_source", "newest_utilisation")


@dataclass(frozen=True, slots=True)
class ShardView:
    """Newest state of a collector: its snapshot, the sums behind its links, and how far the reader's clock is ahead."""

    snapshot: Snapshot
    windows: NamedWindows
    ahead_ns: int

    @property
    def taken_ns(self) -> int:
        """Time of the snapshot by the reader's clock."""
        return self.snapshot.taken_ns + self.ahead_ns


class SnapshotMerger:
    """Merges views of one fabric's collectors; remembers when each link was last heard of."""

    def __init__(self, topology: Topology, state: StateSettings | None = None) -> None:
        """Take collectors whose `state` has the same settings."""
        self._topology, self._state = topology, state or StateSettings()
        self._places = {key: place for place, key in enumerate(topology.directed_links)}
        self._newest_ns: Integers = np.full(len(self._places), UNKNOWN, np.int64)

    def merged(self, views: Sequence[ShardView], now_ns: int) -> Snapshot:
        """Return the state at a time of the reader's clock, of views that fit together (`misfit`), the newest last."""
        links = self._links(views, now_ns)
        paths = [(columns_of(view.snapshot.paths), max(now_ns - view.taken_ns, 0)) for view in views]
        parts = [view.snapshot for view in views]
        return Snapshot(
            now_ns,
            links,
            merged_paths(paths, self._state.forget_path_after_ns),
            MergedReporters([part.reporters for part in parts]),
            {node: clock for part in parts for node, clock in part.clocks.items()},
            {
                key: replace(job, age_ns=job.age_ns + max(now_ns - view.taken_ns, 0))
                for view in views
                for key, job in view.snapshot.jobs.items()
            },
            {key: status for part in parts for key, status in part.statuses.items()},
        )

    def misfit(self, view: ShardView, newest: ShardView) -> str | None:
        """Return why a view cannot be merged with the newest one, None if it can."""
        if view.windows.places.keys() != self._places.keys():
            return f"its links are not those of topology {self._topology.name}"
        own, others = view.windows.windows, newest.windows.windows
        if (own.window_ns, own.tx_window_ns) != (others.window_ns, others.tx_window_ns):
            return "its state has another window or tx_window than the others'"
        return None

    def _links(self, views: Sequence[ShardView], now_ns: int) -> LinkStates:
        first_ns = views[0].ahead_ns
        windows = [shifted(self._placed(view.windows), view.ahead_ns - first_ns) for view in views]
        figures = figures_of(merged(windows))
        newest_ns = np.where(figures.newest_ns == UNKNOWN, UNKNOWN, figures.newest_ns + first_ns)
        self._newest_ns = np.maximum(self._newest_ns, newest_ns)
        columns = LinkColumns(
            self._topology, stale_after_ns=self._state.stale_after_ns, tx_window_ns=windows[0].tx_window_ns
        )
        columns.update(_Merged(replace(figures, newest_ns=self._newest_ns)), now_ns)
        states = [link_states_of(view.snapshot.links) for view in views]
        loss, uncertainty_ns = self._losses(states), self._uncertainty(states)
        return self._completed(columns.states(now_ns, loss, uncertainty_ns), views, states, now_ns)

    def _placed(self, named: NamedWindows) -> LinkWindows:
        """Return windows in the topology's order of links."""
        if list(named.places) == list(self._places):
            return named.windows
        order = np.array([self._places[key] for key in named.places], np.int64)
        windows = named.windows
        return replace(
            windows,
            slots=_in_order(replace(windows.slots, link=order[windows.slots.link])),
            buckets=_in_order(replace(windows.buckets, link=order[windows.buckets.link])),
            readings=_in_order(replace(windows.readings, link=order[windows.readings.link])),
        )

    def _losses(self, states: Sequence[LinkStates]) -> dict[LinkKey, LinkLoss]:
        """Return the loss of each link: the mean of the collectors' weighted by packets, and the sum of lost ones."""
        lost: dict[LinkKey, list[tuple[float, int, int, LossSource]]] = {}
        for links in states:
            places = np.flatnonzero(~np.isnan(links.floats("loss"))).tolist()
            keys = tuple(links.places) if places else ()
            for place in places:
                state = links[keys[place]]
                assert state.loss is not None
                assert state.loss_source is not None
                part = state.loss, state.samples, state.lost_packets or 0, state.loss_source
                lost.setdefault(state.link, []).append(part)
        return {key: _loss_of(parts) for key, parts in lost.items()}

    def _uncertainty(self, states: Sequence[LinkStates]) -> Integers:
        columns = [self._ordered(links, links.integers("delay_uncertainty_ns")) for links in states]
        greatest: Integers = np.maximum.reduce(columns)
        return greatest

    def _ordered(self, links: LinkStates, column: Integers) -> Integers:
        """Return a column in the topology's order of links."""
        if list(links.places) == list(self._places):
            return column
        return column[np.array([links.places[key] for key in self._places], np.int64)]

    def _completed(
        self, links: LinkStates, views: Sequence[ShardView], states: Sequence[LinkStates], now_ns: int
    ) -> LinkStates:
        """Return links whose load devices export to one collector with that load, where telemetry has none."""
        columns = dict(links.columns)
        for view, part in zip(views, states, strict=True):
            source = self._ordered(part, part.integers("load_source"))
            age_ns = self._ordered(part, part.integers("age_ns")) + max(now_ns - view.taken_ns, 0)
            chosen: Flags = (source != UNKNOWN) & (columns["load_source"] == UNKNOWN)
            chosen &= age_ns <= self._state.stale_after_ns
            if not chosen.any():
                continue
            for name in _EXPORTED:
                columns[name] = np.where(chosen, self._ordered(part, part.columns[name]), columns[name])  # type: ignore[arg-type]
            known = np.where(columns["age_ns"] == UNKNOWN, age_ns, np.minimum(columns["age_ns"], age_ns))
            columns["age_ns"] = np.where(chosen, known, columns["age_ns"])
        return LinkStates(self._places, columns)


@dataclass(frozen=True, slots=True, eq=False)
class _Merged:
    """The part of a `ColumnStore` that `LinkColumns` reads."""

    figures: WindowColumns

    def changed_links(self) -> Integers:
        return np.arange(len(self.figures.newest_ns))

    def link_columns(self, places: Integers) -> WindowColumns:
        return WindowColumns(*(getattr(self.figures, field.name)[places] for field in fields(WindowColumns)))


def shifted(windows: LinkWindows, ahead_ns: int) -> LinkWindows:
    """Return windows with times of a clock that is `ahead_ns` ahead.

    Slots move by whole ones, so those of two machines may begin up to half a slot apart; counts and sums stay exact.
    """
    slot_ns = windows.window_ns // SLOTS
    by, by_reading = round(ahead_ns / slot_ns), round(ahead_ns / windows.tx_window_ns)
    slots, buckets, readings = windows.slots, windows.buckets, windows.readings
    newest_ns = np.where(slots.newest_ns == UNKNOWN, UNKNOWN, slots.newest_ns + ahead_ns)
    return replace(
        windows,
        slots=replace(slots, number=slots.number + by, newest_ns=newest_ns),
        buckets=replace(buckets, number=buckets.number + by),
        readings=replace(readings, number=readings.number + by_reading, at_ns=readings.at_ns + ahead_ns),
    )


def merged_paths(parts: Sequence[tuple[PathColumns, int]], longest_age_ns: int) -> PathStates:
    """Return the flows of several collectors, each as the one that heard of it last knows it.

    The number beside the columns is by how much they are older than their ages say; flows older than `longest_age_ns`
    are left out.
    """
    addresses: dict[bytes, int] = {}
    routes: dict[tuple[str, ...], int] = {}
    placed = [_placed_paths(columns, older_ns, addresses, routes) for columns, older_ns in parts if len(columns)]
    joined = _joined_paths(placed, list(addresses), tuple(routes))
    age_ns = joined.integers("age_ns")
    order = np.lexsort((age_ns, joined.dst_port, joined.src_port, joined.protocol, joined.dst, joined.src))
    identity = np.stack([getattr(joined, name)[order] for name in _IDENTITY]) if len(joined) else np.empty((1, 0))
    newest = np.ones(len(joined), np.bool_)
    newest[1:] = (identity[:, 1:] != identity[:, :-1]).any(axis=0)
    chosen = order[newest & (age_ns[order] <= longest_age_ns)]
    return PathStates(len(chosen), lambda: _some_paths(joined, chosen))


_IDENTITY: Final = ("src", "dst", "protocol", "src_port", "dst_port")
_COLUMNS: Final = (*_IDENTITY, "route")


def _placed_paths(
    columns: PathColumns, older_ns: int, addresses: dict[bytes, int], routes: dict[tuple[str, ...], int]
) -> PathColumns:
    """Return paths whose addresses and routes are places among those of all."""
    ends = np.array([addresses.setdefault(one, len(addresses)) for one in columns.addresses], np.int64)
    ways = np.array([routes.setdefault(one, len(routes)) for one in columns.routes], np.int64)
    figures = {**columns.figures, "age_ns": columns.integers("age_ns") + older_ns}
    return replace(columns, src=ends[columns.src], dst=ends[columns.dst], route=ways[columns.route], figures=figures)


def _joined_paths(
    parts: Sequence[PathColumns], addresses: Sequence[bytes], routes: tuple[tuple[str, ...], ...]
) -> PathColumns:
    if not parts:
        return columns_of({})
    about = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    figures = {name: np.concatenate([part.figures[name] for part in parts]) for name in FIGURES}
    return PathColumns(addresses, routes, figures=figures, **about)


def _some_paths(columns: PathColumns, chosen: Integers) -> PathColumns:
    about = {name: getattr(columns, name)[chosen] for name in _COLUMNS}
    figures = {name: column[chosen] for name, column in columns.figures.items()}
    return PathColumns(columns.addresses, columns.routes, figures=figures, **about)


class MergedReporters(Mapping[tuple[int, int], ReporterState]):
    """Accounts of several collectors, added up for each reporter when one is first asked for."""

    def __init__(self, parts: Sequence[Mapping[tuple[int, int], ReporterState]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(self._all)

    def __getitem__(self, key: tuple[int, int]) -> ReporterState:
        return self._all[key]

    @cached_property
    def _all(self) -> dict[tuple[int, int], ReporterState]:
        result: dict[tuple[int, int], ReporterState] = {}
        for part in self._parts:
            for key, state in part.items():
                result[key] = _sum(result[key], state) if key in result else state
        return result


_COUNTS: Final = tuple(field.name for field in fields(ReporterState)[2:])


def _sum(one: ReporterState, other: ReporterState) -> ReporterState:
    return replace(one, **{name: getattr(one, name) + getattr(other, name) for name in _COUNTS})


def _loss_of(parts: Sequence[tuple[float, int, int, LossSource]]) -> LinkLoss:
    packets = sum(samples for _, samples, _, _ in parts)
    if packets:
        share = sum(loss * samples for loss, samples, _, _ in parts) / packets
    else:
        share = max(loss for loss, _, _, _ in parts)
    return LinkLoss(share, parts[-1][3], sum(lost for _, _, lost, _ in parts))


def _in_order(rows: R) -> R:
    """Return rows in order of link; within a link they are in order already."""
    order = np.argsort(rows.link, kind="stable")
    return type(rows)(*(getattr(rows, field.name)[order] for field in fields(rows)))
