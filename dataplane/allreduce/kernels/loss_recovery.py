"""Loss detection and retransmission (RFC 8985, RACK-TLP, over items instead of a stream).

A packet is lost if one that was sent later has its result, and a round trip plus a reordering window have passed. If
nothing arrives any more, which reveals nothing about the packets sent last, a timer resends the oldest packet as a
probe; its result then shows what became of the others. A late worker does not affect this: it costs a packet now and
then, and no cut of the window.
"""

from __future__ import annotations

from dataplane.allreduce.kernels.layouts import EngineState, Reading, Sent, Slot, State
from dataplane.allreduce.kernels.pacing import measure, note_loss, note_no_loss, open_window
from dataplane.allreduce.kernels.send_schedule import slot_of
from dataplane.native import as_u64, kernel, u32, u64

NEVER = (1 << 64) - 1
LEAST_REORDERING, _MOST_REORDERING = 1, 16
"""In quarters of the minimum round trip."""
_CALM = 16
"""Consecutive genuine losses, none due to reordering, after which the window narrows."""
_AT_ONCE = 8
"""Packets resent at once while it is uncertain that they are lost."""
_SHARE_OF_LONGEST = 4
"""The minimum time to a probe, which grows while a worker is late, grows to this fraction of the maximum."""


@kernel
def note_sent(engine: EngineState, slot: Slot) -> None:
    """Record that a packet was sent, after all others."""
    engine.sent += 1
    slot.state = State.SENT
    slot.sent_ns = engine.now_ns
    slot.results = engine.results
    slot.stamp = engine.sent
    if engine.order_last - engine.order_first > engine.order_mask:
        forget_old(engine)
    entry = sent_at(engine, engine.order_last)
    entry.item = slot.item
    entry.stamp = slot.stamp
    engine.order_last += 1
    if engine.in_flight == 0:
        set_probe(engine)
    engine.in_flight += 1


@kernel(inline=True)
def sent_at(engine: EngineState, position: u64) -> Sent:
    """Return the packet at a position in the send order."""
    return engine.order[position & engine.order_mask]


@kernel(inline=True)
def is_on_its_way(engine: EngineState, entry: Sent) -> bool:
    """Return whether a packet is in flight: not resent since, and its item has no result."""
    slot = slot_of(engine, entry.item)
    return slot.item == entry.item and slot.state == State.SENT and slot.stamp == entry.stamp


@kernel(inline=False)
def forget_old(engine: EngineState) -> None:
    """Make room: keep only packets in flight, which are at most a window."""
    kept: u64 = engine.order_first
    at: u64 = engine.order_first
    while at != engine.order_last:
        entry = sent_at(engine, at)
        if is_on_its_way(engine, entry):
            kept_entry = sent_at(engine, kept)
            kept_entry.item = entry.item
            kept_entry.stamp = entry.stamp
            kept += 1
        at += 1
    engine.order_last = kept


