"""Partial sums added up by switches: groups numbered the same on all workers, and values as 32-bit lanes.

A 64-bit sum takes several lanes, each with room for the sum over all workers, so that the result is exact
(controller.acceleration.network.switches.Sums counts the same lanes).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from controller.acceleration.network.switches import LANE_BITS
from controller.acceleration.running.errors import RunError
from dataplane.allreduce.formats import headroom
from dataplane.allreduce.membership import Membership
from dataplane.config import Strict

VALUE_BITS: Final = 64
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_WIDE: Final = pa.decimal128(38, 0)


class SwitchOrder(Strict, frozen=True):
    """One worker's part of an all-reduce: the job service, the job's name, this worker's host, and their number."""

    service: str
    job: str
    host: str
    workers: int


def keys_of(partial: pa.Table, sums: int) -> pa.Table:
    """Return the groups of a partial result, whose last `sums` columns are sums."""
    return partial.select(partial.column_names[: partial.num_columns - sums])


def problem_of(partial: pa.Table, sums: int) -> str:
    """Return why a partial result's sums cannot be added up by switches, '' if they can."""
    for name in partial.column_names[partial.num_columns - sums :]:
        column = partial.column(name)
        if column.type not in (*_INTEGERS, _WIDE):
            return f"a sum is {column.type}: switches add up whole numbers"
        if column.null_count:
            return "a sum is NULL on some machine"
    try:
        _integers(partial, sums)
    except (OverflowError, pa.ArrowInvalid):
        return "a sum exceeds 64 bits"
    return ""


def united(parts: list[pa.Table]) -> pa.Table:
    """Return the groups of all workers, each once."""
    table = pa.concat_tables(parts)
    if not table.num_columns:
        return table
    with duckdb.connect(":memory:") as connection:
        connection.register("parts", table)
        return connection.sql("SELECT DISTINCT * FROM parts").to_arrow_table()


def added(partial: pa.Table, sums: int, keys: pa.Table, order: SwitchOrder) -> pa.Table:
    """Return all workers' sums by group, as a partial result; every worker must call it. Raise AllReduceError."""
    number = max(keys.num_rows, 1)
    values = np.zeros((number, sums), np.int64)
    values[_places(partial, sums, keys)] = _integers(partial, sums)
    # The first lane counts the workers: the job goes on without one that dies, but the sums would not be those of all.
    lanes = np.concatenate(([np.int32(1)], lanes_of(values.ravel(), order.workers))).astype(np.int32)
    with Membership.join(order.service, job=order.job, host=order.host, workers=order.workers) as membership:
        total = np.asarray(membership.reducer.all_reduce(lanes).result())
    if total[0] != order.workers:
        raise RunError(f"sums of {total[0]} workers have arrived, not of all {order.workers}")
    whole = values_of(total[1:], order.workers, number * sums)
    columns = list(keys.columns)
    for index, name in enumerate(partial.column_names[partial.num_columns - sums :]):
        own = [Decimal(value) for value in whole[index::sums]]
        columns.append(pa.array(own, _WIDE).cast(partial.schema.field(name).type))
    return pa.table(columns, schema=partial.schema)


def lanes_of(values: NDArray[np.int64], workers: int) -> NDArray[np.int32]:
    """Return whole numbers as lanes, the lowest bits first; only the last lane of a number has its sign."""
    bits, count = _layout(workers)
    lanes = np.empty((len(values), count), np.int32)
    rest = values
    for lane in range(count - 1):
        lanes[:, lane] = rest & ((1 << bits) - 1)
        rest = rest >> bits
    lanes[:, -1] = rest
    return lanes.ravel()


def values_of(lanes: NDArray[np.int32], workers: int, number: int) -> list[int]:
    """Return the numbers that summed lanes stand for, of any size."""
    bits, count = _layout(workers)
    rows = lanes[: number * count].reshape(number, count).astype(object)
    return [int(sum(int(lane) << (bits * index) for index, lane in enumerate(row))) for row in rows]


def _layout(workers: int) -> tuple[int, int]:
    bits = LANE_BITS - headroom(workers)
    return bits, -(-VALUE_BITS // bits)


def _integers(partial: pa.Table, sums: int) -> NDArray[np.int64]:
    columns = partial.columns[partial.num_columns - sums :]
    arrays = [column.cast(pa.int64()).to_numpy() for column in columns]
    return np.stack(arrays, axis=1) if arrays else np.zeros((partial.num_rows, 0), np.int64)


def _places(partial: pa.Table, sums: int, keys: pa.Table) -> NDArray[np.int64]:
    """Return the number of each row's group."""
    names = keys.column_names
    if not names:
        return np.zeros(partial.num_rows, np.int64)
    numbered = keys.append_column("_place", pa.array(np.arange(keys.num_rows)))
    rows = keys_of(partial, sums).append_column("_row", pa.array(np.arange(partial.num_rows)))
    same = " AND ".join(f'r."{name}" IS NOT DISTINCT FROM k."{name}"' for name in names)
    with duckdb.connect(":memory:") as connection:
        connection.register("k", numbered)
        connection.register("r", rows)
        found = connection.sql(f"SELECT _place FROM r JOIN k ON {same} ORDER BY _row").fetchnumpy()["_place"]
    if len(found) != partial.num_rows:
        raise RunError("a group of a partial result has no number")
    return np.asarray(found, np.int64)
