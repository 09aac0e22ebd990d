"""MeterEntry: the cells of indirect meters (specification, section 9.4.2)."""

from __future__ import annotations

from collections.abc import Iterator

from finsy.proto import p4r

from dataplane.switch.p4runtime import codec
from dataplane.switch.p4runtime.context import Context, Undo, UpdateKind, require_modify
from dataplane.switch.p4runtime.entities.arrays import cell_indices, cells_to_read
from dataplane.switch.p4runtime.errors import unimplemented


def write(context: Context, kind: UpdateKind, message: p4r.MeterEntry) -> None:
    """Configure one cell, or every cell if no index is given; without configuration all packets are green."""
    info = context.catalog.meter(message.meter_id)
    where = info.spec.name
    require_modify(kind, f"{where}: a meter")
    _check_no_counts(message, where)
    indices = cell_indices(message, info.spec.size, where)
    config = codec.decode_meter(message.config, info.meter_type, where) if message.HasField("config") else None
    meter = context.state.meters[where]
    for index in indices:
        meter.write(index, config)


def undo(context: Context, message: p4r.MeterEntry) -> Undo:
    """Return a function that restores the cells' present configuration."""
    spec = context.catalog.meter(message.meter_id).spec
    meter = context.state.meters[spec.name]
    present = [(index, meter.read(index)) for index in cell_indices(message, spec.size, spec.name)]

    def restore() -> None:
        for index, config in present:
            meter.write(index, config)

    return restore


def read(context: Context, message: p4r.MeterEntry) -> Iterator[p4r.Entity]:
    """Return one cell, an array's cells, or every array's."""
    catalog = context.catalog
    infos = [catalog.meter(message.meter_id)] if message.meter_id else list(catalog.meters.values())
    _check_no_counts(message, infos[0].spec.name if message.meter_id else "a meter")
    cells = [(info, index) for info in infos for index in cells_to_read(message, message.meter_id, info.spec)]

    def encode() -> Iterator[p4r.Entity]:
        for info, index in cells:
            entry = p4r.MeterEntry(meter_id=info.meter_id, index=p4r.Index(index=index))
            config = context.state.meters[info.spec.name].read(index)
            if config is not None:
                entry.config.CopyFrom(codec.encode_meter(config))
            yield p4r.Entity(meter_entry=entry)

    return encode()


def _check_no_counts(message: p4r.MeterEntry, where: str) -> None:
    if message.HasField("counter_data"):
        raise unimplemented(f"{where}: counters by colour")
