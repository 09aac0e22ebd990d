"""Digests and log messages: records of words in the machine's ring of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from llvmlite import ir

from dataplane.native import Array, atomic_add, kernel, load_acquire, reference, store_release, u64
from dataplane.native.locks import lock, unlock
from dataplane.program.model import Digest
from dataplane.program.operations import LogMessage, SizedConstant
from dataplane.switch.abi import EventRing, Machine, Reason
from dataplane.switch.compiler.lowering.fields import header_of, resize
from dataplane.switch.compiler.lowering.routine import I64, POINTER, Emission, LogText, Routine, integer, u32
from dataplane.switch.compiler.lowering.routine import u64 as word
from dataplane.switch.tables.arrays import word_count

if TYPE_CHECKING:
    from dataplane.switch.compiler.lowering.expressions import Expressions

DIGEST, LOG_MESSAGE = 0, 1
"""Kinds of records."""

_HEAD_WORDS = 3


@kernel(inline=False)
def write_event(ring: EventRing, record: Array[u64], count: u64) -> bool:
    """Append a record of `count` words; return False, and count it as dropped, if there is no room."""
    lock(reference(ring.lock))
    head = ring.head
    fits = head + count - load_acquire(ring.tail) <= ring.mask + 1
    if fits:
        for index in range(count):
            ring.words[(head + index) & ring.mask] = record[index]
        store_release(ring.head, head + count)
    else:
        ring.dropped += 1
    unlock(reference(ring.lock))
    return fits


@kernel(inline=False)
def send_digest(machine: Machine, record: Array[u64], count: u64) -> None:
    """Append a digest, or count it as dropped by a full queue."""
    if not write_event(machine.events, record, count):
        atomic_add(machine.drops[Reason.DIGEST_QUEUE_FULL], 1)


def _put_head(routine: Routine, record: ir.Value, head: Sequence[int]) -> None:
    for index, number in enumerate(head):
        _put(routine, record, index, word(number))


def _put(routine: Routine, record: ir.Value, index: int, value: ir.Value) -> None:
    target = routine.builder.gep(record, [word(index)], source_etype=I64)
    routine.store(value, target, "state", 8)


def emit_log_message(routine: Routine, expressions: Expressions, message: LogMessage) -> None:
    """Emit a log message, which is only computed while it has readers."""
    builder, emission = routine.builder, routine.emission
    ranges = [expressions.ranges.of(value) for value in message.values]
    words = [(interval.bits + 63) // 64 for interval in ranges]
    number = len(emission.log_messages)
    shapes = tuple((count, interval.signed) for count, interval in zip(words, ranges, strict=True))
    emission.log_messages.append(LogText(message.pieces, shapes))
    enabled = routine.load_member(Machine, routine.machine, "log_enabled")
    with builder.if_then(builder.icmp_unsigned("!=", enabled, word(0)), likely=False):
        total = _HEAD_WORDS + sum(words)
        record = routine.local(I64, total)
        _put_head(routine, record, (total, LOG_MESSAGE, number))
        index = _HEAD_WORDS
        for value, count in zip(message.values, words, strict=True):
            bits = expressions.low(value, 64 * count)
            routine.store(bits, builder.gep(record, [word(index)], source_etype=I64), "state", 8)
            index += count
        events = routine.load_member(Machine, routine.machine, "events")
        builder.call(routine.module.function(write_event), [events, record, word(total)])


def emit_digests(emission: Emission, declare: Callable[[str, ir.Type, Sequence[ir.Type]], ir.Function]) -> None:
    """Emit `p4_digest`, which sends the digest that the packet has requested."""
    function = declare("p4_digest", ir.VoidType(), [POINTER, POINTER])
    routine = Routine(emission, function, "digests")
    builder = routine.builder
    switch = builder.switch(routine.packet_field("digest"), routine.end)
    for index, digest in enumerate(emission.program.digests.values()):
        block = routine.block()
        switch.add_case(u32(index + 1), block)
        builder.position_at_end(block)
        _send(routine, index, digest)
        builder.branch(routine.end)
    builder.position_at_end(routine.end)
    builder.ret_void()


def _send(routine: Routine, number: int, digest: Digest) -> None:
    widths = [width for _, width in digest.spec.fields]
    total = _HEAD_WORDS + sum(word_count(width) for width in widths)
    record = routine.local(I64, total)
    _put_head(routine, record, (total, DIGEST, number))
    index = _HEAD_WORDS
    for source, width in zip(digest.sources, widths, strict=True):
        count = word_count(width)
        if isinstance(source, SizedConstant):
            value: ir.Value = ir.Constant(integer(64 * count), source.value)
        else:
            value = _cut(routine, header_of(routine, source).load(source.field), width, 64 * count)
        target = routine.builder.gep(record, [word(index)], source_etype=I64)
        routine.store(value, target, "state", 8)
        index += count
    routine.builder.call(routine.module.function(send_digest), [routine.machine, record, word(total)])


def _cut(routine: Routine, value: ir.Value, width: int, bits: int) -> ir.Value:
    wide = resize(routine, value, bits)
    if width >= value.type.width:
        return wide
    return routine.builder.and_(wide, ir.Constant(wide.type, (1 << width) - 1))
