"""Methods on tables: entries by handle, default entries, direct counters and meters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from dataplane.clock import NS_PER_MS
from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import ActionSpec
from dataplane.switch.runtime_api.records import (
    ActionEntry,
    AddOptions,
    CounterValue,
    Entry,
    EntryLife,
    EntryType,
    MatchParam,
    MeterRate,
    TableCode,
    TableRefusal,
)
from dataplane.switch.runtime_api.runtime import Books, EntryHandles, Runtime
from dataplane.switch.runtime_api.values import (
    MAX_PRIORITY,
    call_of,
    config_of,
    data_of,
    handle_of,
    match_of,
    params_of,
    rates_of,
    refusal_of,
)
from dataplane.switch.tables import Table, TableEntry, Tally

_INT32 = (1 << 31) - 1


class Opened:
    """A table, with its handles, under the state's lock."""

    def __init__(self, books: Books, name: str, now_us: int) -> None:
        self.now_us = now_us
        table = books.state.tables.get(name)
        if table is None:
            raise TableRefusal(TableCode.INVALID_TABLE_NAME)
        self.table: Table = table
        self.handles: EntryHandles = books.handles(table)
        self.actions: dict[str, ActionSpec] = {
            action: books.state.program.actions[action]
            for action in table.spec.actions
            if action in books.state.program.actions
        }

    def present(self, handle: int) -> TableEntry:
        """Return the entry of a handle; raise INVALID_HANDLE."""
        key = self.handles.key(handle)
        entry = None if key is None else self.table.get(*key)
        if entry is None:
            raise TableRefusal(TableCode.INVALID_HANDLE)
        return entry

    def priority(self, options: AddOptions) -> int:
        """Return the priority on our tables' scale."""
        if not self.table.needs_priority:
            return 0
        given = options.priority or 0
        if not 0 <= given < MAX_PRIORITY:
            raise TableRefusal(TableCode.ERROR)
        return MAX_PRIORITY - given

    def check(self, *, profile: bool, selector: bool = False) -> None:
        """Raise WRONG_TABLE_TYPE unless entries have actions, or members, or also groups."""
        actual = self.table.profile
        if (actual is not None) is not profile or (selector and actual is not None and not actual.spec.selector):
            raise TableRefusal(TableCode.WRONG_TABLE_TYPE)


