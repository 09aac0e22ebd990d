"""Columns of delay sketches: the number of delays in each bucket of `collectors.statistics.sketch`; queried in SQL.

`sketch_sum` and `sketch_quantile` are DuckDB functions over lists of (bucket, count) in any order, which may repeat a
bucket; `delay_quantile(delay_sketch, 0.99)` aggregates and evaluates in one call. A quantile is the middle of its
bucket, at most 1 part in 128 off.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Final

import duckdb
import numpy as np
import pyarrow as pa
from duckdb.func import FunctionNullHandling, PythonUDFType
from numpy.typing import NDArray

from collectors.statistics.sketch import BUCKETS, Sketch, middle_of

_ENTRY: Final = pa.struct([("bucket", pa.uint16()), ("count", pa.uint64())])
SKETCH: Final = pa.list_(_ENTRY)
_SQL_TYPE: Final = "STRUCT(bucket USMALLINT, count UBIGINT)[]"
_MIDDLES: Final = np.array([middle_of(bucket) for bucket in range(BUCKETS)], np.int64)
Numbers = NDArray[np.int64]


def sketch_array(sketches: Sequence[Sketch | None]) -> pa.Array:
    """Return sketches as a column; null for None."""
    taken = [{} if sketch is None else sketch.buckets for sketch in sketches]
    buckets, counts = (
        np.fromiter(chain.from_iterable(part), np.int64) for part in (taken, (each.values() for each in taken))
    )
    offsets = np.cumsum([0, *map(len, taken)], dtype=np.int32)
    rows = np.repeat(np.arange(len(taken)), np.diff(offsets))
    order = np.lexsort((buckets, rows))
    nulls = pa.array([sketch is None for sketch in sketches], pa.bool_())
    return _lists(offsets, buckets[order], counts[order], nulls)


def define_functions(connection: duckdb.DuckDBPyConnection) -> None:
    """Let a connection's queries use the functions."""
    arrow, special = PythonUDFType.ARROW, FunctionNullHandling.SPECIAL
    connection.create_function("sketch_sum", _sum, [_SQL_TYPE], _SQL_TYPE, type=arrow, null_handling=special)
    connection.create_function(
        "sketch_quantile", _quantile, [_SQL_TYPE, "DOUBLE"], "BIGINT", type=arrow, null_handling=special
    )
    merged = f"flatten(list(sketch::{_SQL_TYPE}))"
    connection.execute(f"CREATE MACRO delay_quantile(sketch, share) AS sketch_quantile({merged}, share::DOUBLE)")


def is_about_sketches(complaint: str) -> bool:
    """Return whether DuckDB complains about a value that is not a sketch."""
    return _SQL_TYPE.removesuffix("[]") in complaint


def _sum(column: pa.ChunkedArray) -> pa.Array:
    """Return each list with every bucket once, in order; null stays null."""
    lists = _one(column)
    rows, buckets, counts = _added_up(lists)
    offsets = np.searchsorted(rows, np.arange(len(lists) + 1)).astype(np.int32)
    return _lists(offsets, buckets, counts, lists.is_null())


def _quantile(column: pa.ChunkedArray, shares: pa.ChunkedArray) -> pa.Array:
    """Return each list's number of nearest rank; null of nothing."""
    lists = _one(column)
    rows, buckets, counts = _added_up(lists)
    reached = np.concatenate([[0], np.cumsum(counts)])
    begins, ends = (np.searchsorted(rows, np.arange(len(lists)), side) for side in ("left", "right"))
    total = reached[ends] - reached[begins]
    wanted = np.nan_to_num(_one(shares).to_numpy(zero_copy_only=False).astype(np.float64))
    # In whole ten-thousandths, as the sketch has it: 0.07 * 100 is a little more than 7.
    ranks = np.clip(-(-np.rint(wanted * 10_000).astype(np.int64) * total // 10_000), 1, np.maximum(total, 1))
    places = np.searchsorted(reached[1:], reached[begins] + ranks, "left")
    has_delays = total > 0
    ranked = np.zeros(len(lists), np.int64)
    ranked[has_delays] = _MIDDLES[buckets[places[has_delays]]]
    return pa.array(ranked, pa.int64(), mask=~has_delays)


def _added_up(lists: pa.Array) -> tuple[Numbers, Numbers, Numbers]:
    """Return the lists' entries by row and bucket, each once: rows, buckets, counts."""
    lengths = lists.value_lengths().fill_null(0).to_numpy()
    entries = lists.flatten()
    buckets, counts = (entries.field(name).to_numpy(zero_copy_only=False) for name in ("bucket", "count"))
    keys = np.repeat(np.arange(len(lists), dtype=np.int64), lengths) * BUCKETS + np.minimum(buckets, BUCKETS - 1)
    # A cell for every row and bucket: DuckDB gives 2,048 rows at a time, and counts are far from 2**53.
    cells = np.bincount(keys, weights=counts, minlength=1)
    (places,) = np.nonzero(cells)
    return places // BUCKETS, places % BUCKETS, cells[places].astype(np.int64)


def _one(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _lists(offsets: NDArray[np.int32], buckets: Numbers, counts: Numbers, nulls: pa.Array) -> pa.Array:
    columns = [pa.array(buckets, pa.uint16()), pa.array(counts, pa.uint64())]
    entries = pa.StructArray.from_arrays(columns, fields=list(_ENTRY))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries, type=SKETCH, mask=nulls)
