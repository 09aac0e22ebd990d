"""Counts of delays by bucket, as they leave native memory to be merged with those of other collectors."""

from __future__ import annotations

from collectors.native.kernels.state.windows import bucket_of, buckets_of, count_index
from collectors.native.tables import TelemetryTables
from dataplane.native import Array, as_u32, as_u64, kernel, u32, u64


@kernel
def read_buckets(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables,
    windows: Array[u32],
    columns: Array[u32],
    slots: u64,
    room: u64,
    slot: Array[u32],
    bucket: Array[u32],
    count: Array[u32],
) -> u64:
    """Fill the counts above 0 of slots with delays, which are columns of windows; return how many, at most `room`."""
    filled: u64 = 0
    i: u64 = 0
    while i < slots:
        row: u64 = as_u64(windows[i])
        column: u64 = as_u64(columns[i])
        buckets = buckets_of(tables, row)
        number: u64 = bucket_of(tables.windows.cells[row].slots[column].least)
        last: u64 = bucket_of(tables.windows.cells[row].slots[column].greatest)
        while number <= last and filled < room:
            if buckets[count_index(number, column)] != 0:
                slot[filled] = as_u32(i)
                bucket[filled] = as_u32(number)
                count[filled] = buckets[count_index(number, column)]
                filled += 1
            number += 1
        i += 1
    return filled
