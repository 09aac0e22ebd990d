"""TableEntry and DirectCounterEntry (specification, sections 9.1 and 9.3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from finsy.proto import p4r

from dataplane.switch.p4runtime import codec
from dataplane.switch.p4runtime.catalog import TableInfo
from dataplane.switch.p4runtime.context import Context, UpdateKind, require_modify
from dataplane.switch.p4runtime.errors import Code, P4RuntimeError, invalid, unimplemented
from dataplane.switch.tables import Table, TableEntry
from dataplane.switch.tables.match import Match

Selection = tuple[TableInfo, Table, list[TableEntry]]


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
    match = codec.decode_match(info, message.match)
    _check_priority(table, message.priority)
    if kind is UpdateKind.DELETE:
        table.delete(match, message.priority)
        return
    _check_unsupported(info, message)
    if kind is UpdateKind.INSERT:
        table.insert(_entry(context, info, message, match))
    else:
        _modify(context, info, table, message, match)


def _modify(context: Context, info: TableInfo, table: Table, message: p4r.TableEntry, match: Match) -> None:
    """Change action and metadata, or only the counter where no action is given (all that a const entry allows)."""
    where = info.spec.name
    tally = codec.decode_tally(message.counter_data, where) if message.HasField("counter_data") else None
    present = table.get(match, message.priority)
    if message.HasField("action"):
        table.modify(_entry(context, info, message, match))
    elif present is None:
        raise P4RuntimeError(Code.NOT_FOUND, f"{where}: no such entry")
    elif not present.is_const:
        table.modify(replace(present, metadata=message.metadata, cookie=message.controller_metadata))
    if tally is not None:
        table.reset_tally(match, message.priority, tally)


def _entry(context: Context, info: TableInfo, message: p4r.TableEntry, match: Match) -> TableEntry:
    entry = TableEntry(match, message.priority, metadata=message.metadata, cookie=message.controller_metadata)
    if message.HasField("counter_data"):
        entry = replace(entry, tally=codec.decode_tally(message.counter_data, info.spec.name))
    action, where = message.action, info.spec.name
    match action.WhichOneof("type"):
        case "action":
            call = codec.decode_table_action(context.catalog, info, action.action, default=False)
            return replace(entry, call=call)
        case "action_profile_member_id":
            return replace(entry, member=_nonzero(action.action_profile_member_id, "member", where))
        case "action_profile_group_id":
            return replace(entry, group=_nonzero(action.action_profile_group_id, "group", where))
        case "action_profile_action_set":
            action_set = codec.decode_action_set(context.catalog, info, action.action_profile_action_set)
            return replace(entry, action_set=action_set)
        case _:
            raise invalid(f"{where}: the action is missing")


def _write_default(context: Context, info: TableInfo, table: Table, kind: UpdateKind, message: p4r.TableEntry) -> None:
    where = info.spec.name
    require_modify(kind, f"{where}: the default entry")
    if message.match or message.priority:
        raise invalid(f"{where}: a default entry has no match and no priority")
    if info.const_default:
        raise P4RuntimeError(Code.PERMISSION_DENIED, f"{where}: the default action is const")
    if message.HasField("counter_data"):
        raise unimplemented(f"{where}: a direct counter of the default entry")
    _check_unsupported(info, message)
    if not message.HasField("action"):
        table.set_default(None)
        return
    if message.action.WhichOneof("type") != "action":
        raise invalid(f"{where}: a default entry has an action, not a member or group")
    call = codec.decode_table_action(context.catalog, info, message.action.action, default=True)
    table.set_default(call, message.metadata, message.controller_metadata)


def read(context: Context, message: p4r.TableEntry) -> Iterator[p4r.Entity]:
    """Return the entries, or the default entries, that the message's fields select."""
    selected = select(context, message)
    with_counter = message.HasField("counter_data")

    def encode() -> Iterator[p4r.Entity]:
        for info, table, entries in selected:
            if message.is_default_action:
                yield from _default_entities(context, info, table, message)
            for entry in entries:
                yield p4r.Entity(table_entry=_encode(context, info, entry, with_counter=with_counter))

    return encode()


def select(context: Context, message: p4r.TableEntry) -> list[Selection]:
    """Return the entries that a read's filters select, by table; none where it asks for default entries."""
    catalog, tables = context.catalog, context.state.tables
    infos = [catalog.table(message.table_id)] if message.table_id else list(catalog.tables.values())
    if not message.table_id and (message.match or message.HasField("action") or message.priority):
        raise invalid("a read of every table cannot filter by match, action or priority")
    if message.table_id:
        _check_read(infos[0], message)
    if message.is_default_action:
        return [(info, tables[info.spec.name], []) for info in infos]
    return [(info, tables[info.spec.name], _filter(context, info, message)) for info in infos]


def _filter(context: Context, info: TableInfo, message: p4r.TableEntry) -> list[TableEntry]:
    table = context.state.tables[info.spec.name]
    if message.match:
        match = codec.decode_match(info, message.match)
        entries = [entry for entry in _candidates(table, match, message.priority) if entry.match == match]
    else:
        entries = [entry for entry in table if message.priority in {0, entry.priority}]
    if message.HasField("action"):
        name = codec.action_name(context.catalog, message.action, info.spec.name)
        entries = [entry for entry in entries if entry.call is not None and entry.call.action == name]
    if message.metadata:
        entries = [entry for entry in entries if entry.metadata == message.metadata]
    if message.controller_metadata:
        entries = [entry for entry in entries if entry.cookie == message.controller_metadata]
    return entries


