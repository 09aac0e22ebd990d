"""From a switch's present entities to the desired ones, without interrupting traffic that can flow.

Make before break, in this order: members, groups, multicast groups and clone sessions, default actions, entries (table
by table), then deletions in the opposite order. Correct entities are not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from finsy import P4TableEntry

from controller.network.tables.base import FILL_ORDER
from controller.network.tables.entities import Batch, Entities, Entity, EntityKey, Kind, Update, Verb, same

MAX_BATCH = 500
"""Updates in one WriteRequest: well below gRPC's 4 MiB."""

_KINDS = (Kind.MEMBER, Kind.GROUP, Kind.MULTICAST, Kind.CLONE, Kind.DEFAULT, Kind.ENTRY)


@dataclass(frozen=True, slots=True, order=True)
class _Stage:
    """Position of an update in the order; updates of one stage may be executed in any order."""

    breaks: bool
    kind: int
    table: int


def diff(desired: Entities, actual: Entities, *, order: Sequence[str] = FILL_ORDER) -> list[Batch]:
    """Return the batches that turn `actual` into `desired`, each to be sent when the one before is acknowledged."""
    stages = {name: index for index, name in enumerate(order)}
    staged: dict[tuple[bool, Kind, str], list[Update]] = {}
    for update in _updates(desired, actual):
        key = update.key
        alike = _breaks(update), key.kind, key.table
        if alike in staged:
            staged[alike].append(update)
        else:
            staged[alike] = [update]
    by_stage: dict[_Stage, list[Update]] = {}
    for alike, updates in staged.items():
        by_stage.setdefault(_stage(*alike, stages), []).extend(updates)
    return [batch for stage in sorted(by_stage) for batch in chunks(by_stage[stage])]


def apply(held: Entities, updates: Iterable[Update]) -> dict[EntityKey, Entity]:
    """Return a switch's entities after it has acknowledged `updates`."""
    result = dict(held)
    for update in updates:
        if _breaks(update):
            result.pop(update.key, None)
        else:
            result[update.key] = update.entity
    return result


def chunks(updates: Sequence[Update]) -> list[Batch]:
    """Return updates in batches of bounded size."""
    return [tuple(updates[start : start + MAX_BATCH]) for start in range(0, len(updates), MAX_BATCH)]


def is_reset(entity: Entity) -> bool:
    """Return whether an entity is a default action without an action: the program's own."""
    return isinstance(entity, P4TableEntry) and entity.is_default_action and entity.action is None


def _updates(desired: Entities, actual: Entities) -> Iterator[Update]:
    for key, entity in desired.items():
        held = actual.get(key)
        if held is entity:
            continue
        if held is None:
            yield Update(Verb.MODIFY if key.kind is Kind.DEFAULT else Verb.INSERT, key, entity)
        elif not same(held, entity):
            yield Update(Verb.MODIFY, key, entity)
    for key, entity in actual.items():
        if key not in desired and not is_reset(entity):
            yield _removal(key, entity)


def _removal(key: EntityKey, entity: Entity) -> Update:
    """Return the update that undoes an entity: a default action is reset to the program's own (section 9.1.3)."""
    if key.kind is Kind.DEFAULT:
        return Update(Verb.MODIFY, key, P4TableEntry(key.table, is_default_action=True))
    return Update(Verb.DELETE, key, entity)


def _breaks(update: Update) -> bool:
    # The kind first, and no call for most: this is asked of every update of every switch.
    return update.verb is Verb.DELETE or (update.key.kind is Kind.DEFAULT and is_reset(update.entity))


def _stage(breaks: bool, kind: Kind, table: str, stages: Mapping[str, int]) -> _Stage:
    stage = stages.get(table, len(stages)) if kind in (Kind.ENTRY, Kind.DEFAULT) else 0
    return _Stage(True, -_KINDS.index(kind), -stage) if breaks else _Stage(False, _KINDS.index(kind), stage)
