"""Preemption: the fewest pods of the lowest priority that must leave for pods of a higher priority to fit.

Pure. A group leaves as a whole or not at all, wherever its pods are. The bandwidth of a pod is released with it, so a
pod on another node may have to leave for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from controller.cluster.cost_map import CostMap
from controller.cluster.hardware import Shares
from controller.scheduling.containers.reservations import Reservation, with_reservations
from controller.scheduling.framework.deciding import decide, filtered
from controller.scheduling.pods import PendingPod, PodProfile, Snapshot, place_group

MOST_NODES: Final = 64
"""Maximum number of nodes to examine: those with the least to evict if all their pods left."""


_Fits = Callable[[Sequence["_Unit"]], bool]
"""Returns whether a pod or a group fits without the given units."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A pod that holds shares of a node, given by number; `priority` is its group's, if it has one.

    If `is_leaving`, it will release them soon, whatever is decided.
    """

    pod: str
    node: int
    shares: Shares
    priority: int = 0
    group: str = ""
    is_leaving: bool = False
    reservations: tuple[Reservation, ...] = ()


@dataclass(frozen=True, slots=True)
class Room:
    """A way to make room: the victims and the node of each pod; no victims if pods already leaving suffice."""

    victims: tuple[str, ...]
    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Unit:
    """Pods that leave together."""

    holders: tuple[Holder, ...]

    @property
    def priority(self) -> int:
        return max(holder.priority for holder in self.holders)

    @property
    def names(self) -> frozenset[str]:
        return frozenset(holder.pod for holder in self.holders)


@dataclass(frozen=True, eq=False)
class Cluster:
    """A snapshot and the holders of its shares; `unreserved` is the cost map without any reservations."""

    snapshot: Snapshot
    holders: tuple[Holder, ...]
    unreserved: CostMap | None = None

    def without(self, gone: frozenset[str]) -> Snapshot:
        """Return the snapshot in which these pods hold nothing."""
        free, groups, costs = self.snapshot.free.copy(), dict(self.snapshot.groups), self.snapshot.costs
        going = [holder for name in gone for holder in self._by_pod.get(name, ())]
        for holder in going:
            free.add(self.snapshot.columns, holder.node, holder.shares, 1)
            if (counts := groups.get(holder.group)) is not None:
                groups[holder.group] = {**counts, holder.node: counts.get(holder.node, 0) - 1}
        if self.unreserved is not None and any(holder.reservations for holder in going):
            kept = (
                reservation for holder in self.holders if holder.pod not in gone for reservation in holder.reservations
            )
            costs = with_reservations(self.unreserved, kept)
        return replace(self.snapshot, free=free, groups=groups, costs=costs)

    @cached_property
    def _by_pod(self) -> dict[str, list[Holder]]:
        by_pod: defaultdict[str, list[Holder]] = defaultdict(list)
        for holder in self.holders:
            by_pod[holder.pod].append(holder)
        return dict(by_pod)

    @cached_property
    def leaving(self) -> frozenset[str]:
        """Holders that are already leaving."""
        return frozenset(holder.pod for holder in self.holders if holder.is_leaving)


def make_room(profile: PodProfile, pods: Sequence[PendingPod], cluster: Cluster, priority: int) -> Room | None:
    """Return the victims for a pod or for all pods of a group; None if no pods of a lower priority would help.

    Prefers the option whose victims' highest priority is lowest, then the fewest pods, then the lowest sum of
    priorities. Each option must pass the same filters as any decision.
    """
    leaving = cluster.leaving
    if (nodes := _nodes_for(profile, pods, cluster.without(leaving))) is not None:
        return Room((), nodes)
    units = [unit for unit in _units(cluster.holders, leaving) if unit.priority < priority]
    all_names = leaving.union(*(unit.names for unit in units))
    nodes = _nodes_for(profile, pods, cluster.without(all_names))
    if not units or nodes is None:
        return None
    if len(pods) > 1:
        chosen = _fewest_for_group(profile, pods, cluster, units, nodes)
    else:
        chosen = _fewest_for_pod(profile, pods[0], cluster, units, all_names)
    if chosen is None:
        return None
    nodes = _nodes_for(profile, pods, cluster.without(leaving.union(*(unit.names for unit in chosen))))
    victims = sorted(name for unit in chosen for name in unit.names)
    return None if nodes is None else Room(tuple(victims), nodes)


def _units(holders: Iterable[Holder], leaving: frozenset[str]) -> list[_Unit]:
    """Return the units that can leave, groups as a whole: if one pod of a group is leaving, the rest leave with it."""
    together: defaultdict[str, list[Holder]] = defaultdict(list)
    for holder in holders:
        if holder.pod not in leaving:
            together[f"group/{holder.group}" if holder.group else f"pod/{holder.pod}"].append(holder)
    return [_Unit(tuple(pods)) for pods in together.values()]


def _nodes_for(profile: PodProfile, pods: Sequence[PendingPod], snapshot: Snapshot) -> tuple[int, ...] | None:
    """Return the nodes of all pods, None if some do not fit."""
    if len(pods) == 1:
        choice = decide(profile, pods[0], snapshot)
        return (choice.candidate,) if choice.is_placed else None
    placed = place_group(profile, pods, snapshot)
    return tuple(choice.candidate for choice in placed.choices) if placed.is_placed else None


def _fewest_for_pod(
    profile: PodProfile, pod: PendingPod, cluster: Cluster, units: Sequence[_Unit], all_names: frozenset[str]
) -> list[_Unit] | None:
    """Return the best set of units over the nodes that could run a pod if all units left."""
    empty = profile.seen(pod, cluster.without(all_names))
    passing, _ = filtered(profile, pod, empty)
    options, on = [], _by_node(units)
    for node in passing.nonzero()[0].tolist():
        units_here = on.get(node, [])
        options.append((_cost(units_here), node, units_here))
    best: list[_Unit] | None = None
    for _, node, units_here in sorted(options, key=lambda option: option[:2])[:MOST_NODES]:

        def fits(gone: Sequence[_Unit], node: int = node) -> bool:
            names = cluster.leaving.union(*(unit.names for unit in gone))
            return bool(filtered(profile, pod, profile.seen(pod, cluster.without(names)))[0][node])

        start = units_here
        if not fits(start):  # something else is missing, such as bandwidth on a path
            start = units_here + [unit for unit in units if unit not in units_here and _has_reservations(unit)]
            if not fits(start):
                continue
        needed = _spared(start, fits)
        if best is None or _cost(needed) < _cost(best):
            best = needed
    return best


def _by_node(units: Sequence[_Unit]) -> dict[int, list[_Unit]]:
    by_node: defaultdict[int, list[_Unit]] = defaultdict(list)
    for unit in units:
        for node in sorted({holder.node for holder in unit.holders}):
            by_node[node].append(unit)
    return dict(by_node)


def _fewest_for_group(
    profile: PodProfile, pods: Sequence[PendingPod], cluster: Cluster, units: Sequence[_Unit], nodes: tuple[int, ...]
) -> list[_Unit] | None:
    """Return a minimal set of units whose removal lets a group be placed."""

    def fits(gone: Sequence[_Unit]) -> bool:
        names = cluster.leaving.union(*(unit.names for unit in gone))
        return _nodes_for(profile, pods, cluster.without(names)) is not None

    near = [unit for unit in units if any(holder.node in nodes for holder in unit.holders)]
    start = near if fits(near) else list(units)
    return _spared(start, fits) if fits(start) else None


def _spared(units: Sequence[_Unit], fits: _Fits) -> list[_Unit]:
    """Return a minimal set of units: spare one after the other, the highest and largest first, while it still fits."""
    kept = sorted(units, key=lambda unit: (-unit.priority, -len(unit.holders), min(unit.names)))
    for unit in list(kept):
        others = [other for other in kept if other is not unit]
        if fits(others):
            kept = others
    return kept


def _cost(units: Sequence[_Unit]) -> tuple[int, int, int]:
    priorities = [holder.priority for unit in units for holder in unit.holders]
    return max(priorities, default=-(1 << 62)), len(priorities), sum(priorities)


def _has_reservations(unit: _Unit) -> bool:
    return any(holder.reservations for holder in unit.holders)
