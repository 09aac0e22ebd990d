"""TableEntry: entries and default entries with their direct counters and meters (specification, section 9.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from finsy.proto import p4r

from dataplane.program.objects import ActionCall
from dataplane.switch.p4runtime import codec
from dataplane.switch.p4runtime.catalog import TableInfo
from dataplane.switch.p4runtime.context import Context, Undo, UpdateKind, require_modify
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from dataplane.switch.tables import MeterCell, MeterConfig, Table, TableEntry, Tally
from dataplane.switch.tables.match import Match
from dataplane.switch.tables.meters import check_config

Selection = tuple[TableInfo, Table, Iterable[TableEntry]]


def write(context: Context, kind: UpdateKind, message: p4r.TableEntry) -> None:
    """Insert, modify or delete an entry, or modify a default entry."""
    info = context.catalog.table(message.table_id)
    table = context.state.tables[info.spec.name]
    if message.is_const:
        raise invalid(f"{info.spec.name}: is_const cannot be written")
    if message.is_default_action:
        _write_default(context, info, table, kind, message)
        return
    _check_keyless(info, kind)
    match = codec.decode_match(info.key, message.match)
    check_priority(table, message.priority)
    if kind is UpdateKind.DELETE:
        table.delete(match, message.priority)
        return
    _check_fields(info, message)
    if kind is UpdateKind.INSERT:
        table.insert(_new_entry(context, info, message, match))
    else:
        _modify(context, info, table, message, match)
    if info.spec.idle_timeout:
        _watch(context, table, match, message.priority)


def _new_entry(context: Context, info: TableInfo, message: p4r.TableEntry, match: Match) -> TableEntry:
    """Return an entry with its counter and meter set, which counts as hit on creation."""
    entry = _entry(context, info, message, match)
    if message.HasField("counter_data"):
        entry = replace(entry, tally=codec.decode_tally(message.counter_data, info.spec.name))
    config = _meter_config(info, message)
    meter = context.state.tables[info.spec.name].meter_spec
    if config is not None and meter is not None:
        entry = replace(entry, meter_cell=MeterCell(meter.unit, config))
    if info.spec.idle_timeout:
        entry.touch(context.control.now_ns() // 1_000)
    return entry


def _modify(context: Context, info: TableInfo, table: Table, message: p4r.TableEntry, match: Match) -> None:
    """Change action and controller data; without an action it stays, and only that is allowed for a const entry."""
    where = info.spec.name
    tally = codec.decode_tally(message.counter_data, where) if message.HasField("counter_data") else None
    config = _meter_config(info, message)
    present = table.get(match, message.priority)
    if message.HasField("action"):
        table.modify(_entry(context, info, message, match))
    elif present is None:
        raise P4RuntimeError(Code.NOT_FOUND, f"{where}: no such entry")
    elif not present.is_const:
        kept = replace(present, metadata=message.metadata, cookie=message.controller_metadata)
        table.modify(replace(kept, idle_timeout_ns=message.idle_timeout_ns))
    if tally is not None:
        table.reset_tally(match, message.priority, tally)
    if table.meter_spec is not None:
        table.write_meter(match, message.priority, config)


def _entry(context: Context, info: TableInfo, message: p4r.TableEntry, match: Match) -> TableEntry:
    action, where = message.action, info.spec.name
    call, member, group, action_set = None, None, None, None
    match action.WhichOneof("type"):
        case "action":
            call = codec.decode_table_action(context.catalog, info, action.action, default=False)
        case "action_profile_member_id":
            member = _nonzero(action.action_profile_member_id, "member", where)
        case "action_profile_group_id":
            group = _nonzero(action.action_profile_group_id, "group", where)
        case "action_profile_action_set":
            action_set = codec.decode_action_set(context, info, action.action_profile_action_set)
        case _:
            raise invalid(f"{where}: the action is missing")
    return TableEntry(
        match,
        message.priority,
        call,
        member,
        group,
        action_set,
        message.metadata,
        message.controller_metadata,
        idle_timeout_ns=message.idle_timeout_ns,
    )


def _watch(context: Context, table: Table, match: Match, priority: int) -> None:
    entry = table.get(match, priority)
    if entry is not None:
        context.idle.watch(table.spec.name, entry)


def _write_default(context: Context, info: TableInfo, table: Table, kind: UpdateKind, message: p4r.TableEntry) -> None:
    where = info.spec.name
    require_modify(kind, f"{where}: the default entry")
    if message.match or message.priority:
        raise invalid(f"{where}: a default entry has no match and no priority")
    _check_fields(info, message)
    tally = codec.decode_tally(message.counter_data, where) if message.HasField("counter_data") else None
    config = _meter_config(info, message)
    resources_only = not message.HasField("action") and (tally is not None or config is not None)
    if not info.const_default:
        table.set_default(*_default_call(context, info, message))
    elif not resources_only:
        raise P4RuntimeError(Code.PERMISSION_DENIED, f"{where}: the default action is const")
    if tally is not None:
        table.reset_default_tally(tally)
    if table.meter_spec is not None:
        table.write_default_meter(config)


def _default_call(context: Context, info: TableInfo, message: p4r.TableEntry) -> tuple[ActionCall | None, bytes, int]:
    """Return a default entry's action and controller data; without an action it is the program's own."""
    if not message.HasField("action"):
        return None, b"", 0
    if message.action.WhichOneof("type") != "action":
        raise invalid(f"{info.spec.name}: a default entry has an action, not a member or group")
    call = codec.decode_table_action(context.catalog, info, message.action.action, default=True)
    return call, message.metadata, message.controller_metadata


def undo(context: Context, message: p4r.TableEntry) -> Undo:
    """Return a function that restores the present state of the entry, its counter and its meter."""
    info = context.catalog.table(message.table_id)
    table = context.state.tables[info.spec.name]
    if message.is_default_action:
        return _undo_default(table)
    match, priority = codec.decode_match(info.key, message.match), message.priority
    present = table.get(match, priority)
    if present is None:
        return lambda: table.delete(match, priority)
    put_back = _undo_direct(table, present)

    def restore() -> None:
        now = table.get(match, priority)
        if now is None:
            table.insert(present)
        elif now is not present:
            table.modify(present)
        put_back()
        if info.spec.idle_timeout:
            _watch(context, table, match, priority)

    return restore


def _undo_default(table: Table) -> Undo:
    """Return a function that restores the default entry's present action, counts and meter configuration."""
    present = table.default_entry
    counts, config = (present.packets, present.bytes), present.meter_config

    def restore() -> None:
        now = table.default_entry
        if now is not present:
            table.set_default(present.call, present.metadata, present.cookie)
        if (now.packets, now.bytes) != counts:
            table.reset_default_tally(Tally(*counts))
        if now.meter_config != config:
            table.write_default_meter(config)

    return restore


