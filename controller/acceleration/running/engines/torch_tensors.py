"""torch engine: operators over numeric columns, as tensors on a processor or a GPU; the numpy engine is its twin.

With a GPU, tables stay in the host's memory: each step moves its input over the bus and its result back, as the model
assumes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import torch

from controller.acceleration.running.engines.numpy_arrays import check_sum, columns_of, operator_table
from controller.acceleration.running.errors import RunError
from controller.acceleration.running.operators import COUNT
from controller.acceleration.running.values import Operator, OperatorKind, StepRun

Tensors = dict[str, Any]


class TorchBackend:
    """Computes an operator on a device; merges apply the operator itself to partial results."""

    def __init__(self, operator: Operator, device: str, threads: int) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise RunError("torch-cuda: torch finds no GPU")
        torch.set_num_threads(threads)
        self._operator, self._device = operator, device
        self._tables: dict[str, Tensors] = {}

    def load(self, name: str, table: pa.Table) -> None:
        """Store a table's columns as tensors in the host's memory."""
        self._tables[name] = _tensors(table)

    def partial(self) -> pa.Table:
        """Return the result on this shard."""
        operator = self._operator
        data = self._moved(self._tables[operator_table(operator, self._tables)])
        match operator.kind:
            case OperatorKind.FILTER:
                kept = torch.nonzero(data[operator.column] < operator.below).flatten()
                return _table({name: values[kept] for name, values in data.items()})
            case OperatorKind.AGGREGATE:
                rows = len(next(iter(data.values()), ()))
                ones = torch.ones(rows, dtype=torch.int64, device=self._device)
                return _grouped(operator, data, {name: data[name] for name in operator.sums} | {COUNT: ones})
            case OperatorKind.JOIN:
                return _joined(operator.column, data, self._moved(self._tables[operator.other]))
            case OperatorKind.SORT:
                return _sorted(operator, data)

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge partial results; rows that are only concatenated never leave the host."""
        if self._operator.kind in {OperatorKind.FILTER, OperatorKind.JOIN}:
            return pa.concat_tables(parts).combine_chunks()
        data = self._moved(_tensors(pa.concat_tables(parts)))
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
        """Do nothing: a torch call cannot be cancelled; its caller has a deadline."""

    def _moved(self, columns: Tensors) -> Tensors:
        return {name: values.to(self._device) for name, values in columns.items()}


def _tensors(table: pa.Table) -> Tensors:
    # Tensors need writable memory, which Arrow's is not.
    return {
        name: torch.from_numpy(values if values.flags.writeable else values.copy())
        for name, values in columns_of(table).items()
    }


def _table(columns: Tensors) -> pa.Table:
    return pa.table({name: pa.array(values.cpu().numpy()) for name, values in columns.items()})


def _grouped(operator: Operator, data: Tensors, values: Tensors) -> pa.Table:
    """Sum by groups; the groups are returned in order."""
    wide = {name: column if column.is_floating_point() else column.long() for name, column in values.items()}
    for name, column in wide.items():
        if not column.is_floating_point() and len(column):
            check_sum(name, max(abs(int(column.min())), abs(int(column.max()))), len(column))
    if not operator.column:
        return _table({name: column.sum(0, keepdim=True) for name, column in wide.items()})
    keys, places = torch.unique(data[operator.column], sorted=True, return_inverse=True)
    sums = {name: torch.zeros(len(keys), dtype=column.dtype, device=column.device).index_add_(0, places, column)
            for name, column in wide.items()}  # fmt: skip
    return _table({operator.column: keys} | sums)


def _joined(key: str, data: Tensors, other: Tensors) -> pa.Table:
    """Join each row with the other side's rows of the same key, by a search in the other side's sorted keys."""
    keys, order = torch.sort(other[key], stable=True)
    wanted = data[key].to(keys.dtype) if data[key].dtype != keys.dtype else data[key]
    first = torch.searchsorted(keys, wanted, side="left")
    counts = torch.searchsorted(keys, wanted, side="right") - first
    left = torch.repeat_interleave(torch.arange(len(counts), device=counts.device), counts)
    begun = torch.cumsum(counts, 0) - counts
    inside = torch.arange(len(left), device=left.device) - begun[left]
    right = order[first[left] + inside]
    columns = {name: values[left] for name, values in data.items()}
    return _table(columns | {name: values[right] for name, values in other.items() if name != key})


def _sorted(operator: Operator, data: Tensors) -> pa.Table:
    order = torch.sort(data[operator.column], stable=True).indices
    order = order[: operator.limit] if operator.limit else order
    return _table({name: values[order] for name, values in data.items()})
