"""Time of each round of a reduction tree over the paths of a cost map, with links shared by its flows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.acceleration.errors import AccelerationError
from controller.acceleration.network.trees import Aggregators, ReductionTree, Transfer, reduction_tree
from controller.cluster.cost_map import Basis, CostMap, CostModel
from controller.cluster.cost_map.columns import AVAILABLE
from controller.cluster.cost_map.values import PPB
from dataplane.clock import NS_PER_S
from dataplane.topology.values import LinkKey

# Duration of equal flows that begin together: each link is shared fairly (max-min) until the last flow ends.
#
# The fast twin of `reference`. Fair shares by progressive filling (Bertsekas and Gallager, Data Networks, 6.5.2): all
# flows grow equally until a link is full, which fixes its flows; when flows end, the shares of the rest are recomputed.


Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.intp]
Flags = npt.NDArray[np.bool_]

_ALIKE: Final = 1e-9
"""Figures that differ by less than this share are equal: rounding must not trigger a recomputation."""


@dataclass(frozen=True, slots=True, eq=False)
class Crossings:
    """Flows and the links that they cross, one row each: `flow`, `link`, and the `share` of the flow on it.

    Shares are in (0, 1]; a flow over several paths has several rows. Flows are numbered from 0 to `flows` - 1.
    """

    flows: int
    flow: Ids
    link: Ids
    share: Floats


def finishing_s(crossings: Crossings, free_bps: Floats, size_bits: float | Floats) -> Floats:
    """Return the end of each flow (s) if all begin at 0 with this much to send, or each with its own size.

    `free_bps`, by link, is above 0. A flow that crosses no link ends at once.
    """
    left = np.array(np.broadcast_to(np.asarray(size_bits, np.float64), crossings.flows))
    ends = np.zeros(crossings.flows)
    active = np.zeros(crossings.flows, np.bool_)
    active[crossings.flow] = left[crossings.flow] > 0
    now_s = 0.0
    while active.any():
        rates = fair_bps(crossings, free_bps, active)
        lasting = np.full(crossings.flows, np.inf)
        np.divide(left, rates, out=lasting, where=active)
        step_s = float(lasting.min())
        now_s += step_s
        done = active & (lasting <= step_s * (1 + _ALIKE))
        left = np.where(active, left - rates * step_s, left)
        ends[done] = now_s
        active &= ~done
    return ends


def fair_bps(crossings: Crossings, free_bps: Floats, active: Flags) -> Floats:
    """Return the max-min fair rate of each active flow (bit/s), 0 for the others."""
    rates = np.zeros(crossings.flows)
    growing = active.copy()
    left = free_bps.astype(np.float64)
    level = 0.0
    while growing.any():
        wanted = np.where(growing[crossings.flow], crossings.share, 0.0)
        demand = np.bincount(crossings.link, wanted, minlength=len(left))
        room = np.full(len(left), np.inf)
        np.divide(left, demand, out=room, where=demand > 0)
        step = float(room.min())
        level += step
        full = room <= step * (1 + _ALIKE) + level * _ALIKE
        left = np.maximum(left - step * demand, 0.0)
        stopped = np.zeros(crossings.flows, np.bool_)
        stopped[crossings.flow[full[crossings.link] & (wanted > 0)]] = True
        rates[stopped] = level
        growing &= ~stopped
    return rates


GB_BITS: Final = 8e9
"""A GB (10^9 bytes) in bits."""
LEAST_FREE: Final = 0.05
"""Minimum free share of a link for flows: existing flows make room for new ones.

