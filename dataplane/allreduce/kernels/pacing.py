"""How many packets may be on their way, and when they are sent again.

A result's time is that of the slowest worker, so the timer adapts to stragglers, too. Where nothing at all comes back
somebody is late, more likely than that everything was lost: only the oldest item is sent again, as a probe.
"""

from __future__ import annotations

from dataplane.allreduce.kernels.generating import slot_of
from dataplane.allreduce.kernels.layouts import EngineState, Slot, State
from dataplane.native import as_u32, as_u64, kernel, u32, u64

PACKET = 256
"""One packet in units of congestion windows."""
_LEAST_WINDOW = 2 * PACKET
_NEVER = (1 << 64) - 1


@kernel
def note_result(engine: EngineState, slot: Slot) -> None:
    """Count a result, measure its round trip unless it was repeated (Karn), and open the window."""
    engine.results += 1
    engine.last_result_ns = engine.now_ns
    if slot.state == State.SENT:
        engine.in_flight -= 1
        if slot.repeats == 0:
            measure(engine, engine.now_ns - slot.sent_ns)
    window: u64 = engine.congestion_window
    window += PACKET if window < engine.slow_start_until else PACKET * PACKET // window
    engine.congestion_window = min(window, as_u64(engine.window) * PACKET)


@kernel
def measure(engine: EngineState, sample: u64) -> None:
    """Smooth round trips as TCP does (RFC 6298)."""
    smooth: u64 = engine.round_trip_ns
    if smooth == 0:
        engine.round_trip_ns = max(sample, 1)
        engine.variation_ns = sample >> 1
    else:
        off: u64 = sample - smooth if sample > smooth else smooth - sample
        engine.variation_ns = (3 * engine.variation_ns + off) >> 2
        engine.round_trip_ns = (7 * smooth + sample) >> 3
    timeout: u64 = max(engine.round_trip_ns + 4 * engine.variation_ns, engine.least_timeout_ns)
    engine.timeout_ns = min(timeout, engine.longest_timeout_ns)


@kernel(inline=True)
def note_congestion(engine: EngineState) -> None:
    """Count a mark, which halves the window."""
    engine.congested += 1
    cut(engine)


@kernel
def cut(engine: EngineState) -> None:
    """Halve the window, once in a round trip."""
    if engine.now_ns - engine.last_cut_ns < engine.round_trip_ns:
        return
    engine.last_cut_ns = engine.now_ns
    engine.cuts += 1
    engine.congestion_window = max(engine.congestion_window >> 1, _LEAST_WINDOW)
    engine.slow_start_until = engine.congestion_window


@kernel
def note_sent(engine: EngineState, slot: Slot) -> None:
    """Start a packet's timer, longer with each repetition."""
    slot.state = State.SENT
    slot.sent_ns = engine.now_ns
    timeout: u64 = engine.timeout_ns << as_u64(min(slot.repeats, 16))
    slot.expires_ns = engine.now_ns + min(timeout, engine.longest_timeout_ns)
    engine.next_expiry_ns = min(engine.next_expiry_ns, slot.expires_ns)
    engine.in_flight += 1
    engine.sent += 1


@kernel
def expire(engine: EngineState) -> None:
    """Have sent again what has waited too long; find out when that is so the next time."""
    engine.next_expiry_ns = _NEVER
    is_oldest: bool = True
    for back in range(as_u64(engine.window)):
        slot = slot_of(engine, engine.next_item - engine.window + as_u32(back))
        if slot.state == State.SENT:
            if slot.expires_ns <= engine.now_ns:
                is_stall: bool = engine.last_result_ns < slot.sent_ns
                if is_oldest or not is_stall:
                    repeat(engine, slot, is_stall)
                else:
                    postpone(engine, slot)
            if slot.state == State.SENT:
                engine.next_expiry_ns = min(engine.next_expiry_ns, slot.expires_ns)
        is_oldest = is_oldest and slot.state == State.DONE


@kernel(inline=True)
def postpone(engine: EngineState, slot: Slot) -> None:
    """Wait for longer, and do not measure a round trip that is somebody's being late."""
    slot.repeats = max(slot.repeats, 1)
    slot.expires_ns = engine.now_ns + engine.timeout_ns
    engine.probe = 1


@kernel
def repeat(engine: EngineState, slot: Slot, is_stall: bool) -> None:
    """Put a packet in line again."""
    slot.state = State.READY
    slot.repeats += 1
    engine.in_flight -= 1
    engine.repeated += 1
    push(engine, slot.item)
    if is_stall:
        engine.stalls += 1
        engine.probe = 1
    else:
        cut(engine)


@kernel(inline=True)
def push(engine: EngineState, item: u32) -> None:
    """Put an item in line to be sent."""
    engine.pending[(engine.pending_first + engine.pending_count) & (engine.window - 1)] = item
    engine.pending_count += 1
