"""Check of report sources, like `collectors.decode.sources`."""

from __future__ import annotations

from collectors.native.kernels.decode.layouts import REPORT_VERSION
from collectors.native.kernels.state.switches import find_switch
from collectors.native.structures import NONE32
from collectors.native.tables import TelemetryTables
from dataplane.native import Array, array_at, as_u64, kernel, load_be32, u8, u32, u64

GROUP_BYTES = 8


@kernel(inline=False)
def is_refused(tables: TelemetryTables, data: Array[u8], length: u64, row: u32) -> bool:
    """Count a refused payload: of an unknown node, or not from its report source."""
    if length < GROUP_BYTES:
        return refuse(tables, NONE32, False, row)
    is_group: bool = load_be32(data, 0) >> 28 == REPORT_VERSION
    return refuse(tables, find_switch(tables, load_be32(data, 4)), is_group, row)


@kernel(inline=False)
def refuse(tables: TelemetryTables, switch: u32, is_group: bool, row: u32) -> bool:
    """Count the refusal of a payload in a switch's name (NONE32: unknown); return False if it is accepted."""
    counts = tables.counts
    if switch == NONE32 and is_group:
        counts.unknown_reporter += 1
    elif tables.batch.sources == 0 or is_relay(tables, row) or is_right(tables, switch, row):
        return False
    else:
        counts.wrong_source += 1
        counts.refused_row = row
    counts.reports += 1
    return True


@kernel(inline=True)
def is_right(tables: TelemetryTables, switch: u32, row: u32) -> bool:
    """Return whether a payload came from a switch's report source; NONE32 stands for no switch."""
    return switch != NONE32 and tables.topology.report_sources[as_u64(switch)] == source_of(tables, row)


@kernel(inline=True)
def source_of(tables: TelemetryTables, row: u32) -> u32:
    """Return the address that a payload of the batch came from."""
    return array_at(u32, tables.batch.sources)[row]


@kernel(inline=True)
def is_relay(tables: TelemetryTables, row: u32) -> bool:
    """Return whether a payload came from an address from which reports of any switch may come."""
    i: u64 = 0
    while i < tables.topology.relay_count:
        if tables.topology.relays[i] == source_of(tables, row):
            return True
        i += 1
    return False
