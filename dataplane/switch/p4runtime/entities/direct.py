"""DirectCounterEntry and DirectMeterEntry: direct resources of one table entry (sections 9.3.1 and 9.4.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from finsy.proto import p4r

from dataplane.switch.p4runtime import codec
from dataplane.switch.p4runtime.catalog import TableInfo
from dataplane.switch.p4runtime.context import Context, Undo, UpdateKind, require_modify
from dataplane.switch.p4runtime.entities import tables
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from dataplane.switch.tables import Table, TableEntry


def write_counter(context: Context, kind: UpdateKind, message: p4r.DirectCounterEntry) -> None:
    """Set the direct counter of an entry; without data nothing changes."""
    info = context.catalog.table(message.table_entry.table_id)
    require_modify(kind, f"{info.spec.name}: a direct counter")
    _check_counter(info)
    table, present = _present(context, info, message.table_entry)
    if not message.HasField("data"):
        return
    tally = codec.decode_tally(message.data, info.spec.name)
    if present.is_default:
        table.reset_default_tally(tally)
    else:
        table.reset_tally(present.match, present.priority, tally)


def write_meter(context: Context, kind: UpdateKind, message: p4r.DirectMeterEntry) -> None:
    """Set the direct meter of an entry; without configuration all packets are green."""
    info = context.catalog.table(message.table_entry.table_id)
    where = info.spec.name
    require_modify(kind, f"{where}: a direct meter")
    _check_meter(info, message)
    table, present = _present(context, info, message.table_entry)
    config = None
    if message.HasField("config") and info.meter_type is not None:
        config = codec.decode_meter(message.config, info.meter_type, where)
    if present.is_default:
        table.write_default_meter(config)
    else:
        table.write_meter(present.match, present.priority, config)


def undo(context: Context, message: p4r.DirectCounterEntry | p4r.DirectMeterEntry) -> Undo:
    """Return a function that restores the entry's present counts and meter configuration."""
    return tables.undo(context, message.table_entry)


def read_counter(context: Context, message: p4r.DirectCounterEntry) -> Iterator[p4r.Entity]:
    """Return the direct counters of the entries that `table_entry` selects; every table's if it is empty."""
    wanted = message.table_entry
    if wanted.table_id:
        _check_counter(context.catalog.table(wanted.table_id))
    selected = _select(context, wanted, [info for info in context.catalog.tables.values() if info.has_counter])

    def encode() -> Iterator[p4r.Entity]:
        for info, entry in selected:
            counter = p4r.DirectCounterEntry(data=codec.encode_tally(entry.packets, entry.bytes))
            tables.identify(counter.table_entry, info, entry)
            yield p4r.Entity(direct_counter_entry=counter)

    return encode()


def read_meter(context: Context, message: p4r.DirectMeterEntry) -> Iterator[p4r.Entity]:
    """Return the direct meters of the entries that `table_entry` selects; every table's if it is empty."""
    wanted = message.table_entry
    if wanted.table_id:
        _check_meter(context.catalog.table(wanted.table_id), message)
    elif message.HasField("counter_data"):
        raise unimplemented("counters by colour of a direct meter")
    metered = [info for info in context.catalog.tables.values() if info.meter_type is not None]
    selected = _select(context, wanted, metered)

    def encode() -> Iterator[p4r.Entity]:
        for info, entry in selected:
            meter = p4r.DirectMeterEntry()
            tables.identify(meter.table_entry, info, entry)
            if entry.meter_config is not None:
                meter.config.CopyFrom(codec.encode_meter(entry.meter_config))
            yield p4r.Entity(direct_meter_entry=meter)

    return encode()


def _select(context: Context, wanted: p4r.TableEntry, infos: list[TableInfo]) -> Iterable[tuple[TableInfo, TableEntry]]:
    """Return the entries that a read names; raise NOT_FOUND if it names a match that no entry has.

    The other fields of the entry's message, action and metadata, are ignored here (section 9.3.1).
    """
    key = p4r.TableEntry(
        table_id=wanted.table_id,
        match=wanted.match,
        priority=wanted.priority,
        is_default_action=wanted.is_default_action,
    )
    names = {info.spec.name for info in infos}
    selected = [item for item in tables.select(context, key) if item[0].spec.name in names]
    matches = ((info, entry) for info, _, entries in selected for entry in entries)
    if not wanted.match:
        return matches
    named = [*matches]
    if not named:
        raise P4RuntimeError(Code.NOT_FOUND, f"{selected[0][0].spec.name}: no such entry")
    return named


def _present(context: Context, info: TableInfo, wanted: p4r.TableEntry) -> tuple[Table, TableEntry]:
    table = context.state.tables[info.spec.name]
    if wanted.is_default_action:
        if wanted.match or wanted.priority:
            raise invalid(f"{info.spec.name}: a default entry has no match and no priority")
        return table, table.default_entry
    match = codec.decode_match(info.key, wanted.match)
    tables.check_priority(table, wanted.priority)
    entry = table.get(match, wanted.priority)
    if entry is None:
        raise P4RuntimeError(Code.NOT_FOUND, f"{info.spec.name}: no such entry")
    return table, entry


def _check_counter(info: TableInfo) -> None:
    if not info.has_counter:
        raise invalid(f"{info.spec.name}: the table has no direct counter")


def _check_meter(info: TableInfo, message: p4r.DirectMeterEntry) -> None:
    where = info.spec.name
    if info.meter_type is None:
        raise invalid(f"{where}: the table has no direct meter")
    if message.HasField("counter_data"):
        raise unimplemented(f"{where}: counters by colour")
