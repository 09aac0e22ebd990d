"""Filter for decisions by bandwidth: only flows that could have a wider path are judged."""

from __future__ import annotations

from typing import Final

import numpy as np

from controller.network.algorithms.link_table import Flags, Longs
from controller.network.paths.deciding.flow_table import FlowTable
from controller.network.paths.deciding.graph import StateGraph
from controller.network.paths.deciding.located import UNKNOWN
from controller.network.paths.settings import Mode

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
