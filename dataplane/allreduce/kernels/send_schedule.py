"""The schedule (dataplane/allreduce/schedule.py), and its items' contents as written into slots' packets."""

from __future__ import annotations

from dataplane.allreduce.checks import CODE
from dataplane.allreduce.formats import BIAS, BLOCK, MINUS, PLUS, ZERO
from dataplane.allreduce.kernels.checks import check_of_one, weighted
from dataplane.allreduce.kernels.formats import MARK, block_exponent, to_lanes
from dataplane.allreduce.kernels.layouts import (
    AGREED_GROUPS,
    HEADER_BYTES,
    NOBODY,
    STRIDE,
    VALUE_BYTES,
    EngineState,
    Reading,
    Slot,
    State,
)
from dataplane.allreduce.schedule import GROUP
from dataplane.native import (
    Array,
    address,
    array_at,
    as_i32,
    as_u16,
    as_u32,
    as_u64,
    copy,
    fill,
    i32,
    kernel,
    load_be32,
    offset,
    store_be16,
    store_be32,
    store_be64,
    u8,
    u16,
    u32,
    u64,
)
from dataplane.wire.aggregation import QUARTERS, VERSION, Flags, Kind, Operation

EXPONENTS, SUMS, CLASSES = 0, 1, 2
NOTHING, READY, DEFERRED = 0, 1, 2
_BLOCKS, _COUNTS = 0, 1
_AHEAD = 2
_CONTRIBUTION = VERSION << 28 | Kind.CONTRIBUTION << 24
_PULL = VERSION << 28 | Kind.PULL << 24
_DISTRIBUTE = VERSION << 28 | Kind.DISTRIBUTE << 24
_FINAL, _DISTRIBUTED, _CALL = Flags.FINAL << 16, Flags.DISTRIBUTED << 16, Flags.CALL << 16
_LANES = QUARTERS << 24
_INFINITE, _MAGNITUDE, _SIGN = 0x7F800000, 0x7FFFFFFF, 0x80000000


@kernel(inline=True)
def slot_of(engine: EngineState, item: u32) -> Slot:
    """Return an item's slot."""
    return engine.slots[item & (engine.window - 1)]


@kernel(inline=True)
def packet_of(engine: EngineState, item: u32) -> Array[u8]:
    """Return an item's packet buffer; it stays valid until another item is begun two windows later."""
    return offset(engine.packets, as_u64(item & (2 * engine.window - 1)) * STRIDE)


@kernel(inline=True)
def values_in(engine: EngineState, block: u32) -> u32:
    """Return the number of values in a block: 256 in all but the last."""
    left: u64 = engine.values - as_u64(block) * BLOCK
    return as_u32(min(left, BLOCK))


@kernel(inline=True)
def block_at(values: Array[u32], block: u32) -> Array[u32]:
    """Return a block's first value."""
    return offset(values, as_u64(block) * BLOCK)


@kernel(inline=True)
def is_generated(engine: EngineState) -> bool:
    """Return whether all items have been begun."""
    return engine.group == engine.groups


@kernel
def generate(engine: EngineState) -> u32:
    """Begin the next item: return READY if it may be sent, DEFERRED if it must wait for its predecessor's result.

    NOTHING: there is no next one, or not yet. A block is deferred, so that those behind it need not wait as well. Items
    that agree on something are not, nor are blocks with non-finite values, whose memory their classes may overwrite.
    """
    slot = slot_of(engine, engine.next_item)
    if slot.state == State.DONE:
        return READY if generate_next(engine) else NOTHING
    if slot.is_deferred != 0 or engine.asked < min(engine.groups, _AHEAD):
        return NOTHING
    return DEFERRED if defer_block(engine, slot) else NOTHING


@kernel
def defer_block(engine: EngineState, slot: Slot) -> bool:
    """Give the next block the next number if it may wait; return whether it may."""
    if engine.group == engine.groups or engine.settled[engine.group % AGREED_GROUPS] != engine.group + 1:
        return False
    count: u32 = min(GROUP, engine.blocks - engine.group * GROUP)
    agreed: Array[u16] = offset(engine.agreed, as_u64(engine.group % AGREED_GROUPS) * (2 * GROUP))
    while engine.stage == _BLOCKS and engine.cursor < count:
        at: u32 = engine.cursor
        if agreed[GROUP + at] != 0:
            return False
        engine.cursor += 1
        block: u32 = engine.group * GROUP + at
        if agreed[at] == ZERO:
            write_zeros(engine, block)
            continue
        slot.is_deferred = 1
        slot.next_at = block
        slot.next_shift = shift_of(engine, as_u32(agreed[at]))
        engine.next_item += 1
        engine.unfinished += 1
        return True
    return False