def _candidates(table: Table, match: Match, priority: int) -> list[TableEntry]:
    if table.needs_priority and not priority:
        return list(table)
    found = table.get(match, priority)
    return [] if found is None else [found]


def _encode(context: Context, info: TableInfo, entry: TableEntry, *, with_counter: bool) -> p4r.TableEntry:
    message = p4r.TableEntry(
        table_id=info.table_id,
        match=codec.encode_match(info, entry.match),
        priority=entry.priority,
        metadata=entry.metadata,
        controller_metadata=entry.cookie,
        is_const=entry.is_const,
    )
    if entry.call is not None:
        message.action.action.CopyFrom(codec.encode_action(context.catalog, entry.call) or p4r.Action())
    elif entry.member is not None:
        message.action.action_profile_member_id = entry.member
    elif entry.group is not None:
        message.action.action_profile_group_id = entry.group
    elif entry.action_set is not None:
        action_set = codec.encode_action_set(context.catalog, entry.action_set)
        message.action.action_profile_action_set.CopyFrom(action_set)
    if with_counter and info.has_counter:
        message.counter_data.CopyFrom(codec.encode_tally(entry.packets, entry.bytes))
    return message


def _default_entities(context: Context, info: TableInfo, table: Table, message: p4r.TableEntry) -> Iterator[p4r.Entity]:
    if message.metadata not in {b"", table.default_metadata}:
        return
    if message.controller_metadata not in {0, table.default_cookie}:
        return
    if message.HasField("action"):
        name = codec.action_name(context.catalog, message.action, info.spec.name)
        if table.default.action != name:
            return
    entry = p4r.TableEntry(
        table_id=info.table_id,
        is_default_action=True,
        metadata=table.default_metadata,
        controller_metadata=table.default_cookie,
    )
    action = codec.encode_action(context.catalog, table.default)
    if action is not None:
        entry.action.action.CopyFrom(action)
    yield p4r.Entity(table_entry=entry)


def write_counter(context: Context, kind: UpdateKind, message: p4r.DirectCounterEntry) -> None:
    """Set the direct counter of an entry; without data nothing changes."""
    entry = message.table_entry
    info = context.catalog.table(entry.table_id)
    require_modify(kind, f"{info.spec.name}: a direct counter")
    table = context.state.tables[info.spec.name]
    _check_counter(info, entry)
    match = codec.decode_match(info, entry.match)
    _check_priority(table, entry.priority)
    if table.get(match, entry.priority) is None:
        raise P4RuntimeError(Code.NOT_FOUND, f"{info.spec.name}: no such entry")
    if message.HasField("data"):
        table.reset_tally(match, entry.priority, codec.decode_tally(message.data, info.spec.name))


def read_counter(context: Context, message: p4r.DirectCounterEntry) -> Iterator[p4r.Entity]:
    """Return the direct counters of the entries that `table_entry` selects; every table's where it is empty."""
    wanted = message.table_entry
    if wanted.table_id:
        _check_counter(context.catalog.table(wanted.table_id), wanted)
    selected = [item for item in select(context, wanted) if item[0].has_counter]
    if wanted.match and not any(entries for _, _, entries in selected):
        raise P4RuntimeError(Code.NOT_FOUND, f"{selected[0][0].spec.name}: no such entry")

    def encode() -> Iterator[p4r.Entity]:
        for info, _, entries in selected:
            for entry in entries:
                counter = p4r.DirectCounterEntry(data=codec.encode_tally(entry.packets, entry.bytes))
                counter.table_entry.table_id = info.table_id
                counter.table_entry.match.extend(codec.encode_match(info, entry.match))
                counter.table_entry.priority = entry.priority
                yield p4r.Entity(direct_counter_entry=counter)

    return encode()


def _nonzero(identifier: int, what: str, where: str) -> int:
    if not identifier:
        raise invalid(f"{where}: {what} id 0 is not valid")
    return identifier


def _check_keyless(info: TableInfo, kind: UpdateKind) -> None:
    if not info.spec.keys:
        name = kind.name
        raise invalid(f"{info.spec.name}: {name} of an entry, but the table has no key: only its default entry exists")


def _check_priority(table: Table, priority: int) -> None:
    if (priority > 0) is not table.needs_priority or priority < 0:
        wanted = "above 0" if table.needs_priority else "0"
        raise invalid(f"{table.spec.name}: priority {priority}: it must be {wanted}")


def _check_unsupported(info: TableInfo, message: p4r.TableEntry) -> None:
    where = info.spec.name
    if message.HasField("counter_data") and not info.has_counter:
        raise invalid(f"{where}: the table has no direct counter")
    if message.HasField("meter_config") or message.HasField("meter_counter_data"):
        raise unimplemented(f"{where}: direct meters")
    if message.idle_timeout_ns or message.HasField("time_since_last_hit"):
        if info.spec.idle_timeout and not message.is_default_action:
            raise unimplemented(f"{where}: idle timeouts")
        raise invalid(f"{where}: the entry cannot have an idle timeout")


def _check_read(info: TableInfo, message: p4r.TableEntry) -> None:
    if message.is_default_action and (message.match or message.priority):
        raise invalid(f"{info.spec.name}: a default entry has no match and no priority")
    if message.HasField("time_since_last_hit"):
        raise unimplemented(f"{info.spec.name}: idle timeouts")


def _check_counter(info: TableInfo, entry: p4r.TableEntry) -> None:
    if not info.has_counter:
        raise invalid(f"{info.spec.name}: the table has no direct counter")
    if entry.is_default_action:
        raise unimplemented(f"{info.spec.name}: a direct counter of the default entry")