The placement of aggregation trees uses the same value.
"""


@dataclass(frozen=True, slots=True)
class TimedRound:
    """One round: `s_per_gb` sent by each machine, including link sharing, and the longest delay of its paths.

    `grown_s_per_gb` is per GB of each machine's own output if outputs are sent on together, like rows of a filter.
    `busiest` is the bottleneck link, with `busiest_flows` flows and `busiest_bps` free; None if nothing crosses the
    network. `full` are links with less than `LEAST_FREE` free.
    """

    transfers: tuple[Transfer, ...]
    s_per_gb: float
    grown_s_per_gb: float
    delay_s: float
    basis: Basis
    busiest: LinkKey | None
    busiest_flows: float
    busiest_bps: float
    full: tuple[LinkKey, ...]


@dataclass(frozen=True, slots=True)
class TimedTree:
    """A reduction tree and the times of its rounds. `rate_gbit_per_s` is a single rate equivalent to its transfers.

    At that rate the sum over all transfers, each with the network to itself, equals that over the real paths: the
    specification's node-to-node speed. It is infinite for one machine, which sends nothing.
    """

    tree: ReductionTree
    rounds: tuple[TimedRound, ...]
    rate_gbit_per_s: float

    def transfer_s(self, output_gb: float) -> float:
        """Return the sending time of all rounds, if each machine sends this much (GB) in each."""
        return math.fsum(part.s_per_gb * output_gb + part.delay_s for part in self.rounds)


def near_order(model: CostModel, machines: Iterable[str]) -> tuple[str, ...]:
    """Return machines ordered so that those on one switch are adjacent; raise PathError for a missing one."""
    return tuple(sorted(machines, key=lambda name: (int(model.host_switch[model.number(name)]), model.number(name))))


def tree_over(
    costs: CostMap, machines: Sequence[str], fan_in: int, aggregators: Aggregators = Aggregators.APART
) -> ReductionTree:
    """Return the reduction tree over hosts of a fabric in near order; raise as `reduction_tree` and `near_order`."""
    return reduction_tree(near_order(costs.model, machines), fan_in, aggregators)


def timed(costs: CostMap, tree: ReductionTree, *, efficiency: float = 1.0, host_bps: float = math.inf) -> TimedTree:
    """Return the times of the tree's rounds on a fabric; `efficiency` is the share of free bandwidth that data gets.

    `host_bps` is the most that a machine's processor sends, and the most that it receives.

    Raise PathError for machines missing from the fabric, AccelerationError for two without a path between them, and for
    an efficiency outside (0, 1].
    """
    if not 0 < efficiency <= 1:
        raise AccelerationError(f"efficiency {efficiency} is not above 0 and at most 1")
    if not host_bps > 0:
        raise AccelerationError(f"a machine cannot send or receive {host_bps} bit/s")
    free_bps = efficiency * free_bps_of(costs)
    own = costs.model.up.start
    free_bps[own:] = np.minimum(free_bps[own:], host_bps)
    rounds, alone_s = [], []
    for transfers, shares in zip(tree.transfers, tree.shares, strict=True):
        crossings = _crossings(costs, transfers)
        rounds.append(_round(costs, transfers, crossings, free_bps, shares))
        alone_s.append(_alone_s(crossings, free_bps))
    each = np.concatenate(alone_s) if alone_s else np.zeros(0)
    total_s = float(each.sum())
    return TimedTree(tree, tuple(rounds), len(each) * GB_BITS / 1e9 / total_s if total_s else math.inf)


def free_bps_of(costs: CostMap) -> Floats:
    """Return the bandwidth for flows on each link, at least `LEAST_FREE` of its rate."""
    rates: Floats = costs.links.rate_bps.astype(np.float64)
    return np.maximum(costs.links.available_bps, LEAST_FREE * rates)


def _crossings(costs: CostMap, transfers: Sequence[Transfer]) -> Crossings:
    model, rows = costs.model, list[tuple[int, int, float]]()
    for number, transfer in enumerate(transfers):
        src, dst = model.number(transfer.src), model.number(transfer.dst)
        shares = costs.routing.shares(src, dst)
        shares |= {model.up.start + src: 1.0, model.down.start + dst: 1.0}
        _check(costs, transfer, shares)
        rows += [(number, row, share) for row, share in shares.items()]
    flow, link, share = zip(*rows, strict=True) if rows else ((), (), ())
    return Crossings(len(transfers), np.array(flow, np.intp), np.array(link, np.intp), np.array(share, np.float64))


def _check(costs: CostMap, transfer: Transfer, rows: Iterable[int]) -> None:
    """Raise AccelerationError if nothing arrives."""
    if not costs.cost(transfer.src, transfer.dst).is_reachable:
        raise AccelerationError(f"machines {transfer.src} and {transfer.dst}: no path between them")
    dead = next((row for row in rows if costs.links.loss_ppb[row] >= PPB), None)
    if dead is not None:
        link = list(costs.links.numbers)[dead]
        raise AccelerationError(f"machines {transfer.src} and {transfer.dst}: link {link} between them is down")


def _round(
    costs: CostMap, transfers: tuple[Transfer, ...], crossings: Crossings, free_bps: Floats, shares: Sequence[int]
) -> TimedRound:
    ends_s = finishing_s(crossings, free_bps, GB_BITS)
    grown_s = finishing_s(crossings, free_bps, GB_BITS * np.array(shares)) if max(shares, default=1) > 1 else ends_s
    demand = np.bincount(crossings.link, crossings.share, minlength=len(free_bps))
    waiting = demand / free_bps
    busiest = int(waiting.argmax())
    links, rows = list(costs.links.numbers), np.unique(crossings.link)
    tight = rows[costs.links.available_bps[rows] < LEAST_FREE * costs.links.rate_bps[rows]]
    delays_ns = [costs.cost(transfer.src, transfer.dst).delay_ns for transfer in transfers]
    return TimedRound(
        transfers=transfers,
        s_per_gb=float(ends_s.max(initial=0.0)),
        grown_s_per_gb=float(grown_s.max(initial=0.0)),
        delay_s=max(delays_ns, default=0) / NS_PER_S,
        basis=_basis(costs, rows),
        busiest=links[busiest] if transfers else None,
        busiest_flows=float(demand[busiest]),
        busiest_bps=float(free_bps[busiest]),
        full=tuple(links[row] for row in tight),
    )


def _alone_s(crossings: Crossings, free_bps: Floats) -> Floats:
    """Return the duration of each flow of a GB with the network to itself."""
    slowest = np.zeros(crossings.flows)
    np.maximum.at(slowest, crossings.flow, crossings.share * GB_BITS / free_bps[crossings.link])
    return slowest


def _basis(costs: CostMap, rows: Sequence[int] | np.ndarray) -> Basis:
    """Return the basis of links' free bandwidth; only hosts measure their own links."""
    measured = [bool(costs.links.measured[row] & AVAILABLE) for row in rows if not _is_up(costs, int(row))]
    if measured and all(measured):
        return Basis.MEASURED
    return Basis.PARTLY_MEASURED if any(measured) else Basis.NOMINAL


def _is_up(costs: CostMap, row: int) -> bool:
    return row in range(costs.model.up.start, costs.model.down.start)