@kernel
def begin_deferred(engine: EngineState, slot: Slot) -> u32:
    """Begin the block that waited for this slot's result; return its item."""
    item: u32 = slot.item + engine.window
    slot.is_deferred = 0
    block: u32 = slot.next_at
    shift: i32 = slot.next_shift
    lanes: Array[u8] = write_item(engine, item, SUMS, block, as_u32(Operation.SUM))
    write_block(engine, item, lanes, block, shift)
    return item


@kernel
def generate_next(engine: EngineState) -> bool:
    """Begin the next item, ready to be sent; return whether there is one."""
    if engine.asked < min(engine.groups, _AHEAD):
        begin_exponents(engine, engine.asked)
        engine.asked += 1
        return True
    while engine.group < engine.groups:
        if engine.settled[engine.group % AGREED_GROUPS] != engine.group + 1:
            return False
        if next_in_group(engine):
            return True
        done: u32 = engine.group
        engine.group += 1
        engine.stage = _BLOCKS
        engine.cursor = 0
        if done + _AHEAD < engine.groups:
            begin_exponents(engine, done + _AHEAD)
            return True
    return False


@kernel
def next_in_group(engine: EngineState) -> bool:
    """Begin the next block or classes of the current group; return whether there are more."""
    count: u32 = min(GROUP, engine.blocks - engine.group * GROUP)
    agreed: Array[u16] = offset(engine.agreed, as_u64(engine.group % AGREED_GROUPS) * (2 * GROUP))
    while engine.stage == _BLOCKS:
        if engine.cursor == count:
            engine.stage = _COUNTS
            engine.cursor = 0
            break
        at: u32 = engine.cursor
        engine.cursor += 1
        if begin_block(engine, at, as_u32(agreed[at]), agreed[GROUP + at] != 0):
            return True
    while engine.cursor < count:
        at = engine.cursor
        engine.cursor += 1
        if agreed[GROUP + at] != 0:
            begin_classes(engine, at)
            return True
    return False


@kernel
def begin(engine: EngineState, what: u32, at: u32, operation: u32) -> Array[u8]:
    """Take the next item's slot and write its header; return its payload."""
    item: u32 = engine.next_item
    engine.next_item += 1
    engine.unfinished += 1
    return write_item(engine, item, what, at, operation)


@kernel
def write_item(engine: EngineState, item: u32, what: u32, at: u32, operation: u32) -> Array[u8]:
    """Give an item its slot and write its header; return its payload."""
    slot = slot_of(engine, item)
    slot.item = item
    slot.state = State.READY
    slot.what = what
    slot.at = at
    slot.covered = 0
    slot.partner = NOBODY
    slot.repeats = 0
    slot.is_probe = 0
    slot.shift = 0
    slot.epoch = engine.epoch
    slot.corrupt = 0
    packet: Array[u8] = packet_of(engine, item)
    first: u32 = _DISTRIBUTE if engine.distributed != 0 else _CONTRIBUTION
    first = first if engine.reading == Reading.NO else _PULL
    flags: u32 = _FINAL if engine.is_final != 0 else 0
    flags |= _CALL if engine.is_call != 0 else 0
    flags |= _DISTRIBUTED if engine.distributed != 0 else 0
    store_be32(packet, 0, first | flags | engine.job)
    store_be32(packet, 4, item)
    write_epoch(packet, engine.epoch)
    store_be32(packet, 12, operation << 28 | _LANES)
    store_be64(packet, 16, engine.nonce)
    store_be64(packet, 24, check_of_one(engine.nonce, item, 0))
    return offset(packet, HEADER_BYTES)


@kernel
def write_question(engine: EngineState) -> None:
    """Write the main server's request for the job's newest item into the next item's packet."""
    packet: Array[u8] = packet_of(engine, engine.next_item)
    store_be32(packet, 0, _PULL | _CALL | engine.job)
    store_be32(packet, 4, engine.next_item)
    write_epoch(packet, engine.epoch)
    store_be32(packet, 12, as_u32(Operation.MAX) << 28 | _LANES)
    store_be64(packet, 16, engine.nonce)
    fill(offset(packet, 24), 0, 8 + VALUE_BYTES)


@kernel(inline=True)
def write_epoch(packet: Array[u8], epoch: u32) -> None:
    """Write the epoch, and a worker count of one."""
    store_be32(packet, 8, epoch << 16 | 1)


