"""A match-action table at run time: its entries, its default action, and the program's constraints on both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Protocol

from dataplane.errors import EntryError, EntryFault, ProgramError
from dataplane.program.objects import ActionCall, ActionSpec, MatchKind, MeterSpec, TableSpec
from dataplane.switch.tables.entry import TableEntry, Tally
from dataplane.switch.tables.index import index_for
from dataplane.switch.tables.match import Match, all_ones, check_match, needs_priority
from dataplane.switch.tables.meters import CellWriter, MeterCell, MeterConfig, check_config
from dataplane.switch.tables.profile import Profile
from dataplane.switch.tables.rows import Rows


def check_call(call: ActionCall, actions: Mapping[str, ActionSpec], allowed: tuple[str, ...], *, where: str) -> None:
    """Raise EntryError unless `call` names an allowed action and its arguments fit the parameters."""
    if call.action not in allowed or call.action not in actions:
        raise EntryError(EntryFault.INVALID, f"action {call.action} is not one of its actions", where=where)
    parameters = actions[call.action].parameters
    if len(call.arguments) != len(parameters):
        problem = f"action {call.action} takes {len(parameters)} arguments, not {len(call.arguments)}"
        raise EntryError(EntryFault.INVALID, problem, where=where)
    for (name, width), value in zip(parameters, call.arguments, strict=True):
        if not 0 <= value <= all_ones(width):
            problem = f"argument {name} of {call.action}: {value:#x} does not fit {width} bits"
            raise EntryError(EntryFault.INVALID, problem, where=where)


MAX_PRIORITY = (1 << 31) - 1
"""P4Runtime's."""


class TableObserver(Protocol):
    """Is notified before each change of a table; an exception that it raises prevents the change."""

    def put(self, entry: TableEntry, present: TableEntry | None) -> None:
        """Handle that `entry` is inserted, or replaces `present`, which has the same match and priority."""
        ...

    def put_rows(self, rows: Rows) -> int:
        """Handle that new entries are inserted, in order; return how many of them can be."""
        ...

    def remove(self, entry: TableEntry) -> None:
        """Handle the removal of `entry`."""
        ...

    def set_default(self, entry: TableEntry) -> None:
        """Handle that `entry` becomes the default entry."""
        ...


