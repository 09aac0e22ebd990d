"""The decider without optimisations: every flow is judged with all its candidates before every move."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping

import numpy as np

from collectors.values import Snapshot
from controller.network.algorithms.link_table import Longs
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.decide import Assignment, Verdict, flow_order, judge
from controller.network.paths.deciding.graph import Network, Own, Rows, StateGraph
from controller.network.paths.settings import DecideSettings
from controller.network.paths.telemetry_load import DEFAULT_PACKET_BYTES

Move = tuple[FlowSpec, Rows]


class PlainDecider:
    """One snapshot, one set of flows."""

    def __init__(
        self, network: Network, snapshot: Snapshot, current: Mapping[FlowSpec, Assignment], settings: DecideSettings
    ) -> None:
        self.network, self.settings = network, settings
        self.placed = dict(current)
        none = np.zeros(len(network.table.links), np.int64)
        self.graph = StateGraph.of(network, snapshot, settings, (self._offered_bps(), none))

    def wishes(self, now_ns: int) -> dict[FlowSpec, bool]:
        """Return the flows that should move, and whether their path is dead."""
        verdicts = (self._judge(flow) for flow in self.placed if self._may_move(flow, now_ns))
        return {verdict.flow: not verdict.present.usable for verdict in verdicts if verdict.moves}

    def decide(self, now_ns: int, allowed: Container[FlowSpec]) -> list[tuple[FlowSpec, float]]:
        """Return the flows that move, in order, with their gain."""
        moved: list[tuple[FlowSpec, float]] = []
        levels_first = True
        free = [flow for flow in sorted(self.placed, key=flow_order) if self._may_move(flow, now_ns)]
        while len(moved) < self.settings.moves_per_round:
            waiting = [flow for flow in free if flow in allowed and flow not in dict(moved)]
            verdicts = [verdict for verdict in map(self._judge, waiting) if verdict.moves]
            if not verdicts:
                break
            level = [v for v in verdicts if not v.present.usable or not v.is_detour]
            chosen = level if levels_first and level else verdicts
            best = max(chosen, key=lambda v: (not v.present.usable, v.gain * max(v.rate_bps, 1)))
            levels_first = levels_first and not best.is_detour
            own = Own(best.rate_bps, self.network.rows(best.present.switches), best.packets_per_s)
            self.graph.move(own, best.best.switches)
            old = self.placed[best.flow]
            self.placed[best.flow] = Assignment(best.best.switches, now_ns, old.rate_bps)
            moved.append((best.flow, best.gain))
        return moved

    def _judge(self, flow: FlowSpec) -> Verdict:
        assignment = self.placed[flow]
        rate_bps = self._share_of_load_bps(flow) if assignment.rate_bps is None else assignment.rate_bps
        return judge(self.graph, flow, assignment, rate_bps)

    def _share_of_load_bps(self, flow: FlowSpec) -> int:
        crossing = Counter(row for other in self.placed.values() for row in self.network.rows(other.path))
        rows = [row for row in self.network.rows(self.placed[flow].path) if self.graph.beliefs.known[row]]
        return min((self.graph.used_bps(row) // crossing[row] for row in rows), default=0)

    def _offered_bps(self) -> Longs:
        offered = np.zeros(len(self.network.table.links), np.float64)
        for assignment in self.placed.values():
            rate_bps = assignment.rate_bps or 0
            own = Own(rate_bps, (), rate_bps / (8 * (assignment.packet_bytes or DEFAULT_PACKET_BYTES)))
            for hop, row in enumerate(self.network.rows(assignment.path), 1):
                carried = 0.0 if self.settings.watch is None else self.settings.watch.carried_bytes(hop)
                offered[row] += own.rate_bps + 8 * own.packets_per_s * carried
        return offered.astype(np.int64)

    def _may_move(self, flow: FlowSpec, now_ns: int) -> bool:
        rows = list(self.network.rows(self.placed[flow].path))
        if not all(self.graph.table.alive[rows]):
            return True
        since_ns = self.placed[flow].since_ns
        held = since_ns is not None and now_ns - since_ns < self.settings.hold_down_ns
        moves_ns = [other.since_ns for other in self.placed.values() if other.since_ns is not None]
        settling = bool(moves_ns) and now_ns - max(moves_ns) < self.settings.settle_ns
        return not held and (not settling or bool(self.graph.beliefs.overfull[rows].any()))
