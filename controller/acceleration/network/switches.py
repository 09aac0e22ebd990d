"""The switch as a choice: in-network aggregation of fixed-width sums instead of reduction on machines.

Each machine computes its part, on its CPU or an accelerator, and sends the sums once; switches add them up and send the
result to all (docs/training/allreduce.md). No round computes on a machine; only a machine's own part crosses an
accelerator's bus.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from collectors.values import DelaySource, LinkState, Snapshot
from controller.acceleration.model import Choice, Works, choice_of, times
from controller.acceleration.network.hardware import SwitchSpec
from controller.acceleration.network.timing import GB_BITS, free_bps_of
from controller.acceleration.values import SWITCH, Accelerator, Machines, Network
from controller.cluster.cost_map import CostMap
from controller.common.errors import ControllerError
from controller.network.aggregation.placement import links_between, place
from controller.network.base_paths import NextHops, next_hops
from controller.network.intents import AggregationTree, Leaf
from dataplane.allreduce.formats import BLOCK, headroom
from dataplane.clock import NS_PER_S
from dataplane.topology.values import LinkKey
from dataplane.wire import aggregation, ethernet, ipv4, udp

LANE_BITS: Final = 31
"""Bits of a sum in a lane of int32, without the sign."""
FRAME_BYTES: Final = ethernet.SIZE + ipv4.MIN_SIZE + udp.SIZE + aggregation.SIZE + 4 * BLOCK
"""A packet of 256 lanes on the wire."""
_FUNCTION: Final = re.compile(r"(?P<name>[a-z_0-9]+)\((?P<inner>.*)\)", re.DOTALL)
_COLUMNS_OF: Final = {"sum": 1, "sum_no_overflow": 1, "count": 1, "count_star": 1, "avg": 2}
"""Aggregate functions that are sums, with their number of columns; a mean is a sum and a count."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Sums of an operator: `columns` sums or counts for each of `groups`, in integers of `bits` or in float32.

    All machines must number the groups identically. Integers wider than a lane take several lanes, so that sums are
    exact; float32 is as exact as in an all-reduce.
    """

    groups: int
    columns: int = 1
    bits: int = 64
    is_float: bool = False

    def lanes(self, machines: int) -> int:
        """Return the number of 32-bit lanes for the sums of this many machines."""
        each = 1 if self.is_float else -(-self.bits // (LANE_BITS - headroom(machines)))
        return self.groups * self.columns * each


@dataclass(frozen=True, slots=True)
class SwitchTree:
    """Aggregation tree for the sums of all machines, and its cost: `s_per_gb` of packets sent by each machine.

    `slots` are the lanes in the job's cells, two cells for 256. `busiest` is the bottleneck link.
    """

    tree: AggregationTree
    machines: int
    s_per_gb: float
    delay_s: float
    slots: int
    busiest: LinkKey

    def transfer_s(self, sums: Sums) -> float:
        """Return the time from the first packet sent until all machines have the result."""
        items = -(-sums.lanes(self.machines) // BLOCK)
        # Blocks first agree on their exponents: one more item for 256 of them.
        items += -(-items // BLOCK) if sums.is_float else 0
        return items * FRAME_BYTES / 1e9 * self.s_per_gb + self.delay_s


def sums_of(aggregates: Iterable[str], groups: int, bits: int = 64) -> Sums | str:
    """Return the sums of aggregates as DuckDB writes them ("sum(#1)", "count_star()"), or why they are not sums."""
    columns = 0
    for text in aggregates:
        match = _FUNCTION.fullmatch(text.strip())
        if match is None or (own := _COLUMNS_OF.get(match["name"])) is None:
            return f"{text} is not a sum of fixed width"
        if match["inner"].lstrip().upper().startswith("DISTINCT"):
            return f"{text} is not a sum: a value on several machines counts once"
        columns += own
    return Sums(max(groups, 1), columns, bits) if columns else "it adds up nothing"


def switch_tree(costs: CostMap, hosts: Sequence[str], spec: SwitchSpec) -> SwitchTree | str:
    """Return the aggregation tree that a controller would place now over the current paths, or why there is none.

    Raise PathError for hosts missing from the fabric.
    """
    if len(hosts) == 1:
        return "one machine has nothing to add up"
    topology, hops = costs.model.topology, next_hops(costs.model.topology, costs.dead)
    try:
        tree = place(topology, hops, _snapshot(costs), hosts, cells=spec.cells, taken={})
    except ControllerError as error:
        return str(error)
    demand, delay_ns = _demand(costs, hops, tree)
    waiting = demand / (spec.efficiency * free_bps_of(costs))
    busiest = int(waiting.argmax())
    return SwitchTree(
        tree=tree,
        machines=len(hosts),
        s_per_gb=float(waiting[busiest]) * GB_BITS,
        delay_s=delay_ns / NS_PER_S,
        slots=spec.cells // 2 * BLOCK,
        busiest=list(costs.links.numbers)[busiest],
    )


def switch_choice(
    works: Works,
    machines: Machines,
    sums: Sequence[Sums | str],
    tree: SwitchTree | str,
    accelerator: Accelerator | None = None,
) -> Choice:
    """Return the switch as a choice for operators: `sums` gives the sums of each, or why it has none.

    Machines compute their parts on their CPUs, or on an accelerator: then the label is as in "gpu+switch".
    """
    refusals = tuple(_refusal(operator_sums, tree) for operator_sums in sums)
    nothing = np.zeros(len(works))
    transfer_s = np.array(
        [
            0.0 if isinstance(operator_sums, str) or isinstance(tree, str) else tree.transfer_s(operator_sums)
            for operator_sums in sums
        ]
    )
    if accelerator is None:
        parts = times(works, machines)
        return Choice(SWITCH, type(parts)(parts.compute_s, nothing, transfer_s, nothing, nothing), refusals)
    # Sums in switches are not compressed; each machine's own part is as if it worked alone.
    plain = replace(accelerator, compression=None)
    parts = times(works, replace(machines, network=Network(math.inf), count=1), plain)
    its = choice_of(works, machines, plain).refusals
    both = tuple(refusal or other for refusal, other in zip(refusals, its, strict=True))
    label = f"{accelerator.label}+{SWITCH}"
    return Choice(label, type(parts)(parts.compute_s, nothing, transfer_s, parts.bus_s, nothing), both)


def _refusal(sums: Sums | str, tree: SwitchTree | str) -> str:
    if isinstance(sums, str):
        return sums
    if isinstance(tree, str):
        return tree
    lanes = sums.lanes(tree.machines)
    return f"{lanes} lanes of sums do not fit in the switch's {tree.slots} slots" if lanes > tree.slots else ""


def _demand(costs: CostMap, hops: NextHops, tree: AggregationTree) -> tuple[np.ndarray, int]:
    """Return how often each link carries all sums, and the longest round trip (ns).

    All children proceed at the same pace, because an item is added up when the last child's has arrived.
    """
    demand = np.zeros(len(costs.links.rate_bps))
    longest_ns = 0
    for child in tree.children:
        name = child.switch if isinstance(child, Leaf) else child
        round_ns = sum(_cross(costs, hops, *way, demand) for way in ((name, tree.root), (tree.root, name)))
        below = child.workers if isinstance(child, Leaf) else ()
        rounds = [_cross(costs, hops, host, name, demand) + _cross(costs, hops, name, host, demand) for host in below]
        longest_ns = max(longest_ns, round_ns + max(rounds, default=0))
    return demand, longest_ns


def _cross(costs: CostMap, hops: NextHops, start: str, end: str, demand: np.ndarray) -> int:
    """Count one more vector on each link of a path, and return its delay (ns)."""
    rows = [costs.links.numbers[key] for key in links_between(costs.model.topology, hops, start, end)]
    demand[rows] += 1
    return int(costs.links.delay_ns[rows].sum())


def _snapshot(costs: CostMap) -> Snapshot:
    """Return the links' states in the form used to place aggregation trees."""
    columns = costs.links
    states = {
        key: LinkState(
            link=key,
            rate_bps=int(columns.rate_bps[row]),
            delay_mean_ns=int(columns.delay_ns[row]),
            delay_p50_ns=int(columns.delay_ns[row]),
            delay_p99_ns=int(columns.delay_ns[row]),
            queue_occupancy_frames=0.0,
            utilisation=float(columns.load_bps[row] / columns.rate_bps[row]),
            available_bps=int(columns.available_bps[row]),
            loss=None,
            age_ns=None,
            samples=0,
            source=DelaySource.NOMINAL,
        )
        for key, row in columns.numbers.items()
    }
    return Snapshot(costs.taken_ns, states, {}, {})