class TableMethods:
    """The methods of `standard` whose objects are tables."""

    runtime: Runtime

    @contextmanager
    def _open(self, name: str) -> Iterator[Opened]:
        with self.runtime.books() as books:
            try:
                yield Opened(books, name, self.runtime.control.now_ns() // 1_000)
            except EntryError as error:
                raise refusal_of(error) from error

    def bm_mt_get_num_entries(self, _: int, name: str) -> int:
        """Return how many entries a table has."""
        with self._open(name) as opened:
            return len(opened.table)

    def bm_mt_clear_entries(self, _: int, name: str, reset_default: bool) -> None:
        """Delete every entry of a table."""
        with self._open(name) as opened:
            for entry in list(opened.table):
                opened.table.delete(entry.match, entry.priority)
            opened.handles.follow()
            if reset_default:
                opened.table.set_default(None)

    def bm_mt_add_entry(
        self, _: int, name: str, key: Sequence[MatchParam], action: str, data: Sequence[bytes], options: AddOptions
    ) -> int:
        """Insert an entry; return its handle."""
        with self._open(name) as opened:
            opened.check(profile=False)
            return _insert(opened, key, options, TableEntry((), call=call_of(opened.actions, action, data)))

    def bm_mt_indirect_add_entry(
        self, _: int, name: str, key: Sequence[MatchParam], member: int, options: AddOptions
    ) -> int:
        """Insert an entry that points to a member."""
        with self._open(name) as opened:
            opened.check(profile=True)
            return _insert(opened, key, options, TableEntry((), member=member + 1))

    def bm_mt_indirect_ws_add_entry(
        self, _: int, name: str, key: Sequence[MatchParam], group: int, options: AddOptions
    ) -> int:
        """Insert an entry that points to a group."""
        with self._open(name) as opened:
            opened.check(profile=True, selector=True)
            return _insert(opened, key, options, TableEntry((), group=group + 1))

    def bm_mt_modify_entry(self, _: int, name: str, handle: int, action: str, data: Sequence[bytes]) -> None:
        """Change an entry's action."""
        with self._open(name) as opened:
            opened.check(profile=False)
            present = opened.present(handle)
            opened.table.modify(replace(present, call=call_of(opened.actions, action, data)))

    def bm_mt_indirect_modify_entry(self, _: int, name: str, handle: int, member: int) -> None:
        """Point an entry to another member."""
        with self._open(name) as opened:
            opened.check(profile=True)
            entry = replace(opened.present(handle), member=member + 1, group=None, action_set=None)
            _point(opened, entry)

    def bm_mt_indirect_ws_modify_entry(self, _: int, name: str, handle: int, group: int) -> None:
        """Point an entry to another group."""
        with self._open(name) as opened:
            opened.check(profile=True, selector=True)
            entry = replace(opened.present(handle), member=None, group=group + 1, action_set=None)
            _point(opened, entry)

    def bm_mt_delete_entry(self, _: int, name: str, handle: int) -> None:
        """Delete an entry."""
        with self._open(name) as opened:
            entry = opened.present(handle)
            opened.table.delete(entry.match, entry.priority)
            opened.handles.forget(handle)

    bm_mt_indirect_delete_entry = bm_mt_delete_entry

    def bm_mt_set_entry_ttl(self, _: int, name: str, handle: int, timeout_ms: int) -> None:
        """Set an entry's idle timeout."""
        with self._open(name) as opened:
            if not opened.table.spec.idle_timeout:
                raise TableRefusal(TableCode.AGEING_DISABLED)
            if timeout_ms < 0:
                raise TableRefusal(TableCode.ERROR)
            opened.table.modify(replace(opened.present(handle), idle_timeout_ns=timeout_ms * NS_PER_MS))

    bm_mt_indirect_set_entry_ttl = bm_mt_set_entry_ttl

    def bm_mt_set_default_action(self, _: int, name: str, action: str, data: Sequence[bytes]) -> None:
        """Change the default action."""
        with self._open(name) as opened:
            opened.check(profile=False)
            if opened.table.spec.const_default:
                raise TableRefusal(TableCode.DEFAULT_ACTION_IS_CONST)
            opened.table.set_default(call_of(opened.actions, action, data))

    def bm_mt_reset_default_entry(self, _: int, name: str) -> None:
        """Restore the program's default action."""
        with self._open(name) as opened:
            if opened.table.spec.const_default:
                raise TableRefusal(TableCode.DEFAULT_ACTION_IS_CONST)
            opened.table.set_default(None)

    bm_mt_indirect_reset_default_entry = bm_mt_reset_default_entry

    def bm_mt_indirect_set_default_member(self, _: int, name: str, member: int) -> None:  # noqa: ARG002
        """Refuse: default entries have actions, as P4Runtime requires."""
        with self._open(name):
            raise TableRefusal(TableCode.ERROR)

    bm_mt_indirect_ws_set_default_group = bm_mt_indirect_set_default_member

    # ---- direct resources of an entry

    def bm_mt_read_counter(self, _: int, name: str, handle: int) -> CounterValue:
        """Return an entry's counter."""
        with self._open(name) as opened:
            _require_counter(opened.table)
            entry = opened.present(handle)
            return CounterValue(_signed(entry.bytes), _signed(entry.packets))

    def bm_mt_write_counter(self, _: int, name: str, handle: int, value: CounterValue) -> None:
        """Set an entry's counter."""
        with self._open(name) as opened:
            _require_counter(opened.table)
            entry = opened.present(handle)
            opened.table.reset_tally(entry.match, entry.priority, Tally(_word(value.packets), _word(value.bytes)))

    def bm_mt_reset_counters(self, _: int, name: str) -> None:
        """Set the counters of all entries to zero."""
        with self._open(name) as opened:
            _require_counter(opened.table)
            for entry in opened.table:
                opened.table.reset_tally(entry.match, entry.priority, Tally())
            opened.table.reset_default_tally(Tally())

    def bm_mt_set_meter_rates(self, _: int, name: str, handle: int, rates: Sequence[MeterRate]) -> None:
        """Configure an entry's meter."""
        with self._open(name) as opened:
            _require_meter(opened.table)
            entry, config = opened.present(handle), config_of(rates)
            if config is None:
                raise TableRefusal(TableCode.INVALID_METER_OPERATION)
            opened.table.write_meter(entry.match, entry.priority, config)

    def bm_mt_get_meter_rates(self, _: int, name: str, handle: int) -> list[MeterRate]:
        """Return the configuration of an entry's meter."""
        with self._open(name) as opened:
            _require_meter(opened.table)
            return rates_of(opened.present(handle).meter_config)

    # ---- reading

    def bm_mt_get_entries(self, _: int, name: str) -> list[Entry]:
        """Return every entry."""
        with self._open(name) as opened:
            opened.handles.follow()
            return [self._entry(opened, entry) for entry in opened.table]

    def bm_mt_get_entry(self, _: int, name: str, handle: int) -> Entry:
        """Return the entry of a handle."""
        with self._open(name) as opened:
            return self._entry(opened, opened.present(handle))

    def bm_mt_get_entry_from_key(self, _: int, name: str, key: Sequence[MatchParam], options: AddOptions) -> Entry:
        """Return the entry with this key."""
        with self._open(name) as opened:
            entry = opened.table.get(match_of(opened.table.spec.keys, key), opened.priority(options))
            if entry is None:
                raise TableRefusal(TableCode.BAD_MATCH_KEY)
            return self._entry(opened, entry)

    def bm_mt_get_default_entry(self, _: int, name: str) -> ActionEntry:
        """Return the default entry's action."""
        with self._open(name) as opened:
            return _action(opened, opened.table.default_entry)

    def _entry(self, opened: Opened, entry: TableEntry) -> Entry:
        keys, priority = opened.table.spec.keys, -1
        if opened.table.needs_priority:
            priority = max(0, MAX_PRIORITY - entry.priority)
        life = None
        if opened.table.spec.idle_timeout:
            hit_ns = max(0, self.runtime.control.now_ns() - entry.last_hit_us * 1_000)
            life = EntryLife(min(entry.idle_timeout_ns // NS_PER_MS, _INT32), min(hit_ns // NS_PER_MS, _INT32))
        handle = opened.handles.of(entry.match, entry.priority)
        options = AddOptions(priority)
        return Entry(params_of(keys, entry.match), options, handle, _action(opened, entry), life)


def _insert(opened: Opened, key: Sequence[MatchParam], options: AddOptions, entry: TableEntry) -> int:
    if not opened.table.spec.keys:
        raise TableRefusal(TableCode.NO_TABLE_KEY)
    made = replace(entry, match=match_of(opened.table.spec.keys, key), priority=opened.priority(options))
    if opened.table.spec.idle_timeout:
        made.touch(opened.now_us)  # it counts as hit on creation
    try:
        opened.table.insert(made)
    except EntryError as error:
        raise _pointing(error, made) from error
    return opened.handles.of(made.match, made.priority)


def _point(opened: Opened, entry: TableEntry) -> None:
    try:
        opened.table.modify(entry)
    except EntryError as error:
        raise _pointing(error, entry) from error


def _pointing(error: EntryError, entry: TableEntry) -> TableRefusal:
    """Return the refusal of an entry that may point to something that does not exist."""
    if error.fault is EntryFault.NOT_FOUND and entry.call is None:
        return TableRefusal(TableCode.INVALID_MEMBER_HANDLE if entry.group is None else TableCode.INVALID_GROUP_HANDLE)
    return refusal_of(error)


def _action(opened: Opened, entry: TableEntry) -> ActionEntry:
    if entry.member is not None:
        return ActionEntry(EntryType.MEMBER, mbr_handle=handle_of(entry.member))
    if entry.group is not None:
        return ActionEntry(EntryType.GROUP, grp_handle=handle_of(entry.group))
    if entry.call is None:
        return ActionEntry(EntryType.NONE)
    data = data_of(opened.actions, entry.call)
    return ActionEntry(EntryType.ACTION_DATA, entry.call.action, data)


def _require_counter(table: Table) -> None:
    if table.spec.direct_counter is None:
        raise TableRefusal(TableCode.COUNTERS_DISABLED)


def _require_meter(table: Table) -> None:
    if table.meter_spec is None:
        raise TableRefusal(TableCode.METERS_DISABLED)


def _signed(word: int) -> int:
    """Return a word in Thrift's form: a signed number."""
    return word - (1 << 64) if word >> 63 else word


def _word(number: int) -> int:
    return number & ((1 << 64) - 1)
