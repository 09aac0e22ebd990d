"""Evacuation of flows from dead links, all of a link's in one round, and their return a hold time after its recovery.

A link is dead if it was reported down (by the controller, from ports and hellos, or by an operator), or if the decider
considers it dead by its measurements. The controller delays its reports of recovered links itself; for the rest the
hold time is here.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Set
from dataclasses import dataclass, field, replace

from collectors.values import LinkCondition, LinkStatus
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.backups import Backups, links_of
from controller.network.paths.deciding.decide import Assignment, Decision
from controller.network.paths.deciding.graph import Path
from dataplane.topology.values import LinkKey


@dataclass(slots=True)
class ReportedLinks:
    """Links reported as down: by a user, until revoked, and by the controller, with the cause."""

    by_hand: set[LinkKey] = field(default_factory=set)
    watched: dict[LinkKey, str] = field(default_factory=dict)

    def watch(self, statuses: Mapping[LinkKey, LinkStatus], known: Set[LinkKey]) -> bool:
        """Take the controller's reports on all links; return whether one went down."""
        down = LinkCondition.DOWN
        before = self.watched.keys()
        self.watched = {
            key: status.cause for key, status in statuses.items() if status.condition is down and key in known
        }
        return not self.watched.keys() <= before

    @property
    def down(self) -> Set[LinkKey]:
        """The links that are down."""
        return self.by_hand | self.watched.keys()

    def describe(self, link: LinkKey) -> str:
        """Return a dead link with the cause, if known."""
        return f"{link} ({self.watched[link]})" if self.watched.get(link) else str(link)


@dataclass(frozen=True, slots=True)
class _Left:
    """Record of a flow that left a dead link: its old path, whether that was explicit, and its new path."""

    old_path: Path
    new_path: Path
    link: LinkKey
    explicit: bool


class Evacuation:
    """Remembers which flows left their paths for a dead link, and when links came back."""

    def __init__(self, backups: Backups, reported: ReportedLinks, *, return_after_ns: int) -> None:
        self._backups, self._reported, self._return_after_ns = backups, reported, return_after_ns
        self._left: dict[FlowSpec, _Left] = {}
        self._dead: frozenset[LinkKey] = frozenset()
        self._back_ns: dict[LinkKey, int] = {}
        self._was_watched: set[LinkKey] = set()

    @property
    def is_waiting(self) -> bool:
        """Return whether any flow is to return to its old path."""
        return bool(self._left)

    @property
    def waiting(self) -> Collection[FlowSpec]:
        """The flows that are due to return."""
        return self._left.keys()

    def restore(self, newest_first: Iterable[Decision]) -> None:
        """Restore from saved decisions which flows have yet to return."""
        seen: set[FlowSpec] = set()
        for decision in newest_first:
            if decision.flow not in seen and decision.dead_link is not None:
                self._left[decision.flow] = _Left(
                    decision.old_path, decision.new_path, decision.dead_link, explicit=True
                )
            seen.add(decision.flow)

    def leave(
        self,
        current: Mapping[FlowSpec, Assignment],
        explicit: Container[FlowSpec],
        dead: frozenset[LinkKey],
        now_ns: int,
    ) -> list[Decision]:
        """Return the moves of all flows whose paths have a dead link, to their backups if those are alive."""
        self._note(dead, now_ns)
        decisions: list[Decision] = []
        for flow, assignment in current.items() if dead else ():
            lost = next((key for key in links_of(assignment.path) if key in dead), None)
            detour = None if lost is None else self._backups.around(assignment.path, dead)
            if lost is None or detour is None:
                continue
            path, kind = detour
            names = "-".join(assignment.path), "-".join(path)
            reason = f"link {self._reported.describe(lost)} of {names[0]} is dead; {names[1]} is {kind}"
            decisions.append(Decision(now_ns, flow, assignment.path, path, (), reason, lost))
            before = self._left.get(flow)
            if before is None or before.new_path != assignment.path:
                before = _Left(assignment.path, path, lost, flow in explicit)
            self._left[flow] = replace(before, new_path=path)
        return decisions

    def come_back(self, current: Mapping[FlowSpec, Assignment], now_ns: int) -> list[tuple[Decision, bool]]:
        """Return the moves of the flows whose old paths have been alive for the hold time, True for explicit ones."""
        decisions: list[tuple[Decision, bool]] = []
        for flow, left in list(self._left.items()):
            assignment = current.get(flow)
            if assignment is None or assignment.path != left.new_path:
                # No longer seen, or moved since for another reason: it does not return.
                del self._left[flow]
            elif self.is_usable(left.old_path):
                del self._left[flow]
                names = "-".join(left.new_path), "-".join(left.old_path)
                reason = f"link {left.link} is alive again: from {names[0]} back to {names[1]}"
                decisions.append((Decision(now_ns, flow, left.new_path, left.old_path, (), reason), left.explicit))
        return decisions

    def _note(self, dead: frozenset[LinkKey], now_ns: int) -> None:
        for link in self._dead - dead:
            # The controller has already waited.
            self._back_ns[link] = now_ns - (self._return_after_ns if link in self._was_watched else 0)
        for link in dead:
            self._back_ns.pop(link, None)
        self._back_ns = {
            link: back_ns for link, back_ns in self._back_ns.items() if now_ns - back_ns < self._return_after_ns
        }
        self._was_watched = (self._was_watched & dead) | self._reported.watched.keys()
        self._dead = dead

    def forget(self, flow: FlowSpec) -> None:
        """Cancel a flow's return to the path that it left."""
        self._left.pop(flow, None)

    def is_usable(self, path: Path) -> bool:
        """Return whether all links of a path have been alive for the hold time."""
        links = set(links_of(path))
        return not links & self._dead and not links & self._back_ns.keys()
