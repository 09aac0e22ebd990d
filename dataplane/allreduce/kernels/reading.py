"""A reader, who takes part in nothing: results come to it of themselves, and it asks (PULL) for those that do not.

It listens first. A result that is missing among those that come it asks for; where nothing comes any more it asks for
the oldest. If there is an answer to that, the all-reduce is over, and it asks for everything.
"""

from __future__ import annotations

from dataplane.allreduce.kernels.layouts import EngineState, Reading, Slot, State
from dataplane.allreduce.kernels.loss_recovery import NEVER, push, set_probe
from dataplane.allreduce.kernels.send_schedule import slot_of
from dataplane.native import as_u32, as_u64, kernel, u32

_BEHIND, _LOOKED_AT = 16, 8
"""How many items a result may be late, and how many places behind are looked at with each."""


@kernel(inline=True)
def line_up(engine: EngineState, item: u32) -> None:
    """Put an item that was begun in line, or, listening, wait for its result."""
    if engine.reading != Reading.LISTENING:
        push(engine, item)
        return
    slot_of(engine, item).state = State.LISTENING
    if engine.probe_at_ns == NEVER:
        set_probe(engine)


@kernel
def ask_for_missing(engine: EngineState, item: u32) -> None:
    """Ask for results that should have come before this one's."""
    for more in range(_LOOKED_AT):
        missing: u32 = item - _BEHIND - as_u32(more)
        slot = slot_of(engine, missing)
        if slot.item == missing and slot.state == State.LISTENING:
            ask_for(engine, slot)


@kernel
def ask_for_all(engine: EngineState) -> None:
    """Listen no more."""
    engine.reading = Reading.PULLING
    for at in range(as_u64(engine.window)):
        slot = engine.slots[at]
        if slot.state == State.LISTENING:
            ask_for(engine, slot)


@kernel(inline=True)
def ask_for(engine: EngineState, slot: Slot) -> None:
    """Put a PULL in line."""
    slot.state = State.READY
    push(engine, slot.item)
