"""Samples of directed links into their windows, at the time that their switch's clock puts them behind its newest."""

from __future__ import annotations

from collectors.native.kernels.state.signals import note_queue
from collectors.native.kernels.state.stamps import stamp_behind
from collectors.native.kernels.state.windows import add_to_window, settle_counts
from collectors.native.structures import NONE64, Hop
from collectors.native.tables import TelemetryTables
from dataplane.native import as_u64, kernel, u32, u64

HOP_LATENCY = 1
PROBES = 2
CORRECTED_STAMPS = 3
"""Their places in `collectors.statistics.window.SOURCES`."""


@kernel(inline=True)
def add_sample(  # noqa: PLR0917 - kernels have no keywords
    tables: TelemetryTables,
    link: u32,
    switch: u32,
    time_ns: u64,
    received_ns: u64,
    delay_ns: u64,
    source: u32,
    queue: u32,
    tx_bytes: u32,
    buffer: u32,
) -> None:
    """Take one packet's sample of one link; samples older than the window are counted and left out."""
    note_queue(tables, as_u64(link), queue)
    behind_ns: u64 = 0
    if time_ns != NONE64:
        behind_ns = stamp_behind(tables, switch, time_ns, received_ns)
    at_ns: u64 = received_ns - min(behind_ns, received_ns)
    if behind_ns > tables.windows.window_ns or not add_to_window(
        tables, as_u64(link), at_ns, delay_ns, source, queue, tx_bytes, buffer
    ):
        tables.counts.late_samples += 1


@kernel
def take_sample(tables: TelemetryTables, hop: Hop, received_ns: u64, delay_ns: u64, source: u32) -> None:
    """Take a sample made elsewhere, maybe long ago: look up its slot rather than use the current one."""
    tables.batch.slot_number += 1
    tables.batch.slot_begins_ns = NONE64
    time_ns: u64 = hop.arrived_ns
    add_sample(
        tables, hop.link, hop.switch, time_ns, received_ns, delay_ns, source, hop.queue, hop.tx_bytes, hop.buffer
    )
    settle_counts(tables)
