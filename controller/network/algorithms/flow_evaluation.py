"""Evaluation of many flows at once, whether better paths exist: a callable interface to the kernels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from controller.network.algorithms.compiled import compiled
from controller.network.algorithms.costs import HOP_BITS, UNREACHABLE, Costs
from controller.network.algorithms.kernels.flow_evaluation import SHARE_BITS, evaluate_flows, flag_flows
from controller.network.algorithms.link_table import Flags, Ids, LinkTable, Longs
from controller.network.algorithms.structures import FlowColumns, FlowEvaluations, LinkColumns, Workspace, graph_of
from dataplane.native import pointer_to

OPTIMAL, IMPROVABLE, DEAD = 0, 1, 2
"""Values of a flow's flag: no path is better, one is, or the flow's path is dead."""


@dataclass(frozen=True, slots=True, eq=False)
class Evaluations:
    """Results by flow: delay of the present path and of the best one with room (ns), rate, whether the path is dead.

    `possible` is False if there is no such best path. A dead path has no delay, and its best one need not have room.
    """

    present_ns: Longs
    best_ns: Longs
    possible: Flags
    rate_bps: Longs
    dead: Flags


class FlowEvaluator:
    """Calls the kernels on a table's links; no two threads may use one at a time."""

    def __init__(self, table: LinkTable) -> None:
        self._graph, self._workspace = graph_of(table), Workspace.of(table)
        self._predecessor = np.zeros(len(table.switches), np.uint32)
        self._own = np.zeros(len(table.links), np.uint8)

    def flag(
        self,
        costs: Costs,
        distances: Costs,
        flows: FlowColumns,
        rows: Ids,
        flags: npt.NDArray[np.uint8],
        *,
        min_gain: float,
        min_gain_ns: int,
    ) -> None:
        """Set the flags of some flows; IMPROVABLE may be wrong for a flow that would gain slightly too little."""
        compiled(flag_flows)(
            self._graph,
            pointer_to(costs),
            flows,
            pointer_to(rows),
            len(rows),
            pointer_to(distances.reshape(-1)),
            int(min_gain * (1 << SHARE_BITS)),
            min_gain_ns,
            pointer_to(flags),
        )

    def evaluate(
        self, links: LinkColumns, distances: Costs, flows: FlowColumns, rows: Ids, *, searching: bool = True
    ) -> Evaluations:
        """Evaluate some flows; `distances` are those of trees under the same costs.

        Without `searching` the best path is that of a network with room everywhere: a bound, and quickly found.
        """
        size = len(rows)
        present, best = np.empty(size, np.uint64), np.empty(size, np.uint64)
        rate, dead = np.empty(size, np.int64), np.empty(size, np.uint8)
        links.own = pointer_to(self._own)
        compiled(evaluate_flows)(
            self._graph,
            links,
            self._workspace.scratch,
            flows,
            pointer_to(rows),
            size,
            pointer_to(distances.reshape(-1)),
            pointer_to(self._predecessor),
            searching,
            FlowEvaluations(
                present=pointer_to(present), best=pointer_to(best), rate=pointer_to(rate), dead=pointer_to(dead)
            ),
        )
        return Evaluations(_delay_ns(present), _delay_ns(best), best != UNREACHABLE, rate, dead.astype(np.bool_))


def _delay_ns(costs: Costs) -> Longs:
    return (costs >> np.uint64(HOP_BITS)).astype(np.int64)
