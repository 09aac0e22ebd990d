"""CounterEntry and RegisterEntry: cells that always exist (specification, sections 9.3.2 and 9.7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TypeAlias

from finsy.proto import p4d, p4r

from dataplane.program.objects import CounterSpec, MeterSpec, RegisterSpec
from dataplane.switch.p4runtime import bytestrings, codec
from dataplane.switch.p4runtime.catalog import RegisterInfo
from dataplane.switch.p4runtime.context import Context, Undo, UpdateKind, require_modify
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid

Cell: TypeAlias = p4r.CounterEntry | p4r.RegisterEntry | p4r.MeterEntry

_WORD_BITS = 64
"""Written by packets in one piece; a wider cell is read while packets wait."""


def write_counter(context: Context, kind: UpdateKind, message: p4r.CounterEntry) -> None:
    """Set one cell, or every cell if no index is given; without data nothing changes."""
    spec = context.catalog.counter(message.counter_id).spec
    require_modify(kind, f"{spec.name}: a counter")
    indices = cell_indices(message, spec.size, spec.name)
    if not message.HasField("data"):
        return
    tally = codec.decode_tally(message.data, spec.name)
    counter = context.state.counters[spec.name]
    for index in indices:
        counter.write(index, tally.packets, tally.bytes)


def undo_counter(context: Context, message: p4r.CounterEntry) -> Undo:
    """Return a function that restores the cells' present counts."""
    spec = context.catalog.counter(message.counter_id).spec
    counter = context.state.counters[spec.name]
    present = [(index, *counter.read(index)) for index in cell_indices(message, spec.size, spec.name)]

    def restore() -> None:
        for index, packets, nbytes in present:
            counter.write(index, packets, nbytes)

    return restore


def read_counter(context: Context, message: p4r.CounterEntry) -> Iterator[p4r.Entity]:
    """Return one cell, an array's cells, or every array's."""
    catalog = context.catalog
    infos = [catalog.counter(message.counter_id)] if message.counter_id else list(catalog.counters.values())
    cells = [(info, index) for info in infos for index in cells_to_read(message, message.counter_id, info.spec)]

    def encode() -> Iterator[p4r.Entity]:
        for info, index in cells:
            data = codec.encode_tally(*context.state.counters[info.spec.name].read(index))
            entry = p4r.CounterEntry(counter_id=info.counter_id, index=p4r.Index(index=index), data=data)
            yield p4r.Entity(counter_entry=entry)

    return encode()


def write_register(context: Context, kind: UpdateKind, message: p4r.RegisterEntry) -> None:
    """Set one cell, or every cell if no index is given."""
    info = context.catalog.register(message.register_id)
    require_modify(kind, f"{info.spec.name}: a register")
    indices = cell_indices(message, info.spec.size, info.spec.name)
    value = _decode(info, message)
    for index in indices:
        context.state.write_register(info.spec.name, index, value)


def undo_register(context: Context, message: p4r.RegisterEntry) -> Undo:
    """Return a function that restores the cells' present values."""
    spec = context.catalog.register(message.register_id).spec
    cells = context.state.registers[spec.name]
    present = [(index, cells[index]) for index in cell_indices(message, spec.size, spec.name)]

    def restore() -> None:
        for index, value in present:
            context.state.write_register(spec.name, index, value)

    return restore


def read_register(context: Context, message: p4r.RegisterEntry) -> Iterator[p4r.Entity]:
    """Return one cell, an array's cells, or every array's."""
    catalog = context.catalog
    infos = [catalog.register(message.register_id)] if message.register_id else list(catalog.registers.values())
    chosen = [(info, cells_to_read(message, message.register_id, info.spec)) for info in infos]

    def encode() -> Iterator[p4r.Entity]:
        for info, indices in chosen:
            cells = context.state.registers[info.spec.name]
            with context.control.paused() if info.spec.width > _WORD_BITS else nullcontext():
                values = [cells[index] for index in indices]
            for index, value in zip(indices, values, strict=True):
                entry = p4r.RegisterEntry(register_id=info.register_id, index=p4r.Index(index=index))
                entry.data.CopyFrom(_encode(info, value))
                yield p4r.Entity(register_entry=entry)

    return encode()


def _decode(info: RegisterInfo, message: p4r.RegisterEntry) -> int:
    if message.data.WhichOneof("data") != "bitstring":
        raise invalid(f"{info.spec.name}: the data is not a bitstring")
    decode = bytestrings.decode_signed if info.signed else bytestrings.decode
    return decode(message.data.bitstring, info.spec.width, info.spec.name)


def _encode(info: RegisterInfo, value: int) -> p4d.P4Data:
    if info.signed:
        return p4d.P4Data(bitstring=bytestrings.encode_signed(value, info.spec.width))
    return p4d.P4Data(bitstring=bytestrings.encode(value))


def cells_to_read(message: Cell, array_id: int, spec: CounterSpec | RegisterSpec | MeterSpec) -> range:
    """Return the cells that a read selects: without an id all cells of every array, whatever index it has."""
    return cell_indices(message, spec.size, spec.name) if array_id else range(spec.size)


def cell_indices(message: Cell, size: int, where: str) -> range:
    """Return the cells that a message names: one, or all if it gives no index."""
    if not message.HasField("index"):
        return range(size)
    index = message.index.index
    if index < 0:
        raise invalid(f"{where}: index {index} is negative")
    if index >= size:
        raise P4RuntimeError(Code.OUT_OF_RANGE, f"{where}: index {index} is not below {size}")
    return range(index, index + 1)
