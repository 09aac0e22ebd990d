"""Processing of the switch's answers."""

from __future__ import annotations

from dataplane.allreduce.checks import CODE
from dataplane.allreduce.formats import MOST_EXPONENT
from dataplane.allreduce.kernels.checks import check_of_one, is_maximum, weighted
from dataplane.allreduce.kernels.formats import from_lanes
from dataplane.allreduce.kernels.layouts import (
    AGREED_GROUPS,
    HEADER_BYTES,
    KNOWN_EPOCHS,
    PACKET_BYTES,
    STRIDE,
    EngineState,
    Reading,
    Seeking,
    Slot,
    State,
    Status,
)
from dataplane.allreduce.kernels.loss_recovery import note_result, push
from dataplane.allreduce.kernels.pacing import note_congestion
from dataplane.allreduce.kernels.reading import ask_for_all, ask_for_missing, ask_for_next, line_up
from dataplane.allreduce.kernels.replay import keep
from dataplane.allreduce.kernels.send_schedule import (
    CLASSES,
    EXPONENTS,
    SUMS,
    begin_deferred,
    block_at,
    packet_of,
    slot_of,
    values_in,
    write_epoch,
)
from dataplane.allreduce.schedule import GROUP
from dataplane.native import (
    Array,
    as_u32,
    as_u64,
    copy,
    kernel,
    load_be16,
    load_be32,
    load_be64,
    offset,
    u8,
    u16,
    u32,
    u64,
)
from dataplane.wire.aggregation import QUARTERS, VERSION, Flags, Kind, Operation, Reason

_NAN_BITS, _PLUS_BITS, _MINUS_BITS = 0x7FC00000, 0x7F800000, 0xFF800000
_MAGNITUDE = 0x7FFFFFFF
_HALF = 1 << 15
_PAST = 1 << 31
_MOST_CORRUPT = 3
"""Results of one item that may fail their check until the switch is no longer trusted."""


@kernel
def accept_packet(engine: EngineState, packet: Array[u8], length: u32) -> None:
    """Process a packet from the switch; `status` says whether the engine must return."""
    first: u32 = load_be32(packet, 0) if length >= HEADER_BYTES else 0
    kind: u32 = first >> 24 & 15
    if first >> 28 != VERSION or (first & 0xFFFF) != engine.job:
        engine.malformed += 1
        return
    if load_be64(packet, 16) != engine.nonce:
        engine.forged += 1
        return
    if kind == Kind.REFUSED:
        accept_refusal(engine, packet)
    elif kind == Kind.RESULT or kind == Kind.AGAIN:  # noqa: PLR1714 - kernels have no `in`
        if engine.seeking != Seeking.NO:
            note_call(engine, packet, length, first)
        else:
            accept_result(engine, packet, length, first)
    else:
        engine.malformed += 1


@kernel
def accept_refusal(engine: EngineState, packet: Array[u8]) -> None:
    """Handle a refusal: a newer epoch, or an item that does not match the others'."""
    item: u32 = load_be32(packet, 4)
    slot = slot_of(engine, item)
    reason: u32 = load_be32(packet, 12) >> 16 & 255
    if reason == Reason.EPOCH:
        if engine.hears_refusals != 0:
            take_epoch(engine, as_u32(load_be16(packet, 8)))
    elif slot.item == item and slot.state != State.DONE:
        engine.bad_item = item
        engine.bad_reason = reason
        engine.status = Status.REFUSED


@kernel
def take_epoch(engine: EngineState, epoch: u32) -> None:
    """Make the engine continue in this epoch, if it is newer."""
    newer: u32 = (epoch - engine.epoch) & 0xFFFF
    if newer != 0 and newer < _HALF:
        engine.new_epoch = epoch
        engine.status = Status.EPOCH