class Table:
    """The entries of one table, matched by kind of key; every change is checked first and happens at once or not."""

    def __init__(
        self,
        spec: TableSpec,
        actions: Mapping[str, ActionSpec],
        profile: Profile | None = None,
        meter: MeterSpec | None = None,
    ) -> None:
        if sum(key.kind is MatchKind.LPM for key in spec.keys) > 1:
            raise ProgramError("a table's key has at most one lpm field", construct=spec.name)
        self.spec = spec
        self.profile = profile
        self.meter_spec = meter
        self.meter_writer: CellWriter | None = None
        self.needs_priority = needs_priority(spec.keys)
        self.observers: tuple[TableObserver, ...] = ()
        self._counts = spec.direct_counter is not None or spec.idle_timeout
        self._actions = actions
        self._index = index_for(spec.keys)
        self.default_entry = self._owned(
            TableEntry((), call=spec.default, is_const=spec.const_default, is_default=True)
        )
        self.lookup = self._index.lookup  # bound once: called for every packet
        for preset in spec.presets:
            priority = preset.priority if self.needs_priority else 0
            is_const = spec.is_const or preset.is_const
            self._index.put(self._owned(TableEntry(preset.match, priority, call=preset.call, is_const=is_const)))

    def __len__(self) -> int:
        return len(self._index)

    def __iter__(self) -> Iterator[TableEntry]:
        """Iterate over the entries, oldest first."""
        return iter(self._index)

    @property
    def default(self) -> ActionCall | None:
        """The default action; None if a packet that matches nothing runs none."""
        return self.default_entry.call

    def get(self, match: Match, priority: int = 0) -> TableEntry | None:
        """Return the entry with exactly this match and priority, or None."""
        return self._index.get(match, priority)

    def insert(self, entry: TableEntry) -> None:
        """Add an entry; raise EntryError if it exists, is malformed, or does not fit."""
        self._check_writable()
        self._check_entry(entry)
        if self.get(entry.match, entry.priority) is not None:
            raise self._error(EntryFault.EXISTS, "the entry already exists")
        if 0 < self.spec.size <= len(self):
            raise self._error(EntryFault.FULL, f"full: {self.spec.size} entries")
        self._take(entry)
        entry = self._owned(entry)
        if self.observers:
            self._announce(entry, None)
        self._index.put(entry)

    def insert_rows(self, rows: Rows) -> int:
        """Add the entries of rows, which must be well-formed, in order as far as possible; return how many.

        The next one, if any, may still be inserted by itself, or has an error that `insert` tells.
        """
        room = self.spec.size - len(self) if self.spec.size > 0 else len(rows)
        if self.spec.is_const or self.profile is not None or self.meter_spec is not None or room <= 0:
            return 0
        rows = rows.first(min(room, len(rows)))
        tallies = [Tally() for _ in range(len(rows))] if self._counts else ()
        layout, data = rows.layout, rows.data
        values = layout.values(data, tallies or repeat(None))
        add = self._index.addition(layout.matches(data), layout.priorities(data), values)
        if add is None or len(self.observers) > 1:
            return 0
        if tallies:
            rows.set_tallies(tallies)
        count = self._announce_rows(rows)
        add(count)
        return count

    def _announce_rows(self, rows: Rows) -> int:
        """Notify the observer, if any, of entries about to be put; return how many of them it takes."""
        try:
            return self.observers[0].put_rows(rows) if self.observers else len(rows)
        except EntryError:
            return 0  # each of them by itself may need less memory

    def modify(self, entry: TableEntry) -> None:
        """Replace the entry with the same match and priority; its direct counter and meter are kept."""
        present = self._writable(entry.match, entry.priority)
        self._check_entry(entry)
        self._exchange(present, entry)
        entry = replace(entry, tally=present.tally, meter_cell=present.meter_cell)
        self._announce(entry, present)
        self._index.put(entry)

    def delete(self, match: Match, priority: int = 0) -> None:
        """Remove the entry with exactly this match and priority; raise EntryError if there is none."""
        present = self._writable(match, priority)
        for observer in self.observers:
            observer.remove(present)
        self._index.remove(match, priority)
        self._release(present)

    def set_default(self, call: ActionCall | None, metadata: bytes = b"", cookie: int = 0) -> None:
        """Change the default action (None: restore the program's own); raise EntryError if it is const.

        Counter and meter of the default entry are kept.
        """
        if self.spec.const_default:
            raise self._error(EntryFault.CONST, "the default action is const")
        if call is not None:
            check_call(call, self._actions, self.spec.actions, where=self.spec.name)
        call = self.spec.default if call is None else call
        self._put_default(replace(self.default_entry, call=call, metadata=metadata, cookie=cookie))

    def reset_tally(self, match: Match, priority: int, tally: Tally) -> None:
        """Set the direct counter of an entry; raise EntryError if the entry does not exist."""
        present = self._present(match, priority)
        own = present.own_tally()
        own.packets, own.bytes = tally.packets, tally.bytes

    def write_meter(self, match: Match, priority: int, config: MeterConfig | None) -> None:
        """Set the direct meter of an entry (None: everything is green); raise EntryError if there is no such entry."""
        present = self._present(match, priority)
        if present.meter_cell is None:
            raise self._error(EntryFault.INVALID, "the table has no direct meter")
        if config is not None:
            check_config(config, self.spec.name)
        present.meter_cell.write(config, self.meter_writer)

    def reset_default_tally(self, tally: Tally) -> None:
        """Set the direct counter of the default entry, which counts the packets that match nothing."""
        own = self.default_entry.own_tally()
        own.packets, own.bytes = tally.packets, tally.bytes

    def write_default_meter(self, config: MeterConfig | None) -> None:
        """Set the direct meter of the default entry; None: packets that match nothing are not coloured."""
        present = self.default_entry
        if present.meter_cell is None:
            raise self._error(EntryFault.INVALID, "the table has no direct meter")
        if config is not None:
            check_config(config, self.spec.name)
        present.meter_cell.write(config, self.meter_writer)
        self._put_default(present)

    def _put_default(self, entry: TableEntry) -> None:
        for observer in self.observers:
            observer.set_default(entry)
        self.default_entry = entry

    def _owned(self, entry: TableEntry) -> TableEntry:
        """Return the entry with the counter and meter that the table's entries have."""
        if self._counts:
            entry.own_tally()
        if self.meter_spec is None:
            return entry if entry.meter_cell is None else replace(entry, meter_cell=None)
        if entry.meter_cell is not None and entry.meter_cell.unit is self.meter_spec.unit:
            return entry
        return replace(entry, meter_cell=MeterCell(self.meter_spec.unit))

    def _announce(self, entry: TableEntry, present: TableEntry | None) -> None:
        """Notify the observers of an entry about to be put; revert what it took if one refuses."""
        try:
            for observer in self.observers:
                observer.put(entry, present)
        except EntryError:
            self._release(entry)
            if present is not None:
                self._take(present)
            raise

    def _present(self, match: Match, priority: int) -> TableEntry:
        entry = self.get(match, priority)
        if entry is None:
            raise self._error(EntryFault.NOT_FOUND, "no such entry")
        return entry

    def _writable(self, match: Match, priority: int) -> TableEntry:
        self._check_writable()
        present = self._present(match, priority)
        if present.is_const:
            raise self._error(EntryFault.CONST, "the entry is const")
        return present

    def _check_writable(self) -> None:
        if self.spec.is_const:
            raise self._error(EntryFault.CONST, "the table's entries are const")

    def _check_entry(self, entry: TableEntry) -> None:
        if not self.spec.keys:
            raise self._error(EntryFault.INVALID, "a table without key has a default action only")
        check_match(self.spec.keys, entry.match, self.spec.name)
        if (entry.priority > 0) is not self.needs_priority:
            wanted = "a priority above 0" if self.needs_priority else "no priority"
            raise self._error(EntryFault.INVALID, f"priority {entry.priority}: the table's entries have {wanted}")
        if entry.priority > MAX_PRIORITY:
            raise self._error(EntryFault.INVALID, f"priority {entry.priority}: it is above {MAX_PRIORITY}")
        indirect = entry.member is not None or entry.group is not None or entry.action_set is not None
        if (entry.call is None) is not indirect or indirect is not (self.profile is not None):
            wanted = "an action" if self.profile is None else "a member, group or action set"
            raise self._error(EntryFault.INVALID, f"entries of this table have {wanted}")
        if entry.call is not None:
            check_call(entry.call, self._actions, self.spec.actions, where=self.spec.name)

    def _exchange(self, old: TableEntry, new: TableEntry) -> None:
        self._release(old)
        try:
            self._take(new)
        except EntryError:
            self._take(old)
            raise

    def _take(self, entry: TableEntry) -> None:
        if self.profile is not None:
            self.profile.take(entry)

    def _release(self, entry: TableEntry) -> None:
        if self.profile is not None:
            self.profile.release(entry)

    def _error(self, fault: EntryFault, problem: str) -> EntryError:
        return EntryError(fault, problem, where=self.spec.name)
