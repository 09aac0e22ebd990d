"""Carrying entries over from one program's state to another's, where both programs support them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import ActionCall, ActionSpec
from dataplane.switch.tables.entry import TableEntry
from dataplane.switch.tables.profile import Profile
from dataplane.switch.tables.state import ForwardingState
from dataplane.switch.tables.table import Table


def carry_over(
    source: ForwardingState,
    target: ForwardingState,
    source_actions: Mapping[str, ActionSpec],
    target_actions: Mapping[str, ActionSpec],
) -> None:
    """Insert everything that `source` holds, counts included, into the fresh `target`.

    Raises EntryError naming the object that `target`'s program cannot hold: a table or profile with entries that is
    gone or has another key, an action with other parameters. `target` must then be discarded.
    """
    changed = {name for name, spec in source_actions.items() if target_actions.get(name) != spec}
    for name, profile in source.profiles.items():
        _carry_profile(profile, target.profiles.get(name), changed)
    for name, table in source.tables.items():
        _carry_table(table, target.tables.get(name), changed)
    _carry_arrays(source, target)
    _carry_value_sets(source, target)
    for port in source.ports_down:
        target.set_port_status(port, up=False)
    target.multicast_groups.update(source.multicast_groups)
    target.clone_sessions.update(source.clone_sessions)
    target.replication_notes.update(source.replication_notes)


def _carry_profile(source: Profile, target: Profile | None, changed: set[str]) -> None:
    name = source.spec.name
    if not source.members and not source.groups:
        return
    if target is None:
        raise EntryError(EntryFault.INVALID, "the new program has no such action profile", where=name)
    for member_id, call in source.members.items():
        _check_action(call, changed, name)
        target.insert_member(member_id, call)
    for group in source.groups.values():
        target.insert_group(group)


def _carry_table(source: Table, target: Table | None, changed: set[str]) -> None:
    name = source.spec.name
    if all(entry.is_const for entry in source) and not source.spec.presets and not _default_changed(source):
        return
    if target is None or target.spec.keys != source.spec.keys or target.spec.profile != source.spec.profile:
        raise EntryError(EntryFault.INVALID, "the new program has no such table with the same key", where=name)
    _carry_entries(source, target, changed)
    if source.default is not None and source.default != source.spec.default:
        _check_action(source.default, changed, name)
        target.set_default(source.default, source.default_entry.metadata, source.default_entry.cookie)
    if source.default_entry.tally is not None and target.default_entry.tally is not None:
        target.reset_default_tally(source.default_entry.tally)
    if source.default_entry.meter_config is not None and target.meter_spec is not None:
        target.write_default_meter(source.default_entry.meter_config)


def _carry_entries(source: Table, target: Table, changed: set[str]) -> None:
    """Replace the entries of `target` by those of `source`, except for const ones of `target`."""
    for entry in [entry for entry in target if not entry.is_const]:
        target.delete(entry.match, entry.priority)
    for entry in source:
        if entry.is_const and (target.spec.is_const or _is_const(target, entry)):
            continue  # each program has its own
        for call in _calls(entry):
            _check_action(call, changed, source.spec.name)
        present = target.get(entry.match, entry.priority)
        if present is None or not present.is_const or present.call != entry.call:
            target.insert(replace(entry, is_const=False))


def _is_const(table: Table, entry: TableEntry) -> bool:
    present = table.get(entry.match, entry.priority)
    return present is not None and present.is_const


def _default_changed(table: Table) -> bool:
    """Return whether a controller has written anything to a table's default entry."""
    return table.default != table.spec.default or table.default_entry.meter_config is not None


def _carry_arrays(source: ForwardingState, target: ForwardingState) -> None:
    """Copy counters, registers and meters of the same shape; others start from zero, as nothing refers to them."""
    for name, counter in source.counters.items():
        new = target.counters.get(name)
        if new is not None and new.spec == counter.spec:
            new.cells[:] = counter.cells
    for name, cells in source.registers.items():
        if source.register_spec(name) == target.register_spec(name):
            target.registers[name].words[:] = cells.words
    for name, meter in source.meters.items():
        other = target.meters.get(name)
        if other is not None and other.spec == meter.spec:
            other.adopt(meter)


def _carry_value_sets(source: ForwardingState, target: ForwardingState) -> None:
    for name, value_set in source.value_sets.items():
        if not value_set.members:
            continue
        new = target.value_sets.get(name)
        if new is None or new.spec.keys != value_set.spec.keys:
            raise EntryError(EntryFault.INVALID, "the new program has no such value set with the same key", where=name)
        new.replace(value_set.members)


def _calls(entry: TableEntry) -> tuple[ActionCall, ...]:
    if entry.action_set is not None:
        return tuple(action.call for action in entry.action_set.actions)
    return () if entry.call is None else (entry.call,)


def _check_action(call: ActionCall, changed: set[str], where: str) -> None:
    if call.action in changed:
        raise EntryError(EntryFault.INVALID, f"the new program has another action {call.action}", where=where)