@kernel
def accept_result(engine: EngineState, packet: Array[u8], length: u32, first: u32) -> None:
    """Process a result: store it, free its slot, and keep it for workers that may need it."""
    item: u32 = load_be32(packet, 4)
    slot = slot_of(engine, item)
    if slot.item != item or slot.state == State.DONE:
        engine.useless += 1
        return
    flags: u32 = first >> 16 & 255
    operation: u32 = Operation.SUM if slot.what == SUMS else Operation.MAX
    workers: u32 = as_u32(load_be16(packet, 10))
    is_sound: bool = length == PACKET_BYTES and load_be32(packet, 12) >> 24 == (operation << 4 | QUARTERS)
    is_sound = is_sound and is_of_its_time(engine, slot, as_u32(load_be16(packet, 8)))
    if not is_sound:
        engine.malformed += 1
        return
    if not is_intact(engine, slot, packet, flags, workers):
        note_corrupt(engine, slot)
        return
    is_again: bool = (first >> 24 & 15) == Kind.AGAIN
    note_result(engine, slot, is_again)
    if (flags & Flags.CONGESTED) != 0:
        note_congestion(engine)
    if (flags & Flags.SATURATED) != 0:
        engine.bad_item = item
        engine.saturated = 1
    keep(engine, item, packet)
    copy(offset(engine.recent, as_u64(item & (2 * engine.window - 1)) * STRIDE), packet, PACKET_BYTES)
    values: Array[u8] = offset(packet, HEADER_BYTES)
    if slot.what == EXPONENTS:
        settle(engine, slot.at, values)
    elif slot.what == CLASSES:
        take_classes(engine, slot, values)
    else:
        take_sum(engine, slot, values, workers)
    slot.state = State.DONE
    engine.unfinished -= 1
    if slot.is_deferred != 0:
        line_up(engine, begin_deferred(engine, slot))
    if engine.reading == Reading.LISTENING:
        if is_again and engine.distributed != 0:
            ask_for_next(engine)
        elif is_again and slot.is_probe != 0:
            ask_for_all(engine)
        else:
            ask_for_missing(engine, item)


@kernel
def note_call(engine: EngineState, packet: Array[u8], length: u32, first: u32) -> None:
    """Continue behind the item at which all workers wait for the main server, if this is it."""
    item: u32 = load_be32(packet, 4)
    workers: u32 = as_u32(load_be16(packet, 10))
    is_call: bool = length == PACKET_BYTES and (first >> 16 & Flags.CALL) != 0
    is_past: bool = engine.seeking == Seeking.AHEAD and item - engine.next_item >= _PAST
    if not is_call or is_past:
        engine.useless += 1
    elif workers > engine.capacity or load_be64(packet, 24) != as_u64(workers) * check_of_one(engine.nonce, item, 0):
        engine.corrupt += 1
    else:
        engine.next_item = item + 1
        engine.seeking = as_u32(Seeking.NO)
        engine.status = Status.DONE


@kernel(inline=True)
def is_of_its_time(engine: EngineState, slot: Slot, epoch: u32) -> bool:
    """Return whether an item can be complete in an epoch: only those in which this worker contributed qualify."""
    until_now: u32 = (engine.epoch - slot.epoch) & 0xFFFF
    is_free: bool = engine.reading != Reading.NO or engine.distributed != 0
    return is_free or ((epoch - slot.epoch) & 0xFFFF) <= until_now


@kernel
def is_intact(engine: EngineState, slot: Slot, packet: Array[u8], flags: u32, workers: u32) -> bool:
    """Return whether a result includes all workers, with no bit changed on the way."""
    if workers == 0 or workers > engine.capacity:  # the divisor of a mean
        return False
    distributed: u32 = 1 if (flags & Flags.DISTRIBUTED) != 0 else 0
    if distributed != engine.distributed:
        return False
    epoch: u32 = as_u32(load_be16(packet, 8))
    contributors: u32 = engine.contributors[epoch % KNOWN_EPOCHS]
    contributors = epoch << 16 | 1 if engine.distributed != 0 else contributors
    if contributors != 0 and contributors >> 16 == epoch and (contributors & 0xFFFF) != workers:
        return False
    values: Array[u8] = offset(packet, HEADER_BYTES)
    check: u64 = load_be64(packet, 24) - as_u64(workers) * check_of_one(engine.nonce, slot.item, slot.shift)
    is_saturated: bool = (flags & Flags.SATURATED) != 0
    if slot.what == SUMS:
        fits: bool = check == weighted(values)
        # A clamped sum fails its check; float sums cannot be clamped.
        return fits if not is_saturated else engine.is_integer != 0 and not fits
    own: Array[u8] = offset(packet_of(engine, slot.item), HEADER_BYTES)
    most: u32 = MOST_EXPONENT if slot.what == EXPONENTS else 1
    rest: bool = is_maximum(offset(values, 2 * GROUP), offset(own, 2 * GROUP), 1)
    return check == 0 and not is_saturated and rest and is_maximum(values, own, most)


