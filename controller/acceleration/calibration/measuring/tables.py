"""Database operations that probe kernels do not cover: new columns, the first rows by a key, and full scans.

Run by DuckDB, over the tables of the probe kernels; outputs are checked against closed forms, as there.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from controller.probing.kernels.base import Array, Maker, Sizes, Value, relative_error
from controller.probing.kernels.duckdb_tables import Database
from controller.probing.kernels.tables import Table, columns_of, permuted

_WORD: Final = 8


class Rows(Table):
    """A table of a permuted key and multiples of it, and a query over it."""

    query: str = ""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__()
        self.rows, self.columns = sizes["rows"], columns_of(sizes["row_bytes"])
        keys = permuted(self.rows, seed)
        self._database = Database(t={f"c{column}": keys * (column + 1) for column in range(self.columns)})

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Run the query; the output is its columns."""
        self.take(inputs)
        return np.stack(self._database.columns(self.query))

    def close(self) -> None:
        """Drop the table."""
        self._database.close()


class Project(Rows):
    """Adds columns, each a multiple of the key plus two columns."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__(sizes, seed)
        self.expressions = sizes["expressions"]
        last = self.columns - 1
        formulas = (f"c0 * {index + 3} + c{index % self.columns} + c{last}" for index in range(self.expressions))
        self.query = f"SELECT {', '.join(formulas)} FROM t"  # noqa: S608 - only our own numbers

    def accuracy(self, output: Array) -> float:
        """Return the error of the sums of all new columns."""
        return error_of_sums(output, self.rows, self.columns, self.expressions)


class TopN(Rows):
    """The rows with the smallest keys, in order."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__(sizes, seed)
        self.kept = min(sizes["kept_rows"], self.rows)
        self.query = f"SELECT * FROM t ORDER BY c0 LIMIT {self.kept}"  # noqa: S608 - only our own number

    def accuracy(self, output: Array) -> float:
        """Return the error of all columns: keys are 0, 1, 2, ..."""
        if output.shape != (self.columns, self.kept):
            return math.inf
        return relative_error(output, np.outer(np.arange(1, self.columns + 1), np.arange(self.kept)))


class Scan(Rows):
    """All rows in storage order."""

    query = "SELECT * FROM t"

    def accuracy(self, output: Array) -> float:
        """Return the error of the sums of all columns."""
        if output.shape != (self.columns, self.rows):
            return math.inf
        keys = self.rows * (self.rows - 1) / 2
        return relative_error(output.sum(axis=1, dtype=np.float64), keys * np.arange(1, self.columns + 1))


def error_of_sums(output: Array, rows: int, columns: int, expressions: int) -> float:
    """Return the error of the sums of a projection's new columns; inf for a wrong number of columns or rows."""
    if output.shape != (expressions, rows):
        return math.inf
    weights = [index + 3 + index % columns + 1 + columns for index in range(expressions)]
    return relative_error(output.sum(axis=1, dtype=np.float64), np.array(weights) * (rows * (rows - 1) / 2))


def _bytes(s: Sizes) -> int:
    return _WORD * s["rows"] * (3 * columns_of(s["row_bytes"]) + 2 * s.get("expressions", 0) + 2)


project: Final = Maker(Project, _bytes)
top_n: Final = Maker(TopN, _bytes, may_be_zero=("kept_rows",))
table_scan: Final = Maker(Scan, _bytes)
