"""Evacuation of flows from dead and drained links, all of a link's in one round, and their return.

From a dead link they return a hold time after its recovery, to a drained one when it is no longer drained.

A link is dead if it was reported down (by the controller, from ports and hellos, or by an operator), or if the decider
considers it dead by its measurements. The controller delays its reports of recovered links itself; for the rest the
hold time is here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence, Set
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
class Avoided:
    """Links that flows must leave: dead ones at once, drained ones for the path that suits them best."""

    dead: frozenset[LinkKey] = frozenset()
    drained: frozenset[LinkKey] = frozenset()

    @property
    def links(self) -> frozenset[LinkKey]:
        """All of them."""
        return self.dead | self.drained


Choose = Callable[[Collection[FlowSpec], int], Sequence[Decision]]
"""Returns the moves of flows, which have a path to go to, at a time."""


@dataclass(frozen=True, slots=True)
class _Left:
    """Record of a flow that left a link: its old path, whether that was explicit, and its new path."""

    old_path: Path
    new_path: Path
    link: LinkKey
    explicit: bool


class Evacuation:
    """Remembers which flows left their paths for a dead or drained link, and when links came back."""

    def __init__(self, backups: Backups, reported: ReportedLinks, *, return_after_ns: int) -> None:
        self._backups, self._reported, self._return_after_ns = backups, reported, return_after_ns
        self._left: dict[FlowSpec, _Left] = {}
        self._avoided = Avoided()
        self._back_ns: dict[LinkKey, int] = {}
        self._needs_no_wait: Set[LinkKey] = frozenset()

    @property
    def is_waiting(self) -> bool:
        """Return whether any flow is to return to its old path."""
        return bool(self._left)

    @property
    def waiting(self) -> Collection[FlowSpec]:
        """The flows that are due to return."""
        return self._left.keys()

    def clear(self) -> None:
        """Forget all flows that are due to return."""
        self._left.clear()

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
        avoided: Avoided,
        choose: Choose,
        now_ns: int,
    ) -> list[Decision]:
        """Return the moves of all flows whose paths have a dead or drained link, and remember them."""
        self._note(avoided, now_ns)
        decisions = self.moves(current, avoided, choose, now_ns)
        for decision in decisions:
            before = self._left.get(decision.flow)
            if before is None or before.new_path != decision.old_path:
                assert decision.dead_link is not None, "every move here leaves a link"
                explicitly = decision.flow in explicit
                before = _Left(decision.old_path, decision.new_path, decision.dead_link, explicitly)
            self._left[decision.flow] = replace(before, new_path=decision.new_path)
        return decisions

    def moves(
        self, current: Mapping[FlowSpec, Assignment], avoided: Avoided, choose: Choose, now_ns: int
    ) -> list[Decision]:
        """Return the moves off dead links to backups, and off drained ones to the paths that `choose` finds.

        Where every other path has a drained link, too, flows leave only for one with fewer.
        """
        decisions: list[Decision] = []
        unhurried: dict[FlowSpec, LinkKey] = {}
        for flow, assignment in current.items() if avoided.links else ():
            links = links_of(assignment.path)
            lost = next((key for key in links if key in avoided.dead), None)
            left = lost or next((key for key in links if key in avoided.drained), None)
            detour = None if left is None else self._backups.around(assignment.path, avoided.dead, avoided.drained)
            if left is None or detour is None:
                continue
            path, kind = detour
            if lost is None and avoided.drained.isdisjoint(links_of(path)):
                unhurried[flow] = left
                continue
            names = "-".join(assignment.path), "-".join(path)
            state = f"link {left} of {names[0]} is drained"
            if lost is not None:
                state = f"link {self._reported.describe(lost)} of {names[0]} is dead"
            decisions.append(Decision(now_ns, flow, assignment.path, path, (), f"{state}; {names[1]} is {kind}", left))
        chosen = choose(unhurried, now_ns) if unhurried else ()
        return [*decisions, *(replace(decision, dead_link=unhurried[decision.flow]) for decision in chosen)]

    def come_back(self, current: Mapping[FlowSpec, Assignment], now_ns: int) -> list[tuple[Decision, bool]]:
        """Return the moves of the flows whose old paths have been alive for the hold time, True for explicit ones."""
        for flow, left in list(self._left.items()):
            assignment = current.get(flow)
            if assignment is None or assignment.path != left.new_path:
                # No longer seen, or moved since for another reason: it does not return.
                del self._left[flow]
        back = self.returning(current, self.is_usable, now_ns)
        for decision, _ in back:
            del self._left[decision.flow]
        return back

    def returning(
        self, current: Mapping[FlowSpec, Assignment], is_usable: Callable[[Path], bool], now_ns: int
    ) -> list[tuple[Decision, bool]]:
        """Return the moves back to old paths that are usable, True for explicit ones."""
        decisions: list[tuple[Decision, bool]] = []
        for flow, left in self._left.items():
            if flow in current and current[flow].path == left.new_path and is_usable(left.old_path):
                names = "-".join(left.new_path), "-".join(left.old_path)
                reason = f"link {left.link} is in use again: from {names[0]} back to {names[1]}"
                decisions.append((Decision(now_ns, flow, left.new_path, left.old_path, (), reason), left.explicit))
        return decisions

    def _note(self, avoided: Avoided, now_ns: int) -> None:
        for link in self._avoided.links - avoided.links:
            # Whoever took the link out of use has already waited.
            self._back_ns[link] = now_ns - (self._return_after_ns if link in self._needs_no_wait else 0)
        for link in avoided.links:
            self._back_ns.pop(link, None)
        self._back_ns = {
            link: back_ns for link, back_ns in self._back_ns.items() if now_ns - back_ns < self._return_after_ns
        }
        self._needs_no_wait = (self._needs_no_wait & avoided.links) | self._reported.watched.keys() | avoided.drained
        self._avoided = avoided

    def forget(self, flow: FlowSpec) -> None:
        """Cancel a flow's return to the path that it left."""
        self._left.pop(flow, None)

    def is_usable(self, path: Path, undrained: Set[LinkKey] = frozenset()) -> bool:
        """Return whether all links of a path have been in use for the hold time; `undrained` ones count as such."""
        links = set(links_of(path)) - undrained
        return not links & self._avoided.links and not links & self._back_ns.keys()
