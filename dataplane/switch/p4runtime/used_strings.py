"""Finds the numbers of string-translated types in a program's state, whose strings must be kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from dataplane.program.objects import ActionCall
from dataplane.switch.p4runtime.catalog import Catalog
from dataplane.switch.p4runtime.strings import StringMap
from dataplane.switch.tables import ForwardingState, TableEntry
from dataplane.switch.tables.match import FieldMatch

Used = Iterator[tuple[StringMap, int]]


def used_numbers(catalog: Catalog, state: ForwardingState) -> dict[StringMap, set[int]]:
    """Return each type's numbers in entries, default entries, members and value sets; the lock is held."""
    found: dict[StringMap, set[int]] = {strings: set() for strings in catalog.strings}
    for strings, number in _all(catalog, state) if found else ():
        found[strings].add(number)
    return found


def _all(catalog: Catalog, state: ForwardingState) -> Used:
    for table in catalog.tables.values():
        entries = state.tables[table.spec.name]
        for entry in (*entries, entries.default_entry):
            yield from _of_match(table.key.strings, entry.match)
            yield from _of_calls(catalog, _calls(entry))
    for value_set in catalog.value_sets.values():
        for member in state.value_sets[value_set.spec.name].members:
            yield from _of_match(value_set.key.strings, member)
    for profile in state.profiles.values():
        yield from _of_calls(catalog, profile.members.values())


def _calls(entry: TableEntry) -> Iterator[ActionCall]:
    if entry.call is not None:
        yield entry.call
    if entry.action_set is not None:
        yield from (action.call for action in entry.action_set.actions)


def _of_match(key: Sequence[StringMap | None], match: Sequence[FieldMatch]) -> Used:
    for strings, value in zip(key, match, strict=False):  # a default entry's is empty
        if strings is not None and value is not None:
            yield strings, value if isinstance(value, int) else value[0]


def _of_calls(catalog: Catalog, calls: Iterable[ActionCall]) -> Used:
    for call in calls:
        action_id = catalog.action_ids.get(call.action)
        if action_id is not None:
            for strings, argument in zip(catalog.actions[action_id].strings, call.arguments, strict=True):
                if strings is not None:
                    yield strings, argument
