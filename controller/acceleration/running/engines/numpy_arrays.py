"""numpy engine: operators over numeric columns, as arrays. Integer sums are exact, or an error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.operators import COUNT
from controller.acceleration.running.values import Operator, OperatorKind, StepRun

Columns = dict[str, NDArray[Any]]
_MOST: Final = (1 << 63) - 1
_DENSE: Final = 4
"""Ratio of key range to rows up to which sums use a dense table instead of sorting."""
_BLOCK: Final = 1 << 18
"""Rows per block, so that intermediates stay in the processor's cache."""


class NumpyBackend:
    """Computes an operator; merges apply the operator itself to partial results."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._tables: dict[str, Columns] = {}

    def load(self, name: str, table: pa.Table) -> None:
        """Store a table's columns, each as one array."""
        self._tables[name] = columns_of(table)

    def partial(self) -> pa.Table:
        """Return the result on this shard."""
        data, operator = self._tables[operator_table(self._operator, self._tables)], self._operator
        match operator.kind:
            case OperatorKind.FILTER:
                kept = np.flatnonzero(data[operator.column] < operator.below)
                return _table({name: values[kept] for name, values in data.items()})
            case OperatorKind.AGGREGATE:
                # Sums have 64 bits regardless of their column's width, as a group may be of any size.
                wide = {name: data[name] for name in operator.sums}
                rows = len(next(iter(data.values()), ()))
                return _grouped(operator, data, wide | {COUNT: np.ones(rows, np.int64)})
            case OperatorKind.JOIN:
                return _joined(operator.column, data, self._tables[operator.other])
            case OperatorKind.SORT:
                return _sorted(operator, data)

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge partial results."""
        if self._operator.kind in {OperatorKind.FILTER, OperatorKind.JOIN}:
            return pa.concat_tables(parts).combine_chunks()
        data = columns_of(pa.concat_tables(parts))
        if self._operator.kind is OperatorKind.SORT:
            return _sorted(self._operator, data)
        return _grouped(self._operator, data, {name: data[name] for name in (*self._operator.sums, COUNT)})

    def finish(self, merged: pa.Table) -> pa.Table:
        """Return the result, which is the merged rows."""
        return merged

    def step_runs(self) -> tuple[StepRun, ...]:
        """Return nothing: the operator is no step of a statement."""
        return ()

    def interrupt(self) -> None:
        """Do nothing: a numpy call cannot be cancelled; its caller has a deadline."""


def operator_table(operator: Operator, tables: Mapping[str, object]) -> str:
    """Return the name of the sharded table; raise RunError if a worker lacks an input."""
    for name in filter(None, (operator.table, operator.other)):
        if name not in tables:
            raise RunError(f"{operator.kind}: table {name} is missing")
    return operator.table


def columns_of(table: pa.Table) -> Columns:
    """Return columns as arrays; single-chunk columns are not copied."""
    return {name: table.column(name).combine_chunks().to_numpy(zero_copy_only=False) for name in table.column_names}


def check_sum(name: str, most: int, rows: int) -> None:
    """Raise RunError if the sum of so many integers, each of at most that size, may exceed 64 bits."""
    if most * rows > _MOST:
        raise RunError(f"column {name}: sums may exceed 64 bits; DuckDB handles such columns")


def _table(columns: Columns) -> pa.Table:
    return pa.table({name: pa.array(values) for name, values in columns.items()})


def _grouped(operator: Operator, data: Columns, values: Columns) -> pa.Table:
    """Sum by groups; the groups are returned in order."""
    rows = len(next(iter(values.values())))
    for name, column in values.items():
        if column.dtype.kind == "i" and rows:
            check_sum(name, max(abs(int(column.min())), abs(int(column.max()))), rows)
    if not operator.column:
        return _table({name: _wide(column).sum(keepdims=True) for name, column in values.items()})
    keys = data[operator.column]
    if rows and keys.dtype.kind == "i" and int(keys.max()) - int(keys.min()) <= _DENSE * rows:
        return _table(_dense(operator.column, keys, values))
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1]))[: len(ordered)])
    sums = {name: np.add.reduceat(_wide(column)[order], starts) if len(starts) else _wide(column)[:0]
            for name, column in values.items()}  # fmt: skip
    return _table({operator.column: ordered[starts]} | sums)


def _dense(name: str, keys: NDArray[Any], values: Columns) -> Columns:
    """Sum by groups with a narrow key range, in a table with a slot for each key."""
    least = keys.min()
    places = (keys - least).astype(np.intp, copy=False)
    number = int(places.max()) + 1
    used = np.flatnonzero(np.bincount(places, minlength=number))
    sums: Columns = {}
    for column, added in values.items():
        total = np.zeros(number, _wide(added[:0]).dtype)
        for start in range(0, len(places), _BLOCK):
            np.add.at(total, places[start : start + _BLOCK], _wide(added[start : start + _BLOCK]))
        sums[column] = total[used]
    return {name: used.astype(keys.dtype) + least} | sums


def _wide(values: NDArray[Any]) -> NDArray[Any]:
    return values.astype(np.int64, copy=False) if values.dtype.kind == "i" else values


def _joined(key: str, data: Columns, other: Columns) -> pa.Table:
    """Join each row with the other side's rows of the same key, by a search in the other side's sorted keys."""
    order = np.argsort(other[key], kind="stable")
    keys = other[key][order]
    first, last = (np.searchsorted(keys, data[key], side=side) for side in ("left", "right"))
    counts = last - first
    left = np.repeat(np.arange(len(counts)), counts)
    # Position within each row's matches: the offset from their beginning.
    inside = np.arange(len(left)) - np.repeat(np.cumsum(counts) - counts, counts)
    right = order[first[left] + inside]
    columns = {name: values[left] for name, values in data.items()}
    return _table(columns | {name: values[right] for name, values in other.items() if name != key})


def _sorted(operator: Operator, data: Columns) -> pa.Table:
    order = np.argsort(data[operator.column], kind="stable")[: operator.limit or None]
    return _table({name: values[order] for name, values in data.items()})
