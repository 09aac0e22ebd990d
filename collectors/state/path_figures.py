"""Figures of flows' paths, derived from their links' states: for all flows at once, and for one flow as the reference.

The delay of a path is the sum of its links' means unless whole packets were measured on its switches; these do not
cover the link from the source host, whose delay is added. Bandwidth is the minimum over all links. Loss is unknown if
it is unknown for a link between switches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from collectors.state.accumulator import FlowColumns, RouteColumns, SeenFlow, SwitchPath
from collectors.state.link_states import LinkStates
from collectors.state.path_states import PathColumns
from collectors.statistics.columns import UNKNOWN, Flags, Integers, Numbers
from collectors.values import LinkState, PathState
from dataplane.topology.values import LinkKey, Topology

N = TypeVar("N", np.int64, np.float64)

_NO_LIMIT: Final = np.int64(np.iinfo(np.int64).max)
_NO_LINK: Final = -1
"""Index of the extra last entry of a column, which stands for an absent link."""


class PathMaker:
    """Adds up a path's link figures at one time, once for all flows of one path: the reference of `path_columns`."""

    def __init__(
        self, topology: Topology, links: Mapping[LinkKey, LinkState], now_ns: int, stale_after_ns: int
    ) -> None:
        self._topology = topology
        self._links = links
        self._now_ns = now_ns
        self._stale_after_ns = stale_after_ns
        self._of_path: dict[SwitchPath, tuple[int, int, int | None, int | None, float | None, int]] = {}

    def path(self, seen: SeenFlow) -> PathState:
        """Return a flow's path with its figures."""
        figures = self._of_path.get(seen.path)
        if figures is None:
            figures = self._of_path[seen.path] = self._figures(seen.path)
        delay_ns, bottleneck_bps, p50, p99, loss, samples = figures
        age_ns = max(self._now_ns - seen.received_ns, 0)
        return PathState(
            seen.flow,
            seen.path.switches,
            delay_ns,
            bottleneck_bps,
            age_ns,
            seen.rate_bps,
            p50,
            p99,
            loss,
            samples,
            seen.measured_bytes,
            seen.is_young,
            seen.gap_mean_ns,
            seen.gap_variation,
        )

    def _figures(self, path: SwitchPath) -> tuple[int, int, int | None, int | None, float | None, int]:
        """Add up the path's links; one of one switch between two unknown hosts has none, and no delay or limit."""
        states = [self._links[key] for key in path.links]
        # The part that switches do not see: from the source host to its switch.
        access_ns = states[0].delay_mean_ns if states and states[0].link.src not in self._topology.switch else 0
        figures = path.figures
        fresh = self._now_ns - figures.newest_ns <= self._stale_after_ns
        mean, p50, p99 = (
            None if delay is None or not fresh else delay + access_ns
            for delay in (figures.delay_mean_ns, figures.delay_p50_ns, figures.delay_p99_ns)
        )
        delay_ns = sum(state.delay_mean_ns for state in states) if mean is None else mean
        bottleneck_bps = min((state.available_bps for state in states), default=0)
        return delay_ns, bottleneck_bps, p50, p99, self._loss(states), figures.samples if fresh else 0

    def _loss(self, states: list[LinkState]) -> float | None:
        """Return the loss over a path's links; None if it is unknown for a link between switches, or for all."""
        inner = [state for state in states if {state.link.src, state.link.dst} <= self._topology.switch.keys()]
        ends = [state for state in states if state not in inner]
        # Links of hosts come last: the product of those between switches is the same for all flows of a route.
        losses = [state.loss for state in (*inner, *ends) if state.loss is not None]
        if not losses or any(state.loss is None for state in inner):
            return None
        return 1.0 - math.prod(1.0 - loss for loss in losses)


def path_columns(flows: FlowColumns, links: LinkStates, now_ns: int, stale_after_ns: int) -> PathColumns:
    """Return the flows' paths with their figures, side by side."""
    routes, route = flows.routes, flows.route
    source, target = flows.access_links
    delay_ns = np.append(links.integers("delay_mean_ns"), 0)
    available_bps = np.append(links.integers("available_bps"), _NO_LIMIT)
    fresh = (now_ns - routes.newest_ns <= stale_after_ns) & (routes.samples != 0)

    def measured(column: Integers) -> Integers:
        """Return whole packets' delay plus the source link's, UNKNOWN where no packet was measured lately."""
        delays: Integers = np.where(fresh, column, UNKNOWN)[route]
        return np.where(delays == UNKNOWN, UNKNOWN, delays + delay_ns[source])

    mean_ns = measured(routes.delay_mean_ns)
    summed_ns = _over_links(np.add, routes, delay_ns, np.int64(0))[route] + delay_ns[source] + delay_ns[target]
    least_bps = _over_links(np.minimum, routes, available_bps, _NO_LIMIT)[route]
    bottleneck_bps = np.minimum(least_bps, np.minimum(available_bps[source], available_bps[target]))
    return PathColumns(
        flows.addresses,
        routes.switches,
        src=flows.src,
        dst=flows.dst,
        protocol=flows.protocol,
        src_port=flows.src_port,
        dst_port=flows.dst_port,
        route=route,
        figures={
            "delay_ns": np.where(mean_ns == UNKNOWN, summed_ns, mean_ns),
            # Within one switch between unknown hosts there is no link.
            "bottleneck_bps": np.where(bottleneck_bps == _NO_LIMIT, 0, bottleneck_bps),
            "age_ns": np.maximum(now_ns - flows.received_ns, 0),
            "rate_bps": flows.rate_bps,
            "delay_p50_ns": measured(routes.delay_p50_ns),
            "delay_p99_ns": measured(routes.delay_p99_ns),
            "loss": _losses(flows, np.append(links.floats("loss"), np.nan)),
            "samples": np.where(fresh, routes.samples, 0)[route],
            "measured_bytes": flows.measured_bytes,
            "is_young": flows.is_young,
            "gap_mean_ns": flows.gap_mean_ns,
            "gap_variation": flows.gap_variation,
        },
    )


def _losses(flows: FlowColumns, loss: Numbers) -> Numbers:
    """Return the loss over each flow's links, NaN if it is unknown for a link between switches, or for all."""
    routes, (source, target) = flows.routes, flows.access_links
    is_known: Flags = np.asarray(np.isfinite(loss))
    passed: Numbers = np.where(is_known, 1.0 - loss, 1.0)
    unknown = ((routes.links != _NO_LINK) & ~is_known[routes.links]).any(axis=1)[flows.route]
    anything = (is_known[routes.links].sum(axis=1) > 0)[flows.route] | is_known[source] | is_known[target]
    whole = _over_links(np.multiply, routes, passed, np.float64(1.0))[flows.route]
    share: Numbers = 1.0 - whole * passed[source] * passed[target]
    share[unknown | ~anything] = np.nan
    return share


def _over_links(add: np.ufunc, routes: RouteColumns, column: NDArray[N], nothing: N) -> NDArray[N]:
    """Return the sum of a column of links on each route, link after link as in the reference."""
    totals: NDArray[N] = np.full(len(routes.links), nothing)
    for hop in range(routes.links.shape[1]):
        add(totals, column[routes.links[:, hop]], out=totals)
    return totals