@kernel
def note_result(engine: EngineState, slot: Slot, is_again: bool) -> None:
    """Count a result and learn from it: its round trip, what must be lost, and what was not lost.

    `is_again`: it answers a retransmission, so the item was complete before that.
    """
    engine.results += 1
    engine.last_result_ns = engine.now_ns
    engine.probes = 0
    set_probe(engine)
    open_window(engine)
    if slot.state == State.LISTENING:
        # It is unrelated to the request, but while others arrive, answers to the request should have arrived, too.
        engine.newest_stamp = engine.sent + 1
        engine.newest_took_ns = max(2 * engine.round_trip_ns, engine.floor_ns)
        return
    took: u64 = engine.now_ns - slot.sent_ns
    is_repeated: bool = slot.repeats > 0
    if slot.state == State.SENT:
        engine.in_flight -= 1
    if is_repeated and (slot.state == State.READY or took < engine.shortest_ns):
        # The result belongs to an earlier transmission: nothing was lost, only late.
        if slot.is_probe == 0:
            note_no_loss(engine)
            engine.reordering = min(engine.reordering + 1, _MOST_REORDERING)
            engine.calm = 0
        return
    is_answer: bool = is_again or engine.reading == Reading.NO
    if is_answer and not is_repeated and slot.sent_ns >= engine.probed_ns:
        measure(engine, slot)
    if slot.stamp > engine.newest_stamp:
        engine.newest_stamp = slot.stamp
        engine.newest_took_ns = took
        # An item resent as a probe may have been completed by a late worker's contribution. Then results of earlier
        # packets follow, now or when that worker runs again.
        is_in_doubt: bool = is_repeated and not is_again and (slot.is_probe != 0 or engine.doubt_until_ns != 0)
        engine.doubt_until_ns = engine.now_ns + engine.round_trip_ns if is_in_doubt else 0
        engine.was_late = 0
        if is_again and slot.is_probe != 0:  # so the probe was right
            engine.floor_ns = max(engine.floor_ns // 2, engine.least_timeout_ns)
    elif engine.doubt_until_ns != 0:
        engine.doubt_until_ns = engine.now_ns + (engine.round_trip_ns >> 1)
        be_patient(engine)


@kernel(inline=True)
def be_patient(engine: EngineState) -> None:
    """Delay probes from now on, once per probe that was caused by a late worker."""
    if engine.was_late == 0:
        engine.was_late = 1
        engine.floor_ns = min(engine.floor_ns * 2, engine.longest_timeout_ns // _SHARE_OF_LONGEST)


@kernel
def find_lost(engine: EngineState) -> None:
    """Resend packets that must be lost, and schedule the next check."""
    engine.loss_at_ns = NEVER
    patience_ns: u64 = engine.newest_took_ns + as_u64(engine.reordering) * engine.shortest_ns // 4
    doubted: u32 = 0
    while engine.order_first != engine.order_last:
        entry = sent_at(engine, engine.order_first)
        if is_on_its_way(engine, entry):
            if entry.stamp >= engine.newest_stamp:
                return
            slot = slot_of(engine, entry.item)
            due_ns: u64 = max(slot.sent_ns + patience_ns, engine.doubt_until_ns)
            if due_ns > engine.now_ns:
                engine.loss_at_ns = due_ns
                return
            if doubted == _AT_ONCE:
                engine.doubt_until_ns = engine.now_ns + engine.round_trip_ns
                engine.loss_at_ns = engine.doubt_until_ns
                return
            doubted += 1 if engine.doubt_until_ns != 0 else 0
            slot.is_probe = 0
            note_loss(engine)
            send_again(engine, slot)
            grow_calm(engine)
        engine.order_first += 1


@kernel(inline=True)
def grow_calm(engine: EngineState) -> None:
    """Narrow the reordering window again after many genuine losses."""
    engine.calm += 1
    if engine.calm == _CALM:
        engine.calm = 0
        engine.reordering = max(engine.reordering - 1, LEAST_REORDERING)


@kernel
def send_again(engine: EngineState, slot: Slot) -> None:
    """Queue a packet for retransmission."""
    engine.in_flight -= 1 if slot.state == State.SENT else 0
    slot.state = State.READY
    slot.repeats += 1
    engine.repeated += 1
    push(engine, slot.item)


@kernel
def set_probe(engine: EngineState) -> None:
    """Restart the timer, longer after each probe without effect."""
    timeout: u64 = engine.timeout_ns << as_u64(min(engine.probes, 16))
    engine.probe_at_ns = engine.now_ns + min(timeout, engine.longest_timeout_ns)


@kernel
def look_at_timers(engine: EngineState) -> None:
    """Run the timers that are due."""
    if engine.loss_at_ns <= engine.now_ns:
        find_lost(engine)
    if engine.probe_at_ns <= engine.now_ns:
        probe(engine)


@kernel(inline=True)
def next_timer(engine: EngineState) -> u64:
    """Return when the next timer is due."""
    return min(engine.loss_at_ns, engine.probe_at_ns)


@kernel
def probe(engine: EngineState) -> None:
    """Resend the packet that was sent longest ago, regardless of the window."""
    engine.probe_at_ns = NEVER
    if engine.in_flight == 0 and engine.reading != Reading.LISTENING:
        return
    item: u32 = oldest_on_its_way(engine)
    if item == engine.next_item:
        return
    engine.probes += 1
    engine.stalls += 1
    engine.probed_ns = engine.now_ns
    engine.may_probe = 1
    set_probe(engine)
    slot = slot_of(engine, item)
    slot.is_probe = 1
    send_again(engine, slot)


@kernel
def oldest_on_its_way(engine: EngineState) -> u32:
    """Return the item that was sent longest ago, which rotates through all, or the next item if there is none.

    For a reader it is the lowest-numbered item.
    """
    oldest: u32 = engine.next_item
    longest: u64 = 0
    for at in range(as_u64(engine.window)):
        slot = engine.slots[at]
        is_under_way: bool = slot.state == State.SENT or slot.state == State.LISTENING  # noqa: PLR1714 - no `in` here
        ago: u64 = as_u64(engine.next_item - slot.item)
        if engine.reading == Reading.NO:
            ago = engine.sent + 1 - slot.stamp
        if is_under_way and ago > longest:
            oldest = slot.item
            longest = ago
    return oldest


@kernel(inline=True)
def push(engine: EngineState, item: u32) -> None:
    """Queue an item to be sent."""
    engine.pending[(engine.pending_first + engine.pending_count) & (engine.window - 1)] = item
    engine.pending_count += 1