@kernel
def begin_exponents(engine: EngineState, group: u32) -> None:
    """Begin the item that agrees on a group's exponents."""
    lanes: Array[u8] = begin(engine, EXPONENTS, group, as_u32(Operation.MAX))
    fill(lanes, 0, VALUE_BYTES)
    if engine.reading != Reading.NO:
        return
    count: u32 = min(GROUP, engine.blocks - group * GROUP)
    for at in range(as_u64(count)):
        block: u32 = group * GROUP + as_u32(at)
        size: u32 = values_in(engine, block)
        exponent: u32 = 0
        if engine.is_integer != 0:
            exponent = any_of(block_at(engine.source, block), size)
        else:
            exponent = block_exponent(block_at(engine.source, block), size)
        store_be16(lanes, at * 2, as_u16((exponent & (MARK - 1)) * CODE))
        store_be16(lanes, (GROUP + at) * 2, as_u16(exponent // MARK * CODE))


@kernel
def any_of(values: Array[u32], count: u32) -> u32:
    """Return 1 if any value is not 0."""
    together: u32 = 0
    for at in range(as_u64(count)):
        together |= values[at]
    return 1 if together != 0 else 0


@kernel
def begin_block(engine: EngineState, at: u32, agreed: u32, marked: bool) -> bool:
    """Begin the sum of a block, or write zeros if it is all zero; return which."""
    block: u32 = engine.group * GROUP + at
    size: u32 = values_in(engine, block)
    source: Array[u32] = block_at(engine.source, block)
    saved: Array[u8] = offset(engine.saved_classes, as_u64(at) * (VALUE_BYTES + 4))
    if marked:
        count_classes(source, size, saved)
        store_be32(saved, VALUE_BYTES, NOBODY)
    if agreed == ZERO:
        write_zeros(engine, block)
        return False
    item: u32 = engine.next_item
    lanes: Array[u8] = begin(engine, SUMS, block, as_u32(Operation.SUM))
    if marked:
        store_be32(saved, VALUE_BYTES, item)
    write_block(engine, item, lanes, block, shift_of(engine, agreed))
    return True


@kernel(inline=True)
def shift_of(engine: EngineState, agreed: u32) -> i32:
    """Return the power of two that converts a block's values to lanes."""
    return 30 - as_i32(engine.headroom) - (as_i32(agreed) - BIAS)


@kernel(inline=True)
def write_zeros(engine: EngineState, block: u32) -> None:
    """Write the sums of an all-zero block."""
    fill(array_at(u8, address(block_at(engine.target, block))), 0, as_u64(values_in(engine, block)) * 4)


@kernel
def write_block(engine: EngineState, item: u32, lanes: Array[u8], block: u32, shift: i32) -> None:
    """Write the lanes of a block item, and its check; a reader's are zeros."""
    slot_of(engine, item).shift = shift
    if engine.reading != Reading.NO:
        fill(lanes, 0, VALUE_BYTES)
        return
    size: u32 = values_in(engine, block)
    source: Array[u32] = block_at(engine.source, block)
    if engine.is_integer != 0:
        for lane in range(as_u64(size)):
            store_be32(lanes, lane * 4, source[lane])
    else:
        to_lanes(source, size, shift, lanes)
    fill(offset(lanes, as_u64(size) * 4), 0, as_u64(BLOCK - size) * 4)
    store_be64(packet_of(engine, item), 24, check_of_one(engine.nonce, item, shift) + weighted(lanes))


@kernel
def begin_classes(engine: EngineState, at: u32) -> None:
    """Begin the item that gives the positions of a block's non-finite values."""
    saved: Array[u8] = offset(engine.saved_classes, as_u64(at) * (VALUE_BYTES + 4))
    item: u32 = engine.next_item
    lanes: Array[u8] = begin(engine, CLASSES, engine.group * GROUP + at, as_u32(Operation.MAX))
    slot_of(engine, item).partner = load_be32(saved, VALUE_BYTES)
    copy(lanes, saved, VALUE_BYTES)


@kernel
def count_classes(values: Array[u32], count: u32, lanes: Array[u8]) -> None:
    """Write a block's lanes of classes, as formats.classes does."""
    fill(lanes, 0, VALUE_BYTES)
    for at in range(as_u64(count)):
        magnitude: u32 = values[at] & _MAGNITUDE
        infinite: u32 = MINUS if (values[at] & _SIGN) != 0 else PLUS
        kind: u32 = PLUS | MINUS if magnitude > _INFINITE else infinite
        store_be32(lanes, at * 4, kind if magnitude >= _INFINITE else 0)
