"""The gaps between a flow's measured packets, bit for bit as in `collectors.state.gaps`."""

from __future__ import annotations

from collectors.native.kernels.decode.flow_key import hash_key
from collectors.native.kernels.state.flows import find_flow
from collectors.native.kernels.state.signals import note_growth
from collectors.native.structures import NONE64, FlowCell
from collectors.native.tables import TelemetryTables
from collectors.state.gaps import (
    CHANCE,
    GROWN,
    LONGEST_GAP_NS,
    MEAN_BITS,
    PAUSE,
    RATIO_BITS,
    REMEMBERED,
    TELLING,
)
from dataplane.native import Array, address, as_i64, as_u64, i64, kernel, u64

MORE, LESS = GROWN
REMEMBERED_BITS = REMEMBERED.bit_length() - 1


@kernel(inline=True)
def note_gap(tables: TelemetryTables, cell: FlowCell, stamp_ns: u64) -> None:
    """Note when a packet of a flow arrived at its first switch, NONE64 if unknown."""
    if stamp_ns == NONE64:
        return
    if cell.stamp_ns == NONE64:
        cell.stamp_ns = stamp_ns
        cell.round = tables.signals.round
        return
    if cell.round != tables.signals.round:
        cell.round = tables.signals.round
        cell.known_mean = telling_mean(cell)
    if stamp_ns > cell.stamp_ns:
        add_gap(cell, stamp_ns - cell.stamp_ns)
    elif cell.stamp_ns - stamp_ns >= LONGEST_GAP_NS or (cell.stamp_ns - stamp_ns) << MEAN_BITS > PAUSE * cell.gap_mean:
        # Not a packet that was overtaken: the clock was set back, or restarted.
        restart_gaps(cell)
    else:
        return
    cell.stamp_ns = stamp_ns
    mean: u64 = telling_mean(cell)
    known_mean: u64 = cell.known_mean
    if mean != 0 and (known_mean == 0 or MORE * mean < LESS * known_mean):
        cell.known_mean = mean
        note_growth(tables, cell, mean, known_mean)


@kernel(inline=True)
def telling_mean(cell: FlowCell) -> u64:
    """Return a flow's mean gap, 0 while too few packets came."""
    return cell.gap_mean if cell.gap_count >= TELLING else 0


@kernel(inline=True)
def restart_gaps(cell: FlowCell) -> None:
    """Forget a flow's gaps, but not when its last packet came."""
    cell.gap_count = 0
    cell.gap_mean = 0
    cell.gap_variation = CHANCE


@kernel(inline=True)
def add_gap(cell: FlowCell, gap_ns: u64) -> None:
    """Add a gap, or restart after a pause."""
    gap: u64 = gap_ns << MEAN_BITS
    if gap_ns >= LONGEST_GAP_NS or (cell.gap_count != 0 and gap > PAUSE * cell.gap_mean):
        restart_gaps(cell)
        return
    if cell.gap_count == 0:
        cell.gap_count = 1
        cell.gap_mean = gap
        return
    apart: u64 = gap - cell.gap_mean if gap > cell.gap_mean else cell.gap_mean - gap
    ratio: u64 = (apart << RATIO_BITS) // cell.gap_mean
    more: i64 = as_i64(ratio * ratio) - as_i64(cell.gap_variation)
    longer: i64 = as_i64(gap) - as_i64(cell.gap_mean)
    if cell.gap_count < REMEMBERED:
        cell.gap_count += 1
        more = more // as_i64(as_u64(cell.gap_count))
        longer = longer // as_i64(as_u64(cell.gap_count))
    else:
        more = more >> REMEMBERED_BITS
        longer = longer >> REMEMBERED_BITS
    cell.gap_variation += as_u64(more)
    cell.gap_mean += as_u64(longer)


@kernel(inline=False)
def note_gap_of(tables: TelemetryTables, key: Array[u64], mixed: u64, stamp_ns: u64) -> None:
    """Note when a packet arrived at its first switch, for a flow with counted packets."""
    cell = find_flow(tables, key, mixed)
    if address(cell) != 0 and cell.first_ns != NONE64:
        note_gap(tables, cell, stamp_ns)


@kernel
def take_stamp(tables: TelemetryTables, key: Array[u64], stamp_ns: u64) -> None:
    """Note when a packet whose report Python has read arrived at its first switch."""
    note_gap_of(tables, key, hash_key(key), stamp_ns)
