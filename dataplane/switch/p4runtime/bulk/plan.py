"""Plan of what a program's rows can hold, in words for the kernel, and the decoding of requests by it."""

from __future__ import annotations

import functools
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from struct import Struct
from typing import Any

from finsy.proto import p4i

from dataplane.native import Library, kernel_library
from dataplane.program.objects import MatchKind
from dataplane.switch.p4runtime.bulk import decoding
from dataplane.switch.p4runtime.catalog import ActionInfo, Catalog, TableInfo
from dataplane.switch.tables.match import needs_priority
from dataplane.switch.tables.rows import MAX_WIDTH, WORD_BYTES, RowLayout, Rows, row_words, words_a_field

_KINDS = {
    MatchKind.EXACT: decoding.EXACT,
    MatchKind.LPM: decoding.LPM,
    MatchKind.TERNARY: decoding.TERNARY,
    MatchKind.OPTIONAL: decoding.OPTIONAL,
}
_MAX_PARTS = 63
"""Fields or parameters that the kernel's bits can tell apart."""


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive updates from number `start` on: rows of one table, or `count` updates that rows do not hold."""

    start: int
    count: int
    table: str
    rows: Rows | None

    def split(self, count: int) -> tuple[Run, Run | None]:
        """Return the first updates, at most that many, and the others, if any."""
        if self.count <= count:
            return self, None
        first = None if self.rows is None else self.rows.first(count)
        others = None if self.rows is None else self.rows.after(count)
        return (
            Run(self.start, count, self.table, first),
            Run(self.start + count, self.count - count, self.table, others),
        )


class BulkPlan:
    """Decodes the inserts of one program's requests."""

    def __init__(self, catalog: Catalog) -> None:
        names = list(catalog.program.actions)
        numbers = {name: number for number, name in enumerate(names)}
        tables = [(info, _actions(catalog, info)) for info in catalog.tables.values() if _holds(info)]
        sizes = [
            row_words(info.spec.keys, max((len(action.parameter_ids) for action in actions), default=0))
            for info, actions in tables
        ]
        self._words = max(sizes, default=0)
        self._names = [info.spec.name for info, _ in tables]
        self._layouts = [RowLayout(info.spec, names, self._words) for info, _ in tables]
        self._plan = array("Q", _plan_words(tables, numbers))
        self._table_numbers = Struct(f"=Q{WORD_BYTES * max(0, self._words - 1)}x")

    def runs(self, request: bytes, count: int, fewest: int) -> list[Run]:
        """Return a serialized request's updates, of which there are `count`, in their order.

        Rows are at least `fewest`.
        """
        if not self._words:
            return [Run(0, count, "", None)]
        data = bytearray(count * self._words * WORD_BYTES)
        reader = decoding.Reader(data=request)
        decoded = _decode()(reader, len(request), self._plan, data, self._words, count)
        if decoded != count:
            return [Run(0, count, "", None)]
        return list(self._grouped(memoryview(data), fewest))

    def _grouped(self, data: memoryview, fewest: int) -> Iterator[Run]:
        nbytes, start, singles = self._words * WORD_BYTES, 0, 0
        for number, group in groupby(chain.from_iterable(self._table_numbers.iter_unpack(data))):
            count = len([*group])
            if number and count >= fewest:
                if singles:
                    yield Run(start - singles, singles, "", None)
                rows = Rows(self._layouts[number - 1], data[start * nbytes : (start + count) * nbytes])
                yield Run(start, count, self._names[number - 1], rows)
                singles = 0
            else:
                singles += count
            start += count
        if singles:
            yield Run(start - singles, singles, "", None)


@functools.cache
def _library() -> Library:
    return kernel_library(decoding.decode_inserts)


@functools.cache
def _decode() -> Any:  # noqa: ANN401 (a bound kernel)
    return _library().bind(decoding.decode_inserts)


def _holds(info: TableInfo) -> bool:
    """Return whether rows can hold entries of a table."""
    spec, key = info.spec, info.key
    return (
        0 < len(key.fields) <= _MAX_PARTS
        and all(field.kind in _KINDS and 0 < field.width <= MAX_WIDTH for field in key.fields)
        and all(strings is None for strings in key.strings)
        and spec.profile is None
        and spec.direct_meter is None
        and not spec.is_const
        and not spec.idle_timeout
    )


def _actions(catalog: Catalog, info: TableInfo) -> list[ActionInfo]:
    """Return the actions of a table's entries whose arguments rows can hold."""
    allowed = [catalog.actions[number] for number, scope in info.scopes.items() if scope != p4i.ActionRef.DEFAULT_ONLY]
    return [
        action
        for action in allowed
        if action.spec.name in info.spec.actions
        and len(action.parameter_ids) <= _MAX_PARTS
        and all(width <= MAX_WIDTH for _, width in action.spec.parameters)
        and all(strings is None for strings in action.strings)
    ]


def _plan_words(tables: Sequence[tuple[TableInfo, Sequence[ActionInfo]]], numbers: Mapping[str, int]) -> Iterator[int]:
    """Yield the number of tables, where each begins, and the tables."""
    plans = [
        [
            info.table_id,
            number,
            needs_priority(info.spec.keys),
            words_a_field(info.spec.keys),
            len(info.key.fields),
            len(actions),
            *_field_words(info),
            *chain.from_iterable(_action_words(action, numbers) for action in actions),
        ]
        for number, (info, actions) in enumerate(tables, 1)
    ]
    at = 1 + len(plans)
    yield len(plans)
    for plan in plans:
        yield at
        at += len(plan)
    yield from chain.from_iterable(plans)


def _field_words(info: TableInfo) -> Iterator[int]:
    for field_id, field in zip(info.key.field_ids, info.key.fields, strict=True):
        yield from (field_id, _KINDS[field.kind], field.width)


def _action_words(action: ActionInfo, numbers: Mapping[str, int]) -> Iterator[int]:
    yield from (action.action_id, numbers[action.spec.name], len(action.parameter_ids))
    for param_id, (_, width) in zip(action.parameter_ids, action.spec.parameters, strict=True):
        yield from (param_id, width)
