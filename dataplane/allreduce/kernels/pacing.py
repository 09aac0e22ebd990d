"""Pacing by round trips, delivery rate and the congestion window.

Marks halve the window. Losses halve it, too, but not below what the path has been seen to deliver in its minimum round
trip (as in TCP Westwood): where packets are lost for reasons other than full queues, the window stays large enough. A
cut that turns out to be unnecessary, because no packet was lost, is undone.
"""

from __future__ import annotations

from dataplane.allreduce.kernels.layouts import EngineState, Slot
from dataplane.native import as_u64, kernel, u64

PACKET = 256
"""One packet in units of congestion windows."""
_LEAST_WINDOW = 2 * PACKET
_SHORTEST_HOLDS_NS = 10_000_000_000
"""Time for which a minimum round trip is valid."""
_RATE_ROUNDS = 64
"""Round trips for which a delivery rate is valid, and as many again if it was the maximum."""
RATE_BITS = 24
"""Rates are in packets per nanosecond times 2^24."""


@kernel
def open_window(engine: EngineState) -> None:
    """Open the window on a result."""
    window: u64 = engine.congestion_window
    window += PACKET if window < engine.slow_start_until else PACKET * PACKET // window
    engine.congestion_window = min(window, as_u64(engine.window) * PACKET)


@kernel
def measure(engine: EngineState, slot: Slot) -> None:
    """Measure a round trip, smoothed as in TCP (RFC 6298), and the rate at which results arrived meanwhile."""
    sample: u64 = max(engine.now_ns - slot.sent_ns, 1)
    smooth: u64 = engine.round_trip_ns
    if smooth == 0:
        engine.round_trip_ns = sample
        engine.variation_ns = sample >> 1
    else:
        off: u64 = sample - smooth if sample > smooth else smooth - sample
        engine.variation_ns = (3 * engine.variation_ns + off) >> 2
        engine.round_trip_ns = (7 * smooth + sample) >> 3
    timeout: u64 = max(2 * engine.round_trip_ns, engine.round_trip_ns + 4 * engine.variation_ns)
    engine.timeout_ns = min(max(timeout, engine.floor_ns), engine.longest_timeout_ns)
    if (
        engine.shortest_ns == 0
        or sample <= engine.shortest_ns
        or engine.now_ns - engine.shortest_at_ns > _SHORTEST_HOLDS_NS
    ):
        engine.shortest_ns = sample
        engine.shortest_at_ns = engine.now_ns
    note_rate(engine, ((engine.results - slot.results) << RATE_BITS) // sample)


@kernel(inline=True)
def note_rate(engine: EngineState, rate: u64) -> None:
    """Keep the maximum rate of recent round trips."""
    if engine.now_ns - engine.rate_since_ns > _RATE_ROUNDS * engine.round_trip_ns:
        engine.rate_since_ns = engine.now_ns
        engine.rate_before = engine.rate
        engine.rate = 0
    engine.rate = max(engine.rate, rate)


@kernel
def path_holds(engine: EngineState) -> u64:
    """Return the window that the path needs at its observed delivery rate, plus half."""
    rate: u64 = max(engine.rate, engine.rate_before)
    needed: u64 = rate * engine.shortest_ns >> RATE_BITS
    return (needed + needed // 2 + 4) * PACKET


@kernel(inline=True)
def note_congestion(engine: EngineState) -> None:
    """Count a mark, which halves the window at most once per round trip."""
    engine.congested += 1
    if may_cut(engine):
        engine.lost_since_cut = 0
        cut_to(engine, engine.congestion_window >> 1)


@kernel
def note_loss(engine: EngineState) -> None:
    """Count a presumed loss, which shrinks the window at most once per round trip."""
    if may_cut(engine):
        engine.window_before = engine.congestion_window
        engine.start_before = engine.slow_start_until
        engine.lost_since_cut = 0
        half: u64 = engine.congestion_window >> 1
        cut_to(engine, max(half, min(engine.congestion_window, path_holds(engine))))
    engine.lost_since_cut += 1


@kernel(inline=True)
def may_cut(engine: EngineState) -> bool:
    """Return whether a round trip has passed since the last cut."""
    return engine.now_ns - engine.last_cut_ns >= engine.round_trip_ns


@kernel
def cut_to(engine: EngineState, window: u64) -> None:
    """Shrink the window to a size."""
    engine.last_cut_ns = engine.now_ns
    engine.cuts += 1
    engine.congestion_window = max(window, _LEAST_WINDOW)
    engine.slow_start_until = engine.congestion_window


@kernel
def note_no_loss(engine: EngineState) -> None:
    """Handle a false loss: undo the cut once all presumed losses have proved false."""
    engine.spurious += 1
    if engine.lost_since_cut == 0:
        return
    engine.lost_since_cut -= 1
    if engine.lost_since_cut == 0:
        engine.undone += 1
        engine.congestion_window = max(engine.congestion_window, engine.window_before)
        engine.slow_start_until = max(engine.slow_start_until, engine.start_before)
