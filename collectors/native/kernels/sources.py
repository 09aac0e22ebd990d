"""Whose reports count, as `collectors.decode.sources` has it."""

from __future__ import annotations

from collectors.native.kernels.decode.decoding import REPORT_VERSION
from collectors.native.kernels.state.switches import find_switch
from collectors.native.structures import NONE32
from collectors.native.tables import TelemetryTables
from dataplane.native import Array, address, as_u64, kernel, load_be32, u8, u32, u64

GROUP_BYTES = 8


@kernel(inline=True)
def is_refused(tables: TelemetryTables, data: Array[u8], length: u64, sources: Array[u32], row: u32) -> bool:
    """Count a payload that does not count otherwise: of a node that is unknown, or not from where its reports come."""
    switch: u32 = NONE32
    if length >= GROUP_BYTES:
        switch = find_switch(tables, load_be32(data, 4))
    if switch != NONE32 and (address(sources) == 0 or tables.topology.report_sources[as_u64(switch)] == sources[row]):
        return False
    return refuse(tables, data, length, sources, row, switch)


@kernel(inline=False)
def refuse(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables, data: Array[u8], length: u64, sources: Array[u32], row: u32, switch: u32
) -> bool:
    """Count why a payload does not count; False if it does after all."""
    counts = tables.counts
    if switch == NONE32 and length >= GROUP_BYTES and load_be32(data, 0) >> 28 == REPORT_VERSION:
        counts.unknown_reporter += 1
    elif address(sources) == 0 or is_relay(tables, sources[row]):
        return False
    else:
        counts.wrong_source += 1
        counts.refused_row = row
    counts.reports += 1
    return True


@kernel(inline=True)
def is_relay(tables: TelemetryTables, source: u32) -> bool:
    """Return whether a report of any switch may come from an address."""
    i: u64 = 0
    while i < tables.topology.relay_count:
        if tables.topology.relays[i] == source:
            return True
        i += 1
    return False