@kernel
def note_corrupt(engine: EngineState, slot: Slot) -> None:
    """Count an unusable result; the item is requested again, and eventually given up."""
    engine.corrupt += 1
    slot.corrupt += 1
    if slot.corrupt == _MOST_CORRUPT:
        engine.bad_item = slot.item
        engine.status = Status.CORRUPT


@kernel
def settle(engine: EngineState, group: u32, values: Array[u8]) -> None:
    """Store the agreed exponents and marks of a group."""
    agreed: Array[u16] = offset(engine.agreed, as_u64(group % AGREED_GROUPS) * (2 * GROUP))
    for at in range(2 * GROUP):
        agreed[at] = load_be16(values, at * 2) // CODE
    engine.settled[group % AGREED_GROUPS] = group + 1


@kernel
def take_sum(engine: EngineState, slot: Slot, values: Array[u8], workers: u32) -> None:
    """Write a block's sums, or means, but keep classes that arrived before."""
    size: u32 = values_in(engine, slot.at)
    target: Array[u32] = block_at(engine.target, slot.at)
    if engine.is_integer != 0:
        for at in range(as_u64(size)):
            target[at] = load_be32(values, at * 4)
        return
    divisor: u32 = workers if engine.mean != 0 else 1
    if slot.covered == 0:
        from_lanes(values, size, 0 - slot.shift, divisor, target)
        return
    from_lanes(values, size, 0 - slot.shift, divisor, engine.scratch)
    for at in range(as_u64(size)):
        is_covered: bool = (target[at] & _MAGNITUDE) >= _PLUS_BITS
        target[at] = target[at] if is_covered else engine.scratch[at]


@kernel
def take_classes(engine: EngineState, slot: Slot, values: Array[u8]) -> None:
    """Write non-finite values over a block's sums; if those are still to come, zeros elsewhere."""
    target: Array[u32] = block_at(engine.target, slot.at)
    sums = slot_of(engine, slot.partner)
    is_partner: bool = sums.item == slot.partner and sums.what == SUMS and sums.at == slot.at
    waits: bool = is_partner and sums.state != State.DONE
    if waits:
        sums.covered = 1
    for at in range(as_u64(values_in(engine, slot.at))):
        classes: u32 = load_be32(values, at * 4)
        plus: bool = classes >> 16 != 0
        minus: bool = (classes & 0xFFFF) != 0
        kept: u32 = 0 if waits else target[at]
        kept = _MINUS_BITS if minus else kept
        kept = _PLUS_BITS if plus else kept
        target[at] = _NAN_BITS if plus and minus else kept


@kernel
def adopt_epoch(engine: EngineState, epoch: u32) -> None:
    """Continue in another epoch: everything without a result is resent, and the patience is reset."""
    engine.epoch = epoch
    engine.patient_from_ns = engine.now_ns
    engine.pending_first = 0
    engine.pending_count = 0
    engine.in_flight = 0
    for at in range(as_u64(engine.window)):
        slot = engine.slots[at]
        if slot.state != State.DONE:
            write_epoch(packet_of(engine, slot.item), epoch)
            slot.state = State.READY
            slot.repeats = max(slot.repeats, 1)
            slot.is_probe = 1
            push(engine, slot.item)
