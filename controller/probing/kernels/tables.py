"""Database operations on rows of tables: sort, filter, join, aggregate; here by numpy, column by column.

Tables have a key and columns of 64 bit integers, as many as fill a row's bytes. Keys are a permutation known in closed
form, and columns follow from keys, so counts and sums of every answer are known.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from controller.probing.errors import ProbeKernelError
from controller.probing.kernels.base import Array, Maker, Sizes, Value, fold, relative_error

_WORD: Final = 8
_FACTOR: Final = 2_654_435_761
"""Knuth's multiplicative hash: odd, so that it permutes the numbers below any power of two."""
_LIFT: Final = 1 << 20


def columns_of(row_bytes: int) -> int:
    """Return the number of 64 bit columns of a row, the key among them."""
    return max(1, row_bytes // _WORD)


class Table:
    """A kernel over tables; its inputs are added to the first row's last column, and so to sums."""

    def __init__(self) -> None:
        self.lift = 0
        self._inputs: tuple[Value, ...] = ()

    def take(self, inputs: tuple[Value, ...]) -> bool:
        """Return whether the inputs have changed, and turn them into a whole number."""
        if inputs is self._inputs:
            return False
        self._inputs = inputs
        self.lift = int((fold(inputs) - 1.0) * _LIFT)
        return True

    def close(self) -> None:
        """Do nothing: there are no files and no servers."""


class Sort(Table):
    """Rows in order of their keys: only the keys if a row has nothing else, otherwise rows gathered by their order."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__()
        self._rows = sizes["rows"]
        self.keys = np.random.default_rng(seed).integers(0, 1 << 40, self._rows, dtype=np.int64)
        self.others = [self.keys * (index + 3) for index in range(columns_of(sizes["row_bytes"]) - 1)]
        self._first = int(self.keys[0])
        self._sum = int(self.keys.sum())

    def take(self, inputs: tuple[Value, ...]) -> bool:
        """Change the first row if the inputs have changed."""
        if not super().take(inputs):
            return False
        self.keys[0] = self._first + self.lift
        for index, other in enumerate(self.others):
            other[0] = self.keys[0] * (index + 3)
        return True

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Sort; the output are all columns, the key's first."""
        self.take(inputs)
        if not self.others:
            return np.sort(self.keys)[None, :]
        order = np.argsort(self.keys)
        return np.stack([self.keys[order], *(other[order] for other in self.others)])

    def accuracy(self, output: Array) -> float:
        """Return the part of the rows that are out of order, or have foreign columns; sums reveal lost ones."""
        if output.shape != (1 + len(self.others), self._rows):
            return math.inf
        keys = output[0]
        wrong = int(np.count_nonzero(keys[1:] < keys[:-1]))
        wrong += sum(int(np.count_nonzero(column != keys * (index + 3))) for index, column in enumerate(output[1:]))
        lost = relative_error(float(keys.sum()), float(self._sum + self.lift))
        return max(wrong / self._rows, lost)


class Filter(Table):
    """The rows whose key is below a bound; the output are all their columns."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__()
        rows, self.kept = sizes["rows"], sizes["kept_rows"]
        if self.kept > rows:
            raise ProbeKernelError(f"filter: cannot keep {self.kept} of {rows} rows")
        keys = permuted(rows, seed)
        self.table = np.stack([keys * (index + 1) for index in range(columns_of(sizes["row_bytes"]))])

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Test all keys, gather the rows that pass; the inputs replace the last kept row's last column."""
        self.take(inputs)
        rows: Array = self.table[:, self.table[0] < self.kept]
        if rows.size:
            rows[-1, -1] += self.lift
        return rows

    def accuracy(self, output: Array) -> float:
        """Return the error of the sums of all columns; inf for another number of rows."""
        if output.shape != (self.table.shape[0], self.kept):
            return math.inf
        total = self.kept * (self.kept - 1) // 2
        true = np.array([total * (index + 1) for index in range(output.shape[0])], dtype=np.float64)
        true[-1] += self.lift if self.kept else 0
        return relative_error(output.sum(axis=1).astype(np.float64), true)


class HashJoin(Table):
    """Pairs of rows of two tables with equal keys; the output are their number, and the sums of both sides' columns.

    The right side is put into buckets by a hash of its keys; each row of the left looks into its bucket.
    """

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__()
        self.plan = plan = JoinPlan(sizes)
        self.left = plan.left_keys(permuted(plan.left_rows, seed))
        self.right = plan.right_keys(permuted(plan.right_rows, seed + 1))
        self.left_columns = [self.left * factor for factor in range(2, columns_of(sizes["left_row_bytes"]) + 1)]
        self.right_columns = [self.right * factor for factor in range(2, columns_of(sizes["right_row_bytes"]) + 1)]
        self._weights = plan.weights(len(self.left_columns), len(self.right_columns))
        self._mask = (1 << max(1, (2 * plan.right_rows - 1).bit_length())) - 1

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Join, gather the pairs' columns, add them up; the inputs are added to the sum."""
        self.take(inputs)
        buckets = self._hash(self.right)
        order = np.argsort(buckets, kind="stable")
        counts = np.bincount(buckets, minlength=self._mask + 1)
        starts = np.cumsum(counts) - counts
        looked = self._hash(self.left)
        left = np.repeat(np.arange(looked.size), counts[looked])
        begins = np.cumsum(counts[looked]) - counts[looked]
        right = order[np.arange(left.size) - np.repeat(begins - starts[looked], counts[looked])]
        same = self.left[left] == self.right[right]
        left, right = left[same], right[same]
        keys = int(self.left[left].sum())
        others = sum(int(column[left].sum()) for column in self.left_columns)
        others += sum(int(column[right].sum()) for column in self.right_columns)
        return np.array([left.size, keys + others + self.lift], dtype=np.int64)

    def accuracy(self, output: Array) -> float:
        """Return the error of count and sum, each relative to its own value."""
        return self.plan.error(output, self._weights, self.lift)

    def _hash(self, keys: Array) -> Array:
        buckets: Array = (keys.astype(np.uint64) * np.uint64(_FACTOR) >> np.uint64(7)).astype(np.int64) & self._mask
        return buckets


class Aggregate(Table):
    """A sum for each group of rows; a row's value is its key, its group the key modulo their number."""

    def __init__(self, sizes: Sizes, seed: int) -> None:
        super().__init__()
        rows, self._groups = sizes["rows"], sizes["groups"]
        if self._groups > rows:
            raise ProbeKernelError(f"aggregate: {rows} rows cannot form {self._groups} groups")
        keys = permuted(rows, seed)
        self.group = keys % self._groups
        values = max(1, columns_of(sizes["row_bytes"]) - 1)
        self.columns = [keys * float(index + 1) for index in range(values)]
        self.zero = int(np.flatnonzero(keys == 0)[0])
        self._true = np.stack([group_sums(rows, self._groups) * (index + 1) for index in range(values)])

    def run(self, inputs: tuple[Value, ...]) -> Array:
        """Add up all columns by group; the inputs are the value of the row whose key is 0."""
        if self.take(inputs):
            for column in self.columns:
                column[self.zero] = self.lift
        return np.stack([np.bincount(self.group, column, self._groups) for column in self.columns])

    def accuracy(self, output: Array) -> float:
        """Return the error of all sums."""
        true = self._true.copy()
        true[:, 0] += self.lift
        return relative_error(output, true)


class JoinPlan:
    """Keys of two tables of which exactly a given number of pairs match.

    Each matching key stands on the left once and on the right `copies` times, except for one that makes up the rest.
    All other rows have keys found only on their side.
    """

    def __init__(self, sizes: Sizes) -> None:
        self.left_rows, self.right_rows, self.out_rows = (sizes[f"{side}_rows"] for side in ("left", "right", "out"))
        self.copies = max(1, -(-self.out_rows // self.left_rows))
        self.matching, self.rest = divmod(self.out_rows, self.copies)
        # With as many left rows as right ones each finds its own; with more, several find the same.
        self.keys = min((self.right_rows - self.rest) // self.copies, max(self.matching, 1))
        if self.keys < 1 or self.matching + bool(self.rest) > self.left_rows:
            raise ProbeKernelError(
                f"join: {self.left_rows} and {self.right_rows} rows cannot be matched into {self.out_rows} pairs"
            )

    def left_keys(self, order: Array) -> Array:
        """Return the left side's keys, from a permutation of its row numbers."""
        keys = np.where(order < self.matching, order % self.keys, -1 - order)
        if self.rest:
            keys[order == self.matching] = self.keys
        return keys

    def right_keys(self, order: Array) -> Array:
        """Return the right side's keys; those without a match are larger than any on the left."""
        used = self.keys * self.copies
        keys = np.where(order < used, order // self.copies, self.keys + 1 + order)
        if self.rest:
            keys[(order >= used) & (order < used + self.rest)] = self.keys
        return keys

    def weights(self, left_columns: int, right_columns: int) -> int:
        """Return the ratio of the sum of pairs' columns to that of their keys: columns are 2, 3, ... times the key."""
        return 1 + sum(range(2, left_columns + 2)) + sum(range(2, right_columns + 2))

    def error(self, output: Array, weights: int, lift: int) -> float:
        """Return the error of an answer's count and sum, each relative to its own value."""
        if output.shape != (2,):
            return math.inf
        whole, part = divmod(self.matching, self.keys)
        keys = self.copies * (whole * (self.keys * (self.keys - 1) // 2) + part * (part - 1) // 2)
        true = weights * (keys + self.rest * self.keys) + lift
        return max(relative_error(float(output[0]), self.out_rows), relative_error(float(output[1]), float(true)))


def permuted(rows: int, seed: int) -> Array:
    """Return the numbers below `rows` in a pseudo-random order."""
    size = 1 << max(1, (rows - 1).bit_length())
    start = (seed * 40_503 + 12_345) % size
    permutation = (np.arange(size, dtype=np.uint64) * np.uint64(_FACTOR) + np.uint64(start)) & np.uint64(size - 1)
    # The product's low bits count up: exchanging halves puts the high ones in front.
    half = np.uint64(size.bit_length() // 2)
    mixed = permutation ^ (permutation >> half)
    kept: Array = mixed[mixed < np.uint64(rows)].astype(np.int64)
    return kept


def group_sums(rows: int, groups: int) -> Array:
    """Return for each group the sum of the numbers below `rows` that equal it modulo the number of groups."""
    group = np.arange(groups, dtype=np.int64)
    count = (rows - 1 - group) // groups + 1
    sums: Array = (count * group + groups * (count * (count - 1) // 2)).astype(np.float64)
    return sums


def _sort_bytes(s: Sizes) -> int:
    return _WORD * s["rows"] * (2 * columns_of(s["row_bytes"]) + 2)


def _join_bytes(s: Sizes) -> int:
    left = s["left_rows"] * (columns_of(s["left_row_bytes"]) + 4)
    right = s["right_rows"] * (columns_of(s["right_row_bytes"]) + 6)
    return _WORD * (left + right + 6 * s["out_rows"])


sort: Final = Maker(Sort, _sort_bytes)
filter_scan: Final = Maker(
    Filter,
    lambda s: _WORD * (s["rows"] + s["kept_rows"]) * (columns_of(s["row_bytes"]) + 1),
    may_be_zero=("kept_rows", "row_bytes"),
)
hash_join: Final = Maker(
    HashJoin, _join_bytes, may_be_zero=("out_rows", "out_row_bytes", "left_row_bytes", "right_row_bytes")
)
aggregate: Final = Maker(
    Aggregate,
    lambda s: _WORD * (s["rows"] * (columns_of(s["row_bytes"]) + 2) + s["groups"] * 4),
    may_be_zero=("row_bytes", "group_bytes"),
)
