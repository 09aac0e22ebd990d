"""Tracking of switches' clocks by their stamps, like `collectors.clocks.stamps`."""

from __future__ import annotations

from collectors.clocks.stamps import AGREEING, STEEPEST
from collectors.native.structures import NONE64, SwitchClockCell
from collectors.native.tables import TelemetryTables
from dataplane.native import as_i64, as_u64, i64, kernel, u32, u64


@kernel(inline=True)
def runs_ahead(tables: TelemetryTables, clock: SwitchClockCell, stamp_ns: u64, received_ns: u64) -> bool:
    """Return whether a stamp is further ahead than the reports of one switch can be apart in flight."""
    return as_i64(stamp_ns - received_ns + clock.offset_ns) > as_i64(tables.limits.lead_ns)


@kernel(inline=False)
def stamp_behind(tables: TelemetryTables, switch: u32, stamp_ns: u64, received_ns: u64) -> u64:
    """Return how far a sample's stamp is behind the newest of its switch, 0 if the stamp does not show it."""
    clock = tables.clocks.switches[switch]
    if clock.agreeing == 0:
        begin_clock(tables, clock, stamp_ns, received_ns, 1)
        return 0
    behind_ns: i64 = as_i64(clock.newest_ns - stamp_ns)
    if behind_ns > as_i64(tables.windows.window_ns) or runs_ahead(tables, clock, stamp_ns, received_ns):
        return stray(tables, clock, stamp_ns, received_ns, behind_ns)
    slot: u64 = slot_at(tables, received_ns)
    if clock.slot != slot:
        if clock.agreeing < AGREEING and slot != clock.followed_ns // tables.windows.slot_ns + 1:
            clock.agreeing += 1
        clock.strayed_ns = NONE64
        clock.slot = slot
        follow(clock, received_ns - stamp_ns, received_ns)
    if behind_ns < 0:
        clock.newest_ns = stamp_ns
    return as_u64(max(behind_ns, 0))


@kernel(inline=False)
def stray(tables: TelemetryTables, clock: SwitchClockCell, stamp_ns: u64, received_ns: u64, behind_ns: i64) -> u64:
    """Take a stray stamp; stray stamps that agree with one another are not late and may show the true clock."""
    if clock.agreeing < AGREEING:
        begin_clock(tables, clock, stamp_ns, received_ns, 1)
        return 0
    offset_ns: u64 = received_ns - stamp_ns
    slot: u64 = slot_at(tables, received_ns)
    apart_ns: i64 = as_i64(offset_ns - clock.other_offset_ns)
    lead_ns: i64 = as_i64(tables.limits.lead_ns)
    if clock.other_agreeing == 0 or apart_ns > lead_ns or apart_ns < -lead_ns:
        clock.other_offset_ns = offset_ns
        clock.other_slot = slot
        clock.other_agreeing = 1
    elif slot != clock.other_slot:
        clock.other_slot = slot
        clock.other_agreeing = min(clock.other_agreeing + 1, AGREEING)
    agreed: bool = clock.other_agreeing == AGREEING
    if clock.strayed_ns == NONE64:
        clock.strayed_ns = received_ns
        clock.slot = 0
    elif agreed and as_i64(received_ns - clock.strayed_ns) > as_i64(tables.windows.window_ns):
        begin_clock(tables, clock, stamp_ns, received_ns, AGREEING)
        return 0
    is_late: bool = behind_ns > as_i64(tables.windows.window_ns) and behind_ns <= as_i64(tables.limits.stale_ns)
    return as_u64(behind_ns) if is_late and not agreed else 0


@kernel(inline=True)
def slot_at(tables: TelemetryTables, received_ns: u64) -> u64:
    """Return the number of a time's slot, and 1."""
    if received_ns == tables.batch.now_ns:
        return tables.batch.clock_slot
    return received_ns // tables.windows.slot_ns + 1


@kernel(inline=False)
def begin_clock(
    tables: TelemetryTables, clock: SwitchClockCell, stamp_ns: u64, received_ns: u64, agreeing: u32
) -> None:
    """Set a switch's clock from a stamp with which `agreeing` stamps agree."""
    clock.agreeing = agreeing
    clock.other_agreeing = 0
    clock.newest_ns = stamp_ns
    clock.offset_ns = received_ns - stamp_ns
    clock.followed_ns = received_ns
    clock.slot = slot_at(tables, received_ns)
    clock.strayed_ns = NONE64


@kernel(inline=False)
def follow(clock: SwitchClockCell, offset_ns: u64, received_ns: u64) -> None:
    """Follow the clock's drift, but no faster than clocks drift."""
    most_ns: i64 = max(as_i64(received_ns - clock.followed_ns), 0) // STEEPEST
    off_ns: i64 = as_i64(offset_ns - clock.offset_ns)
    clock.offset_ns += as_u64(min(max(off_ns, -most_ns), most_ns))
    clock.followed_ns = received_ns
