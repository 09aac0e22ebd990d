"""Signs, since the last query, that the network has changed: `collectors.state.signals` in native memory."""

from __future__ import annotations

from collectors.native.kernels.decode.flow_key import same_words
from collectors.native.structures import KEY_WORDS, NONE24, NONE32, FlowCell
from collectors.native.tables import TelemetryTables
from dataplane.native import as_u64, kernel, reference, u32, u64


@kernel(inline=True)
def is_inner(tables: TelemetryTables, link: u64) -> bool:
    """Return whether a link that leaves a switch leads to another."""
    return tables.topology.links[link].head_switch != NONE32


@kernel(inline=True)
def note_queue(tables: TelemetryTables, link: u64, queue: u32) -> None:
    """Note the queue of a link that a packet met, NONE24 in the low bits if unreported."""
    # Most packets need only this check; without a reported queue, the sum is 0.
    if (queue + 1) & NONE24 > tables.signals.queue and is_inner(tables, link):
        tables.signals.queue = (queue + 1) & NONE24


@kernel(inline=False)
def note_growth(tables: TelemetryTables, cell: FlowCell, mean: u64, known_mean: u64) -> None:
    """Note that a flow's mean gap is less than the known one, 0 for none."""
    signals = tables.signals
    i: u64 = 0
    while i < as_u64(signals.grown_count):
        if same_words(signals.grown[i].key, reference(cell.key[0])):
            signals.grown[i].mean = mean
            return
        i += 1
    if signals.grown_count >= signals.most_grown:
        signals.unlisted += 1
        return
    grown = signals.grown[i]
    signals.grown_count += 1
    i = 0
    while i < KEY_WORDS:
        grown.key[i] = cell.key[i]
        i += 1
    grown.mean = mean
    grown.known = known_mean
