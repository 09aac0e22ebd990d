"""Avoidance of dead and drained links: which links those are, and the moves of flows off them and back."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from collectors.values import LinkStatus, Snapshot
from controller.common.errors import StaleDrainsError
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.backups import Backups
from controller.network.paths.deciding.decide import Decision
from controller.network.paths.deciding.decider import Decider
from controller.network.paths.deciding.evacuation import Avoided, Choose, Evacuation, ReportedLinks
from controller.network.paths.draining import DrainForecast, Present, staying
from controller.network.paths.drains import Drains
from controller.network.paths.positions import FlowPositions
from controller.network.paths.records.values import Drain, DrainChange, DrainEffect, DrainList
from dataplane.topology.values import LinkKey


class Avoidance:
    """The links out of use, by reports, drains and the decider's beliefs; moves are applied to the positions."""

    def __init__(self, decider: Decider, positions: FlowPositions, *, return_after_ns: int) -> None:
        network = decider.network
        self._decider, self._positions, self._links = decider, positions, network.table.link_number.keys()
        self.reported = ReportedLinks()
        self.drains = Drains(network.topology)
        self.backups = Backups(network.table)
        self._evacuation = Evacuation(self.backups, self.reported, return_after_ns=return_after_ns)
        self._forecast = DrainForecast(decider, self._evacuation, positions)

    def watch(self, statuses: Mapping[LinkKey, LinkStatus]) -> bool:
        """Take the controller's reports on all links; return whether one between switches went down."""
        return self.reported.watch(statuses, self._links)

    def observe(self, snapshot: Snapshot) -> None:
        """Let the decider observe a snapshot, and the links that are reported down or drained."""
        self._decider.observe(snapshot, self.reported.down, self.drains.links)

    @property
    def avoided(self) -> Avoided:
        """The links that flows must leave, by the last snapshot."""
        return Avoided(self._decider.dead_links(), self.drains.links)

    @property
    def unusable(self) -> Avoided:
        """The links that flows must leave, and those reported down since the last snapshot."""
        return Avoided(self._decider.dead_links() | self.reported.down, self.drains.links)

    def leave(self, snapshot: Snapshot, now_ns: int) -> list[Decision]:
        """Move all flows off dead links, to their backups where those are alive, and off drained ones."""
        avoided, positions = self.avoided, self._positions
        current = positions.on_links(avoided.links, snapshot, now_ns)
        left = self._evacuation.leave(current, positions.explicit.keys(), avoided, self._chooser(snapshot), now_ns)
        decisions = [replace(move, reason=positions.pins.told(move.flow, move.reason)) for move in left]
        for decision in decisions:
            positions.apply(decision)
        return decisions

    def come_back(self, snapshot: Snapshot, now_ns: int) -> list[Decision]:
        """Move flows back to the paths that they left, when the links there are in use again."""
        positions, pins = self._positions, self._positions.pins
        if not self._evacuation.is_waiting and not pins.paths:
            return []
        located = positions.current(snapshot, now_ns)
        waiting = (*pins.paths, *self._evacuation.waiting)
        current = positions.decided({flow: located[flow] for flow in waiting if flow in located})
        paths = {flow: assignment.path for flow, assignment in current.items()}
        pinned = list(pins.returning(paths, self._evacuation.is_usable, now_ns))
        for decision in pinned:
            self._evacuation.forget(decision.flow)
            positions.apply(decision)
        back = self._evacuation.come_back(current, now_ns)
        for decision, is_explicit in back:
            positions.apply(decision)
            if not is_explicit:
                positions.explicit.pop(decision.flow, None)
        return [*pinned, *(decision for decision, _ in back)]

    def stay(self, flow: FlowSpec) -> None:
        """Cancel a flow's return to the path that it left."""
        self._evacuation.forget(flow)

    def foresee(self, change: DrainChange, snapshot: Snapshot, now_ns: int) -> tuple[DrainEffect, Drains]:
        """Return a drain's effect by a snapshot, and the drains after it; nothing changes.

        Raise StaleDrainsError if the drains have changed since the change's revision, NoSuchPathError for an unknown
        element, PathError for putting back what is not drained.
        """
        before = self.drains
        if change.revision not in {None, before.revision}:
            raise StaleDrainsError("the drains have changed since this was shown: look again")
        drain = Drain(before.name(change.element), now_ns, change.by, change.note)
        after = before.changed(drain, is_drained=change.drained)
        present = Present(snapshot, now_ns, self._positions.current(snapshot, now_ns), self._chooser(snapshot))
        self._decider.observe(snapshot, self.reported.down, after.links)
        try:
            return self._forecast.effect(drain.element, before, after, present), after
        finally:
            self.observe(snapshot)

    def drained(self, snapshot: Snapshot, now_ns: int) -> DrainList:
        """Return the drained elements and the flows that stay on them."""
        drains = self.drains
        stays = staying(self._positions.on_links(drains.links, snapshot, now_ns), (), drains)
        return DrainList(tuple(drains.elements.values()), stays, drains.revision)

    def clear(self) -> None:
        """Forget all flows that are due to return."""
        self._evacuation.clear()

    def restore(self, drains: Sequence[Drain], newest_first: Iterable[Decision]) -> int:
        """Restore the saved drains that still fit, and the flows that have yet to return; return how many did not."""
        self._evacuation.restore(newest_first)
        self.drains = Drains.restored(self._decider.network.topology, drains)
        return len(drains) - len(self.drains.elements)

    def _chooser(self, snapshot: Snapshot) -> Choose:
        """Return the choice of paths for flows that leave drained links: there is time to weigh them."""

        def choose(flows: Collection[FlowSpec], now_ns: int) -> list[Decision]:
            self._decider.locate(self._positions.current(snapshot, now_ns))
            return self._decider.leave(flows, now_ns)

        return choose
