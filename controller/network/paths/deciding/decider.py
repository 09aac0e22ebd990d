"""Choice of flows to move and their new paths, from the newest snapshot, the flows' present paths and the settings.

A round moves the flow whose traffic gains most (gain times rate: one large flow that finds room relieves a link as much
as many small ones), predicts the effect on the links, and looks again, up to the round's number of moves. Several rules
keep it stable: margins (`controller.network.paths.deciding.decide`) apply, a moved flow is held down, the network
settles after each move, and a wish to move must last for some rounds. Only a dead path is left at once.

Flows are not judged one by one. Where delay decides, the trees towards all destinations, repaired when links change,
give the best that each flow could have. Only flows that a change can affect are compared with that, only those that
could gain enough are evaluated with their own load and room, and only the one that gains most is judged with all its
candidates. Where bandwidth decides, all flows that could gain by delay or have a wider path are judged.
"""

from __future__ import annotations

import heapq
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from collectors.values import LinkState, Snapshot
from controller.network.algorithms.flow_evaluation import DEAD, OPTIMAL, Evaluations, FlowEvaluator
from controller.network.algorithms.link_table import Flags, Ids, LinkTable, Longs
from controller.network.algorithms.structures import LinkColumns
from controller.network.algorithms.trees import DestinationTrees
from controller.network.algorithms.width_trees import WidthTrees
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.beliefs import Beliefs
from controller.network.paths.deciding.decide import DEAD_GAIN, Assignment, Decision, Verdict, judge
from controller.network.paths.deciding.flow_table import FlowTable
from controller.network.paths.deciding.graph import Network, Own, StateGraph
from controller.network.paths.deciding.located import UNKNOWN, LocatedFlows
from controller.network.paths.settings import DecideSettings, Mode
from dataplane.native import pointer_to
from dataplane.topology.values import LinkKey

_UNLIMITED_BPS: Final = 1 << 62


def could_be_wider(graph: StateGraph, flows: FlowTable, crossing: Longs, widest_bps: Longs) -> Flags:
    """Return for each flow whether some path can be wider than its own by the margins of the mode.

    A flow's load is given back to at most every link of another path, so the width of the widest path of all, without
    that, plus the flow's rate is a bound. `widest_bps` is the width of those paths, by [source, destination].
    """
    table, settings = graph.table, graph.settings
    rates_bps = _rates_bps(graph, flows, crossing)
    present_bps = np.minimum(flows.least(table.rate_bps), flows.least(table.available_bps) + rates_bps)
    hoped_bps = widest_bps[flows.source, flows.destination] + rates_bps
    gain_bps = hoped_bps - present_bps
    if settings.mode is Mode.MOST_BANDWIDTH:
        wider: Flags = (gain_bps > 0) & (gain_bps >= np.maximum(settings.min_gain * present_bps, settings.min_gain_bps))
        return wider
    floor_bps = np.ceil(hoped_bps * settings.widest_share)
    too_narrow: Flags = (present_bps < floor_bps * (1 - settings.min_gain)) & (gain_bps >= settings.min_gain_bps)
    return too_narrow


def _rates_bps(graph: StateGraph, flows: FlowTable, crossing: Longs) -> Longs:
    """Return the flows' rates, where none is known the least equal share of the load of a link that is."""
    seen = graph.beliefs.known & (crossing > 0)
    shares = np.maximum(graph.load_bps, 0) // np.maximum(crossing, 1)
    least = flows.least(np.where(seen, shares, _UNLIMITED_BPS))
    return np.where(flows.rate_bps != UNKNOWN, flows.rate_bps, np.where(least == _UNLIMITED_BPS, 0, least))


_SEARCHED_AT_A_TIME: Final = 16

_LOOK_AHEAD: Final = 256
"""Flows judged in search of one that can leave a crowded link without a detour."""

_Rank = tuple[bool, bool, float, int]
"""Not dead, a detour, benefit negated, row: the smallest moves first."""


@dataclass(slots=True, eq=False)
class _Round:
    """One round's predictions: loads in the graph, and how many flows cross each link."""

    graph: StateGraph
    crossing: Longs
    levels_first: bool = True
    """No detour was made yet: a flow that needs none takes precedence."""

    def columns(self) -> LinkColumns:
        graph = self.graph
        return LinkColumns(
            cost=pointer_to(graph.costs),
            relieved_cost=pointer_to(graph.nominal_costs),
            rate=pointer_to(graph.table.rate_bps),
            load=pointer_to(graph.load_bps),
            headroom=pointer_to(graph.beliefs.headroom_bps),
            known=pointer_to(graph.beliefs.known),
            crossing=pointer_to(self.crossing),
            relieved=pointer_to(graph.relieved),
        )


