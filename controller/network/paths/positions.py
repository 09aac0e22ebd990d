"""Positions and rates of the managed flows, as far as they are known: all flows at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from controller.network.algorithms.link_table import Flags, Longs
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.located import UNKNOWN, LocatedFlows, Parts
from controller.network.paths.deciding.path_book import NOWHERE, Path, PathBook
from controller.network.paths.managed_flows import ManagedFlows
from controller.network.paths.seen_flows import SeenRows


def locate(  # noqa: PLR0917 - known facts about flows, by source
    managed: ManagedFlows,
    seen: SeenRows,
    explicit: Mapping[FlowSpec, Path],
    pins: Mapping[FlowSpec, Path],
    moved_ns: Mapping[FlowSpec, int],
    rates_bps: Mapping[FlowSpec, int | None],
    now_ns: int,
    *,
    is_engineered: bool,
) -> LocatedFlows:
    """Return every flow with its current path; those without one, or within one switch, are left out.

    It is the explicit path, else the only base path, else the last one seen, else the first base path; where traffic is
    engineered no base path is the only one. `rates_bps` are known rates; others are measured.
    """
    count, book = len(managed), seen.book
    numbers = managed.numbers(seen.codes)
    assigned = _overlaid(managed, book, explicit)
    path = np.where(assigned == NOWHERE, _default_paths(managed, seen, numbers, is_engineered=is_engineered), assigned)
    hops = book.rows.hops
    keep = (path != NOWHERE) & (hops[path] > 0 if len(hops) else False)
    since_ns: Longs = np.full(count, UNKNOWN, np.int64)
    for number, flow in managed.among(moved_ns):
        # A time in the future is from before the clock was set back.
        since_ns[number] = moved_ns[flow] if moved_ns[flow] <= now_ns else UNKNOWN
    rate_bps: Longs = np.full(count, UNKNOWN, np.int64)
    for number, flow in managed.among(rates_bps):
        known_bps = rates_bps[flow]
        rate_bps[number] = UNKNOWN if known_bps is None else known_bps
    measured = np.flatnonzero((numbers >= 0) & (seen.flow_rates.rate_bps != UNKNOWN))
    measured = measured[rate_bps[numbers[measured]] == UNKNOWN]
    rates, to = seen.flow_rates.rows(measured), numbers[measured]
    rate_bps[to] = rates.rate_bps
    columns = [np.full(count, nothing, np.int64) for nothing in (UNKNOWN, 0, UNKNOWN)]
    for column, known_of in zip(columns, (rates.nbytes, np.rint(rates.past_bps), rates.uncertain_bps), strict=True):
        column[to] = known_of
    measured_bytes, past_bps, uncertain_bps = columns
    return LocatedFlows(
        managed.kept(keep),
        book,
        path[keep],
        since_ns=since_ns[keep],
        rate_bps=rate_bps[keep],
        packet_bytes=np.full(int(keep.sum()), UNKNOWN, np.int64),
        measured_bytes=measured_bytes[keep],
        past_bps=past_bps[keep],
        uncertain_bps=uncertain_bps[keep],
        pinned=((path != NOWHERE) & (_overlaid(managed, book, pins) == path))[keep],
        parts=_parts(managed, seen, keep & (assigned == NOWHERE), np.cumsum(keep) - 1),
    )


def _overlaid(managed: ManagedFlows, book: PathBook, paths: Mapping[FlowSpec, Path]) -> Longs:
    return book.overlay({number: paths[flow] for number, flow in managed.among(paths)}, len(managed))


def _default_paths(managed: ManagedFlows, seen: SeenRows, numbers: Longs, *, is_engineered: bool) -> Longs:
    """Return the positions of flows without an explicit path."""
    first, last, base, is_only = managed.ends(seen.book)
    shown: Longs = np.full(len(managed), NOWHERE, np.int64)
    shown[numbers[numbers >= 0]] = seen.flow_paths[numbers >= 0]
    is_shown = shown != NOWHERE
    rows = seen.book.rows
    if len(rows.first):
        is_way = is_shown & rows.linked[shown] & (rows.first[shown] == first) & (rows.last[shown] == last)
    else:
        is_way = is_shown
    takes_base = (base == NOWHERE) | (is_only & ~is_shown if is_engineered else is_only) | ~is_way
    return np.where(takes_base, base, shown)


def _parts(managed: ManagedFlows, seen: SeenRows, spreads: Flags, positions: Longs) -> Parts:
    """Return the parts of the pairs of hosts among the flows that may be spread, by their positions."""
    pairs = seen.spread_pairs
    number = managed.numbers(pairs.pair)
    rows = np.flatnonzero(number >= 0)
    rows = rows[spreads[number[rows]]]
    flow = positions[number[rows]]
    order = np.argsort(flow, kind="stable")
    rows = rows[order]
    return Parts(flow[order], pairs.path[rows], pairs.rate_bps[rows], pairs.variance[rows])