def _undo_direct(table: Table, entry: TableEntry) -> Undo:
    """Return a function that restores an existing entry's counts and meter configuration to those of `entry`."""
    counts, config = (entry.packets, entry.bytes), entry.meter_config

    def restore() -> None:
        now = table.get(entry.match, entry.priority)
        if now is not None and (now.packets, now.bytes) != counts:
            table.reset_tally(entry.match, entry.priority, Tally(*counts))
        if now is not None and now.meter_config != config:
            table.write_meter(entry.match, entry.priority, config)

    return restore


def read(context: Context, message: p4r.TableEntry) -> Iterator[p4r.Entity]:
    """Return the entries, or the default entries, that the message's fields select."""
    selected = select(context, message)
    wanted = _Wanted(
        message.HasField("counter_data"), message.HasField("meter_config"), message.HasField("time_since_last_hit")
    )

    def encode() -> Iterator[p4r.Entity]:
        for info, _, entries in selected:
            for entry in entries:
                yield p4r.Entity(table_entry=_encode(context, info, entry, wanted))

    return encode()


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Data that a read requests besides the entry itself."""

    counter: bool = False
    meter: bool = False
    idle_time: bool = False


def encode_idle(context: Context, table: str, entry: TableEntry) -> p4r.TableEntry:
    """Return the entry as an idle notification contains it."""
    info = context.catalog.tables_by_name[table]
    return p4r.TableEntry(
        table_id=info.table_id,
        match=codec.encode_match(info.key, entry.match),
        priority=entry.priority,
        metadata=entry.metadata,
        controller_metadata=entry.cookie,
        idle_timeout_ns=entry.idle_timeout_ns,
    )


def identify(message: p4r.TableEntry, info: TableInfo, entry: TableEntry) -> None:
    """Set the identifying fields of an entry in a message."""
    message.table_id, message.priority, message.is_default_action = info.table_id, entry.priority, entry.is_default
    if not entry.is_default:
        message.match.extend(codec.encode_match(info.key, entry.match))


def select(context: Context, message: p4r.TableEntry) -> list[Selection]:
    """Return the entries, or the default entries, that a read's filters select, by table."""
    catalog, tables = context.catalog, context.state.tables
    infos = [catalog.table(message.table_id)] if message.table_id else list(catalog.tables.values())
    if not message.table_id and (message.match or message.HasField("action") or message.priority):
        raise invalid("a read of every table cannot filter by match, action or priority")
    if message.HasField("meter_counter_data"):
        raise unimplemented("counters by colour of a direct meter")
    if message.table_id:
        _check_read(infos[0], message)
    return [(info, tables[info.spec.name], _filter(context, info, message)) for info in infos]


