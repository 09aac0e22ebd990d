"""Reader mode without contributions: results arrive unrequested, and missing ones are requested (PULL).

It listens first. It requests a result that is missing among those that arrive; if nothing arrives any more it requests
the oldest. An answer to that means that the all-reduce is over, and it requests everything; of what the main server
distributes, the next one.
"""

from __future__ import annotations

from dataplane.allreduce.kernels.layouts import EngineState, Reading, Slot, State
from dataplane.allreduce.kernels.loss_recovery import NEVER, push, set_probe
from dataplane.allreduce.kernels.send_schedule import slot_of
from dataplane.native import as_u32, as_u64, kernel, u32

_BEHIND, _LOOKED_AT = 16, 8
"""Items by which a result may be late, and preceding positions checked with each result."""


@kernel(inline=True)
def line_up(engine: EngineState, item: u32) -> None:
    """Queue an item that was begun, or, listening, wait for its result."""
    if engine.reading != Reading.LISTENING:
        push(engine, item)
        return
    slot_of(engine, item).state = State.LISTENING
    if engine.probe_at_ns == NEVER:
        set_probe(engine)


@kernel
def ask_for_missing(engine: EngineState, item: u32) -> None:
    """Request results that should have arrived before this one."""
    for more in range(_LOOKED_AT):
        missing: u32 = item - _BEHIND - as_u32(more)
        slot = slot_of(engine, missing)
        if slot.item == missing and slot.state == State.LISTENING:
            ask_for(engine, slot)


@kernel
def ask_for_all(engine: EngineState) -> None:
    """Stop listening."""
    engine.reading = Reading.PULLING
    for at in range(as_u64(engine.window)):
        slot = engine.slots[at]
        if slot.state == State.LISTENING:
            ask_for(engine, slot)


@kernel
def ask_for_next(engine: EngineState) -> None:
    """Request the oldest result that has not come, one in each round trip.

    A switch has what the main server distributes before its copies arrive, so an answer does not mean that they are
    lost.
    """
    oldest: u32 = engine.next_item
    for at in range(as_u64(engine.window)):
        slot = engine.slots[at]
        if slot.state == State.LISTENING and engine.next_item - slot.item > engine.next_item - oldest:
            oldest = slot.item
    if oldest != engine.next_item:
        ask_for(engine, slot_of(engine, oldest))


@kernel(inline=True)
def ask_for(engine: EngineState, slot: Slot) -> None:
    """Queue a PULL."""
    slot.state = State.READY
    push(engine, slot.item)
