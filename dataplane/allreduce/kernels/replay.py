"""Replay for a switch that has restarted and lost sums whose results have reached only some workers.

Workers with such a result would never contribute to it again, and those without it wait. So packets are kept for a
window behind the oldest item without a result, as far as any worker can be ahead of another. If nothing arrives for
several probes, they are resent, a few with each. A switch that kept its memory reports the item as known; one that did
not adds the same integers up once more. Only items with results of the current epoch are resent: others are sums over
other workers. Values of the main server's are the same in all epochs.
"""

from __future__ import annotations

from dataplane.allreduce.kernels.layouts import EngineState
from dataplane.allreduce.kernels.send_schedule import packet_of, write_epoch
from dataplane.native import Array, as_u32, as_u64, kernel, load_be16, load_be32, u8, u32
from dataplane.wire.aggregation import Kind

_QUIET_PROBES = 3
_AT_ONCE = 8


@kernel(inline=True)
def keep(engine: EngineState, item: u32, result: Array[u8]) -> None:
    """Record the epoch of an item's result."""
    write_epoch(packet_of(engine, item), as_u32(load_be16(result, 8)))


@kernel
def gather_kept(engine: EngineState, oldest: u32) -> u32:
    """Gather items behind the oldest without a result, to be resent with a probe; return the count."""
    if engine.probes < _QUIET_PROBES or engine.probes == engine.revived_after:
        return 0
    engine.revived_after = engine.probes
    return gather_behind(engine, oldest)


@kernel
def gather_behind(engine: EngineState, oldest: u32) -> u32:
    """Gather the next few items behind this one, within a window, that this worker may resend."""
    count: u32 = 0
    for _ in range(min(as_u64(engine.window), _AT_ONCE)):
        engine.revived = (engine.revived + 1) & (engine.window - 1)
        item: u32 = oldest - 1 - engine.revived
        packet: Array[u8] = packet_of(engine, item)
        first: u32 = load_be32(packet, 0)
        kind: u32 = first >> 24 & 15
        is_current: bool = kind == Kind.CONTRIBUTION and as_u32(load_be16(packet, 8)) == engine.epoch
        is_current = is_current or kind == Kind.DISTRIBUTE
        if is_current and (first & 0xFFFF) == engine.job and load_be32(packet, 4) == item:
            engine.tx_items[count] = item
            count += 1
    return count