class Decider:
    """Keeps the state between rounds: beliefs, trees, flows and which of them could gain.

    First `observe` a snapshot and `locate` the flows, in either order, then ask. It is used by one thread at a time.
    """

    def __init__(self, network: Network, settings: DecideSettings) -> None:
        self.network, self.settings = network, settings
        self.beliefs = Beliefs(network.table, settings)
        self.trees = DestinationTrees(self.beliefs.table, self.beliefs.table.costs(), threads=settings.threads)
        self._widths = None if settings.mode is Mode.LEAST_DELAY else _widths_of(self.beliefs.table)
        self.flows = FlowTable.of(network, {})
        self._evaluator = FlowEvaluator(network.table)
        self._flags: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)
        self._wished: Longs = np.zeros(0, np.int64)
        self._wishing_rows: Ids = np.zeros(0, np.uint32)
        self._rebalanced_ns = UNKNOWN

    def observe(
        self, snapshot: Snapshot, down: Set[LinkKey] = frozenset(), drained: Set[LinkKey] = frozenset()
    ) -> None:
        """Take a snapshot of all links, the links known to be down, and those on which nothing may be placed."""
        self._take(self.beliefs.observe(snapshot.links, down, drained))

    def observe_some(self, states: Iterable[LinkState]) -> None:
        """Take new states of some links; the others are unchanged."""
        self._take(self.beliefs.observe_some(states))

    def dead_links(self) -> frozenset[LinkKey]:
        """Return the dead links between switches: with the loss for it, silent for too long, or known to be down."""
        links = self.beliefs.table.links
        return frozenset(links[row] for row in np.flatnonzero(self.beliefs.dead))

    def locate(self, current: Mapping[FlowSpec, Assignment]) -> None:
        """Take all flows with their present paths, of two switches or more each."""
        if not isinstance(current, LocatedFlows):
            current = {flow: assignment for flow, assignment in current.items() if len(assignment.path) > 1}
        moved = self.flows.follow(self.network, current)
        if moved is None:
            wished = {self.flows.names[row]: self._wished[row] for row in self._wishing_rows.tolist()}
            self.locate_all(FlowTable.of(self.network, current))
            if wished:
                self._wished[:] = [wished.get(name, 0) for name in self.flows.names]
            self._wishing_rows = np.flatnonzero(self._wished).astype(np.uint32)
        else:
            self._flag(moved)
            self._offer()

    def locate_all(self, flows: FlowTable) -> None:
        """Take a table of flows in place of the present one."""
        self.flows = flows
        self._flags = np.zeros(len(flows), np.uint8)
        self._wished, self._wishing_rows = np.zeros(len(flows), np.int64), np.zeros(0, np.uint32)
        self._offer()
        self._flag(np.arange(len(flows), dtype=np.uint32))

    def _offer(self) -> None:
        self._take(self.beliefs.offer(self.flows.offered_bps(self.settings.watch), self.flows.uncertain_bps()))

    def step(self, now_ns: int, *, confirming: bool = True) -> list[Decision]:
        """Decide one round: flows leave a dead path, and links that cannot carry their load, at once.

        Others may move if their wish has lasted for `confirm_rounds`; a round that is not `confirming` adds none to
        that. The flows keep their positions until they are placed again.
        """
        this = self._round()
        rows, dead = self._wishing(this, self._free(this, now_ns))
        urgent = dead | self._on_crowded(rows, now_ns)
        decisions = self._moves(this, rows[urgent], now_ns, self.settings.relief_moves)
        if not confirming:
            return decisions
        lasted = self._confirm(rows)
        calm = rows[~urgent & (lasted >= self.settings.confirm_rounds)] if not decisions else rows[:0]
        return decisions + self._moves(this, calm, now_ns, self.settings.moves_per_round)

    def watch(self, now_ns: int) -> None:
        """Count the wishes of a round, and move nothing: another decider moves these flows."""
        this = self._round()
        self._confirm(self._wishing(this, self._free(this, now_ns))[0])

    def _confirm(self, rows: Ids) -> Longs:
        """Count a round in which these flows wish to move, and return for how many they have."""
        lasted: Longs = self._wished[rows] + 1
        # Flows that no longer wish to move start again from 0.
        self._wished[self._wishing_rows] = 0
        self._wished[rows] = lasted
        self._wishing_rows = rows
        return lasted

    def _on_crowded(self, rows: Ids, now_ns: int) -> Flags:
        """Return which of these flows are on links that cannot carry their load.

        While the network settles, only the flows' rates count: measurements are from before the last move.
        """
        if self._just_rebalanced(now_ns):
            return np.zeros(len(rows), np.bool_)
        crowded = self.beliefs.overfull if self._settling(now_ns) else self.beliefs.crowded
        links = np.flatnonzero(crowded).astype(np.uint32)
        if not len(links) or not len(rows):
            return np.zeros(len(rows), np.bool_)
        near = np.isin(rows, self.flows.on_links(links))
        near[near] = [bool(crowded[list(self.flows.rows(row))].any()) for row in rows[near].tolist()]
        return near

    def rebalanced(self, now_ns: int) -> None:
        """Note that weights of groups have changed: positions of flows are unknown until the network has settled."""
        self._rebalanced_ns = now_ns

    @property
    def wishing(self) -> int:
        """Number of flows that wanted to move in the last round, allowed or not."""
        return len(self._wishing_rows)

    def moved(self, decision: Decision) -> None:
        """Take a flow as moved, without placing all flows again."""
        row = self.flows.names.index(decision.flow)
        self.flows.put(row, self.network.rows(decision.new_path), decision.time_ns)
        self._flag(np.array([row], np.uint32))

    def rounds_wished(self, flow: FlowSpec) -> int:
        """Return the number of rounds up to the last one in which a flow has wanted to move."""
        return int(self._wished[self.flows.names.index(flow)])

    def wishes(self, now_ns: int) -> dict[FlowSpec, bool]:
        """Return the flows that are free and should move, each judged as if it alone did; True: its path is dead."""
        this = self._round()
        rows, dead = self._wishing(this, self._free(this, now_ns))
        return {self.flows.names[row]: lost for row, lost in zip(rows.tolist(), dead.tolist(), strict=True)}

    def decide(self, now_ns: int, allowed: Container[FlowSpec] | None = None) -> list[Decision]:
        """Return a round's moves without regard to earlier rounds, in the order in which they were found.

        At most `moves_per_round`, and only of flows that are `allowed`; None allows all.
        """
        this = self._round()
        rows = self._free(this, now_ns)
        if allowed is not None:
            rows = rows[[self.flows.names[row] in allowed for row in rows.tolist()]]
        return self._moves(this, rows, now_ns, self.settings.moves_per_round)

    def leave(self, flows: Iterable[FlowSpec], now_ns: int) -> list[Decision]:
        """Return the moves of flows that must leave their paths, at once: the largest first, which finds room hardest.

        The loads of links are predicted after each; flows without another path are left out.
        """
        this, numbers = self._round(), {name: row for row, name in enumerate(self.flows.names)}
        rows = sorted((numbers[flow] for flow in flows), key=lambda row: (-int(self.flows.rate_bps[row]), row))
        verdicts = (self._judge(this, row) for row in rows)
        return [self._move(this, verdict, now_ns) for verdict in verdicts if verdict.moves]

    def busiest(self, moves: Iterable[Decision] = ()) -> tuple[LinkKey, float] | None:
        """Return the fullest link after some moves, as predicted, with its utilisation; None without any link."""
        this = self._round()
        numbers = {name: row for row, name in enumerate(self.flows.names)}
        for move in moves:
            row = numbers.get(move.flow)
            if row is not None:
                this.graph.move(Own(self._rate_bps(this, row), self.network.rows(move.old_path)), move.new_path)
        shares = np.maximum(this.graph.load_bps, 0) / self.beliefs.table.rate_bps
        fullest = int(shares.argmax()) if len(shares) else None
        return None if fullest is None else (self.beliefs.table.links[fullest], float(shares[fullest]))

    def explain(self, flow: FlowSpec, now_ns: int) -> Verdict:
        """Return the decider's verdict on one flow now, and the reason why it stays; it must have been placed."""
        row = self.flows.names.index(flow)
        verdict = self._judge(self._round(), row)
        if self.flows.pinned[row]:
            reason = f"pinned{', although' if verdict.moves else ';'} {verdict.reason}"
            return replace(verdict, best=verdict.present, gain=0.0, reason=reason)
        if not verdict.moves or not verdict.present.usable:
            return verdict
        settling, held = self._settling(now_ns), self._held(np.array([row]), now_ns)[0]
        if not settling and not held:
            return verdict
        why = "the network is settling after a move" if settling else "in hold-down since its last move"
        return replace(verdict, best=verdict.present, gain=0.0, reason=f"{why}, although {verdict.reason}")

    def _take(self, changed: Ids) -> None:
        """Repair the trees after links have changed, and re-evaluate the flows that this can affect."""
        table = self.beliefs.table
        if self._widths is not None:
            self._widths.update(table.available_bps, table.alive)
        if not len(changed):
            return
        pairs = self.trees.update(changed, table.costs()[changed])
        if pairs.destination is None or pairs.switch is None:
            self._flag(np.arange(len(self.flows), dtype=np.uint32))
        else:
            between = self.flows.between(pairs.destination, pairs.switch)
            self._flag(np.concatenate([self.flows.on_links(changed), between]))

    def _flag(self, rows: Ids) -> None:
        self._evaluator.flag(
            self.trees.costs,
            self.trees.distance,
            self.flows.columns(),
            rows,
            self._flags,
            min_gain=self.settings.min_gain,
            min_gain_ns=self.settings.min_gain_ns or 0,
        )

    def _round(self) -> _Round:
        return _Round(StateGraph(self.network, self.beliefs), self.flows.crossing.copy())

    def _free(self, this: _Round, now_ns: int) -> Ids:
        """Return the rows of the flows that could gain and may move: on dead paths, or not held back."""
        flags = self._flags
        if self._settling(now_ns):
            rows = self._movable(flags)
            urgent = self._on_crowded(rows, now_ns) & ~self._held(rows, now_ns)
            moving: Ids = rows[(flags[rows] == DEAD) | urgent]
            return moving
        if self._widths is not None:
            wider = could_be_wider(this.graph, self.flows, this.crossing, self._widths.width)
            flags = np.maximum(flags, wider)
        rows = self._movable(flags)
        free: Ids = rows[(flags[rows] == DEAD) | ~self._held(rows, now_ns)]
        return free

    def _movable(self, flags: npt.NDArray[np.uint8]) -> Ids:
        """Return the rows of the flows that could gain, by their flags, without those that are pinned."""
        rows = np.flatnonzero(flags != OPTIMAL).astype(np.uint32)
        movable: Ids = rows[~self.flows.pinned[rows]]
        return movable

    def _held(self, rows: Ids, now_ns: int) -> Flags:
        since_ns = self.flows.since_ns[rows]
        held: Flags = (since_ns != UNKNOWN) & (now_ns - since_ns < self.settings.hold_down_ns)
        return held

    def _settling(self, now_ns: int) -> bool:
        last_ns = self.flows.last_move_ns
        moved = last_ns != UNKNOWN and now_ns - last_ns < self.settings.settle_ns
        return moved or self._just_rebalanced(now_ns)

    def _just_rebalanced(self, now_ns: int) -> bool:
        since_ns = self._rebalanced_ns
        return since_ns != UNKNOWN and 0 <= now_ns - since_ns < self.settings.settle_ns

    def _evaluate(self, this: _Round, rows: Ids, *, searching: bool = True) -> Evaluations:
        distance, flows = self.trees.distance, self.flows.columns()
        return self._evaluator.evaluate(this.columns(), distance, flows, rows, searching=searching)

    def _judge(self, this: _Round, row: int) -> Verdict:
        rate_bps = self._rate_bps(this, row)
        return judge(this.graph, self.flows.names[row], self.flows.assignment(row), rate_bps)

    def _rate_bps(self, this: _Round, row: int) -> int:
        return int(self._evaluate(this, np.array([row], np.uint32)).rate_bps[0])

    def _wishing(self, this: _Round, rows: Ids) -> tuple[Ids, Flags]:
        """Return which of these flows should move, each as if it alone did, and whether its path is dead."""
        if self.settings.mode is Mode.LEAST_DELAY:
            weights = self._evaluate(this, rows)
            wants = _wants(weights, self.settings)
            return rows[wants], weights.dead[wants]
        verdicts = [self._judge(this, row) for row in rows.tolist()]
        dead = np.array([not verdict.present.usable for verdict in verdicts], np.bool_)
        wants = np.array([verdict.moves for verdict in verdicts], np.bool_)
        return rows[wants], dead[wants]

    def _moves(self, this: _Round, rows: Ids, now_ns: int, most: int) -> list[Decision]:
        decisions: list[Decision] = []
        while len(decisions) < most and len(rows):
            best = self._best(this, rows)
            if best is None:
                break
            row, verdict = best
            decisions.append(self._move(this, verdict, now_ns))
            rows = rows[rows != row]
        return decisions

    def _best(self, this: _Round, rows: Ids) -> tuple[int, Verdict] | None:
        """Return the flow that should move first, None if none should."""
        if self.settings.mode is Mode.LEAST_DELAY:
            return self._best_ranked(this, rows)
        judged = ((row, self._judge(this, row)) for row in rows.tolist())
        moving = ((row, verdict) for row, verdict in judged if verdict.moves)
        return min(moving, key=lambda move: _rank_of(*move, levels_first=this.levels_first), default=None)

    def _best_ranked(self, this: _Round, rows: Ids) -> tuple[int, Verdict] | None:
        """Return the flow that gains most; ranks are upper bounds of each gain, as telemetry takes room, too."""
        best: tuple[_Rank, Verdict] | None = None
        for looked, hope in enumerate(self._ranked(this, rows)):
            if best is not None and (best[0] <= hope or looked >= _LOOK_AHEAD):
                break
            verdict = self._judge(this, hope[-1])
            rank = _rank_of(hope[-1], verdict, levels_first=this.levels_first)
            if verdict.moves and (best is None or rank < best[0]):
                best = rank, verdict
        return None if best is None else (best[0][-1], best[1])

    def _ranked(self, this: _Round, rows: Ids) -> Iterator[_Rank]:
        """Yield the ranks of the flows that want to move, detours or not, in the order of `_rank_of`.

        All are ranked by their possible gain with room everywhere; the actual gain is searched in that order, and no
        further than needed.
        """
        hopes = self._rank(rows, self._evaluate(this, rows, searching=False))
        ranks: list[_Rank] = []
        for start in range(0, len(hopes), _SEARCHED_AT_A_TIME):
            while ranks and ranks[0] <= hopes[start]:
                yield heapq.heappop(ranks)
            some = np.array([row for *_, row in hopes[start : start + _SEARCHED_AT_A_TIME]], np.uint32)
            for rank in self._rank(some, self._evaluate(this, some)):
                heapq.heappush(ranks, rank)
        while ranks:
            yield heapq.heappop(ranks)

    def _rank(self, rows: Ids, weights: Evaluations) -> list[_Rank]:
        """Return the flows that should move by these weights, best first."""
        wants = _wants(weights, self.settings)
        present_ns, dead = weights.present_ns[wants], weights.dead[wants]
        gain_ns = present_ns - weights.best_ns[wants]
        gain = np.where(dead, DEAD_GAIN, gain_ns / np.maximum(present_ns, 1))
        benefit = gain * np.maximum(weights.rate_bps[wants], 1)
        order = np.lexsort((rows[wants], -benefit, ~dead))
        columns = (column[order].tolist() for column in (~dead, np.zeros_like(dead), -benefit, rows[wants]))
        return list(zip(*columns, strict=True))

    def _move(self, this: _Round, verdict: Verdict, now_ns: int) -> Decision:
        old, new = verdict.present.switches, verdict.best.switches
        own = Own(verdict.rate_bps, self.network.rows(old), verdict.packets_per_s)
        this.graph.move(own, new)
        this.levels_first = this.levels_first and not verdict.is_detour
        this.crossing[list(self.network.rows(old))] -= 1
        this.crossing[list(self.network.rows(new))] += 1
        return Decision(now_ns, verdict.flow, old, new, verdict.candidates, verdict.reason)


def _widths_of(table: LinkTable) -> WidthTrees:
    return WidthTrees(table, table.available_bps, table.alive)


def _wants(weights: Evaluations, settings: DecideSettings) -> Flags:
    """Return which flows should move, by delay: those on dead paths, and those that gain more than the margins."""
    gain_ns = weights.present_ns - weights.best_ns
    margin_ns = np.maximum(settings.min_gain * weights.present_ns, settings.min_gain_ns or 0)
    wants: Flags = weights.possible & (weights.dead | ((gain_ns > 0) & (gain_ns >= margin_ns)))
    return wants


def _rank_of(row: int, verdict: Verdict, *, levels_first: bool) -> _Rank:
    """Rank moves: off dead links first, then without detours, as those load more links than they relieve.

    Then by gain times rate, so that few flows move and the round helps most.
    """
    benefit = verdict.gain * max(verdict.rate_bps, 1)
    return verdict.present.usable, levels_first and verdict.is_detour, -benefit, row
