"""Context of a request: one program's ids, its state, and P4Runtime's own data for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from finsy.proto import p4r

from dataplane.program.objects import ActionCall
from dataplane.switch.p4runtime.bulk.plan import BulkPlan
from dataplane.switch.p4runtime.catalog import Catalog
from dataplane.switch.p4runtime.control import SwitchControl
from dataplane.switch.p4runtime.digests import Learner
from dataplane.switch.p4runtime.errors import invalid
from dataplane.switch.p4runtime.idle import IdleWatch
from dataplane.switch.p4runtime.strings import StringMap
from dataplane.switch.tables import ForwardingState, TableEntry
from dataplane.switch.tables.match import FieldMatch

Used = Iterator[tuple[StringMap, int]]


def used_numbers(catalog: Catalog, state: ForwardingState) -> dict[StringMap, set[int]]:
    """Return each type's numbers in entries, default entries, members and value sets; the lock is held."""
    numbers: dict[StringMap, set[int]] = {strings: set() for strings in catalog.strings}
    for strings, number in _all(catalog, state) if numbers else ():
        numbers[strings].add(number)
    return numbers


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


Undo = Callable[[], None]
"""Restores an entity to its earlier state."""


@dataclass(frozen=True, slots=True)
class Context:
    """A program's ids, the associated state, and the switch that runs it or will.

    `learners` are the digests' by name; `idle` belongs to the holder of the state's lock.
    """

    catalog: Catalog
    state: ForwardingState
    control: SwitchControl
    bulk: BulkPlan
    learners: dict[str, Learner] = field(default_factory=dict)
    idle: IdleWatch = field(default_factory=IdleWatch)

    @classmethod
    def of(cls, catalog: Catalog, state: ForwardingState, control: SwitchControl) -> Context:
        """Return the context of a state, whose entries may already have times to live."""
        learners = {info.spec.name: Learner() for info in catalog.digests.values()}
        context = cls(catalog, state, control, BulkPlan(catalog), learners)
        with state.lock:
            context.idle.watch_all(state)
            for strings, numbers in used_numbers(catalog, state).items():
                strings.reserve(numbers)
        return context

    def make_room(self) -> None:
        """Forget unused strings of types that are close to their maximum; the lock is held."""
        if any(strings.is_crowded() for strings in self.catalog.strings):
            used = used_numbers(self.catalog, self.state)
            for strings in self.catalog.strings:
                strings.keep(used.get(strings, ()))


class UpdateKind(Enum):
    """Effect of an update on its entity."""

    INSERT = p4r.Update.INSERT
    MODIFY = p4r.Update.MODIFY
    DELETE = p4r.Update.DELETE


def require_modify(kind: UpdateKind, what: str) -> None:
    """Raise INVALID_ARGUMENT unless the update is a MODIFY, for entities that always exist."""
    if kind is not UpdateKind.MODIFY:
        raise invalid(f"{what} can only be modified, not inserted or deleted")