def _filter(context: Context, info: TableInfo, message: p4r.TableEntry) -> Iterable[TableEntry]:
    """Return the present entries of a table that a read selects; large tables are not copied for it."""
    table = context.state.tables[info.spec.name]
    if message.is_default_action:
        entries: Iterable[TableEntry] = [table.default_entry]
    elif message.match:
        match = codec.decode_match(info.key, message.match)
        entries = [entry for entry in _candidates(table, match, message.priority) if entry.match == match]
    else:
        entries = iter(table)
        if message.priority:
            entries = filter(lambda entry: entry.priority == message.priority, entries)
    if message.HasField("action"):
        wanted = codec.action_name(context.catalog, message.action, info.spec.name)
        entries = filter(lambda entry: entry.call is not None and entry.call.action == wanted, entries)
    if message.metadata:
        entries = filter(lambda entry: entry.metadata == message.metadata, entries)
    if message.controller_metadata:
        entries = filter(lambda entry: entry.cookie == message.controller_metadata, entries)
    return entries


def _candidates(table: Table, match: Match, priority: int) -> list[TableEntry]:
    if table.needs_priority and not priority:
        return list(table)
    entry = table.get(match, priority)
    return [] if entry is None else [entry]


def _encode(context: Context, info: TableInfo, entry: TableEntry, wanted: _Wanted) -> p4r.TableEntry:
    message = p4r.TableEntry(
        metadata=entry.metadata,
        controller_metadata=entry.cookie,
        is_const=entry.is_const,
        idle_timeout_ns=entry.idle_timeout_ns,
    )
    identify(message, info, entry)
    if entry.call is not None:
        action = codec.encode_action(context.catalog, entry.call)
        if action is not None:
            message.action.action.CopyFrom(action)
    elif entry.member is not None:
        message.action.action_profile_member_id = entry.member
    elif entry.group is not None:
        message.action.action_profile_group_id = entry.group
    elif entry.action_set is not None:
        action_set = codec.encode_action_set(context.catalog, entry.action_set)
        message.action.action_profile_action_set.CopyFrom(action_set)
    if wanted.counter and info.has_counter:
        message.counter_data.CopyFrom(codec.encode_tally(entry.packets, entry.bytes))
    if wanted.meter and entry.meter_config is not None:
        message.meter_config.CopyFrom(codec.encode_meter(entry.meter_config))
    if wanted.idle_time and info.spec.idle_timeout and not entry.is_default:
        message.time_since_last_hit.elapsed_ns = max(0, context.control.now_ns() - entry.last_hit_us * 1_000)
    return message


def _nonzero(identifier: int, what: str, where: str) -> int:
    if not identifier:
        raise invalid(f"{where}: {what} id 0 is not valid")
    return identifier


def _check_keyless(info: TableInfo, kind: UpdateKind) -> None:
    if not info.spec.keys:
        raise invalid(
            f"{info.spec.name}: {kind.name} of an entry, but the table has no key: only its default entry exists"
        )


def check_priority(table: Table, priority: int) -> None:
    """Raise INVALID_ARGUMENT unless the priority is valid for the table's entries."""
    if (priority > 0) is not table.needs_priority or priority < 0:
        wanted = "above 0" if table.needs_priority else "0"
        raise invalid(f"{table.spec.name}: priority {priority}: it must be {wanted}")


def _check_fields(info: TableInfo, message: p4r.TableEntry) -> None:
    """Raise for direct resources and times that the table's entries, or its default entry, do not have."""
    where = info.spec.name
    if message.HasField("counter_data") and not info.has_counter:
        raise invalid(f"{where}: the table has no direct counter")
    if message.HasField("meter_config") and info.meter_type is None:
        raise invalid(f"{where}: the table has no direct meter")
    if message.HasField("meter_counter_data"):
        raise unimplemented(f"{where}: counters by colour")
    if message.HasField("time_since_last_hit"):
        raise invalid(f"{where}: time_since_last_hit cannot be written")
    if message.idle_timeout_ns < 0:
        raise invalid(f"{where}: an idle timeout cannot be negative")
    if message.idle_timeout_ns and (message.is_default_action or not info.spec.idle_timeout):
        raise invalid(f"{where}: the entry cannot have an idle timeout")


def _meter_config(info: TableInfo, message: p4r.TableEntry) -> MeterConfig | None:
    if info.meter_type is None or not message.HasField("meter_config"):
        return None
    config = codec.decode_meter(message.meter_config, info.meter_type, info.spec.name)
    check_config(config, info.spec.name)
    return config


def _check_read(info: TableInfo, message: p4r.TableEntry) -> None:
    if message.is_default_action and (message.match or message.priority):
        raise invalid(f"{info.spec.name}: a default entry has no match and no priority")
    if message.HasField("time_since_last_hit") and (message.is_default_action or not info.spec.idle_timeout):
        raise invalid(f"{info.spec.name}: the entry cannot have an idle timeout")
