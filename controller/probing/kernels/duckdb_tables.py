"""Sort, filter, join and aggregate by DuckDB, in memory, as SQL programs do; data and truth are those of `tables`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import numpy as np

from controller.probing.kernels import tables
from controller.probing.kernels.base import Array, Maker, Sizes, Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb


class Database:
    """Tables in memory, with as many threads as this process has cores, unless told otherwise."""

    def __init__(self, **content: Mapping[str, Array]) -> None:
        import duckdb  # noqa: PLC0415 - takes longer than all other imports of a runner

        threads = os.environ.get("OMP_NUM_THREADS", "")
        cores = int(threads) if threads.isdecimal() and int(threads) else len(os.sched_getaffinity(0))
        self.connection: duckdb.DuckDBPyConnection = duckdb.connect(config={"threads": cores})
        for name, columns in content.items():
            self.connection.register("given", dict(columns))
            self.connection.execute(f"CREATE TABLE {name} AS SELECT * FROM given")  # noqa: S608 - names of ours
            self.connection.unregister("given")

    def columns(self, sql: str) -> list[Array]:
        """Return the columns of a query's answer."""
        return [np.asarray(column) for column in self.connection.execute(sql).fetchnumpy().values()]

    def close(self) -> None:
        """Drop all tables."""
        self.connection.close()


class Sort(tables.Sort):
    """Rows in order of their keys, all columns of them."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__(sizes, seed)
        self._database = Database(t=_named([self.keys, *self.others]))

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Sort; the inputs change the first row."""
        if self.take(inputs):
            changes = ", ".join(
                f"c{index} = {int(column[0])}" for index, column in enumerate([self.keys, *self.others])
            )
            self._database.connection.execute(f"UPDATE t SET {changes} WHERE rowid = 0")  # noqa: S608 - numbers of ours
        return np.stack(self._database.columns("SELECT * FROM t ORDER BY c0"))

    def close(self) -> None:
        """Drop the table."""
        self._database.close()


class Filter(tables.Filter):
    """The rows whose key is below a bound."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__(sizes, seed)
        self._database = Database(t=_named(list(self.table)))

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Filter; the inputs are added to the last row's last column."""
        self.take(inputs)
        rows = np.stack(self._database.columns(f"SELECT * FROM t WHERE c0 < {self.kept}"))  # noqa: S608 - a number of ours
        if rows.size:
            rows[-1, -1] += self.lift
        return rows

    def close(self) -> None:
        """Drop the table."""
        self._database.close()


class HashJoin(tables.HashJoin):
    """Pairs of rows with equal keys, counted, and all their columns summed up."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__(sizes, seed)
        left, right = [self.left, *self.left_columns], [self.right, *self.right_columns]
        self._database = Database(l=_named(left), r=_named(right))
        columns = [f"l.c{index}" for index in range(len(left))] + [f"r.c{index}" for index in range(1, len(right))]
        self._query = f"SELECT count(*), sum({' + '.join(columns)}) FROM l JOIN r ON l.c0 = r.c0"  # noqa: S608 - of ours

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Join; the inputs are added to the sum."""
        self.take(inputs)
        count, total = self._database.connection.execute(self._query).fetchall()[0]
        return np.array([count, int(total or 0) + self.lift], dtype=np.int64)

    def close(self) -> None:
        """Drop the tables."""
        self._database.close()


class Aggregate(tables.Aggregate):
    """A sum for each group of rows."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__(sizes, seed)
        self._database = Database(t={"g": self.group, **_named(self.columns)})
        sums = ", ".join(f"sum(c{index})" for index in range(len(self.columns)))
        self._query = f"SELECT g, {sums} FROM t GROUP BY g"  # noqa: S608 - of ours

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Add up by group; the inputs are the value of the row whose key is 0."""
        if self.take(inputs):
            changes = ", ".join(f"c{index} = {self.lift}" for index in range(len(self.columns)))
            self._database.connection.execute(f"UPDATE t SET {changes} WHERE rowid = {self.zero}")  # noqa: S608 - of ours
        groups, *sums = self._database.columns(self._query)
        return np.stack(sums)[:, np.argsort(groups)]

    def close(self) -> None:
        """Drop the table."""
        self._database.close()


def _named(columns: list[Array]) -> dict[str, Array]:
    return {f"c{index}": column for index, column in enumerate(columns)}


sort: Final = Maker(Sort, lambda s: 2 * tables.sort.memory_bytes(s))
filter_scan: Final = Maker(
    Filter, lambda s: 2 * tables.filter_scan.memory_bytes(s), may_be_zero=tables.filter_scan.may_be_zero
)
hash_join: Final = Maker(
    HashJoin,
    lambda s: 2 * tables.hash_join.memory_bytes({**s, "out_rows": 0}),
    may_be_zero=tables.hash_join.may_be_zero,
)
aggregate: Final = Maker(
    Aggregate, lambda s: 2 * tables.aggregate.memory_bytes(s), may_be_zero=tables.aggregate.may_be_zero
)
