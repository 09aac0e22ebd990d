"""Filter, project, join, aggregate and sort by PyTorch, on processors and GPUs, columns in the device's memory.

Data and expected results are those of the kernels by numpy and DuckDB. The join sorts the smaller side's keys and looks
up the other side's keys in them, as torch has no hash table. A run on a GPU ends when the GPU has finished.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from controller.acceleration.calibration.measuring import tables as more
from controller.probing.errors import ProbeKernelError
from controller.probing.kernels import tables
from controller.probing.kernels.base import Array, Maker, Sizes, Value
from controller.probing.values import Prepared


class OnTorch:
    """Columns on a device."""

    def __init__(self, device: str) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise ProbeKernelError("torch finds no GPU")
        self._device = torch.device(device)

    def moved(self, array: Array) -> Any:  # noqa: ANN401 - a tensor
        """Return an array as a tensor on the device."""
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def ended(self, output: Any) -> Any:  # noqa: ANN401 - a tensor
        """Return an output once the device has computed it."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        return output


class Filter(OnTorch):
    """The rows whose key is below a bound."""

    def __init__(self, device: str, sizes: Sizes, seed: int) -> None:
        super().__init__(device)
        self._twin = tables.Filter(sizes, seed)
        self._table = self.moved(self._twin.table)

    def run(self, inputs: tuple[Value, ...]) -> Any:  # noqa: ANN401 - a tensor
        """Test all keys and gather the rows that pass."""
        self._twin.take(inputs)
        return self.ended(self._table[:, self._table[0] < self._twin.kept])

    def accuracy(self, output: Any) -> float:  # noqa: ANN401 - a tensor
        """Return the error that the twin reports."""
        return self._twin.accuracy(output.cpu().numpy())

    def close(self) -> None:
        """Do nothing: tensors are freed with the kernel."""


class Project(OnTorch):
    """Adds columns, each a multiple of the key plus two columns."""

    def __init__(self, device: str, sizes: Sizes, seed: int) -> None:
        super().__init__(device)
        self._rows, self._expressions = sizes["rows"], sizes["expressions"]
        keys, many = tables.permuted(self._rows, seed), tables.columns_of(sizes["row_bytes"])
        self._columns = [self.moved(keys * (index + 1)) for index in range(many)]

    def run(self, inputs: tuple[Value, ...]) -> Any:  # noqa: ANN401 - a tensor
        """Compute all formulas."""
        del inputs
        first, last, many = self._columns[0], self._columns[-1], len(self._columns)
        columns = [first * (index + 3) + self._columns[index % many] + last for index in range(self._expressions)]
        return self.ended(torch.stack(columns))

    def accuracy(self, output: Any) -> float:  # noqa: ANN401 - a tensor
        """Return the error of the sums of all new columns."""
        return more.error_of_sums(output.cpu().numpy(), self._rows, len(self._columns), self._expressions)

    def close(self) -> None:
        """Do nothing: tensors are freed with the kernel."""


class Join(OnTorch):
    """Pairs of rows with equal keys, counted, and the sums of all their columns."""

    def __init__(self, device: str, sizes: Sizes, seed: int) -> None:
        super().__init__(device)
        self._twin = twin = tables.HashJoin(sizes, seed)
        self._left = [self.moved(array) for array in (twin.left, *twin.left_columns)]
        self._right = [self.moved(array) for array in (twin.right, *twin.right_columns)]

    def run(self, inputs: tuple[Value, ...]) -> Any:  # noqa: ANN401 - a tensor
        """Sort the right keys, look up the left ones, gather the pairs' columns, and sum them."""
        self._twin.take(inputs)
        keys, order = torch.sort(self._right[0])
        begins = torch.searchsorted(keys, self._left[0])
        counts = torch.searchsorted(keys, self._left[0], right=True) - begins
        left = torch.repeat_interleave(counts)
        inside = torch.arange(left.numel(), device=left.device) - (counts.cumsum(0) - counts)[left]
        right = order[begins[left] + inside]
        total = sum((column[left].sum() for column in self._left), torch.zeros((), dtype=torch.int64).to(left.device))
        total = sum((column[right].sum() for column in self._right[1:]), total)
        return self.ended(torch.stack([torch.tensor(left.numel(), device=left.device), total + self._twin.lift]))

    def accuracy(self, output: Any) -> float:  # noqa: ANN401 - a tensor
        """Return the error that the twin reports."""
        return self._twin.accuracy(output.cpu().numpy())

    def close(self) -> None:
        """Do nothing: tensors are freed with the kernel."""


class Aggregate(OnTorch):
    """A sum for each group of rows."""

    def __init__(self, device: str, sizes: Sizes, seed: int) -> None:
        super().__init__(device)
        self._twin = tables.Aggregate(sizes, seed)
        self._groups = sizes["groups"]
        self._group = self.moved(self._twin.group)
        self._columns = [self.moved(column) for column in self._twin.columns]

    def run(self, inputs: tuple[Value, ...]) -> Any:  # noqa: ANN401 - a tensor
        """Sum all columns by group."""
        if self._twin.take(inputs):
            for column in self._columns:
                column[self._twin.zero] = float(self._twin.lift)
        sums = [torch.zeros(self._groups, dtype=column.dtype, device=column.device) for column in self._columns]
        return self.ended(
            torch.stack(
                [into.index_add_(0, self._group, column) for into, column in zip(sums, self._columns, strict=True)]
            )
        )

    def accuracy(self, output: Any) -> float:  # noqa: ANN401 - a tensor
        """Return the error that the twin reports."""
        return self._twin.accuracy(output.cpu().numpy())

    def close(self) -> None:
        """Do nothing: tensors are freed with the kernel."""


class Sort(OnTorch):
    """Rows with all columns, in order of their keys."""

    def __init__(self, device: str, sizes: Sizes, seed: int) -> None:
        super().__init__(device)
        self._twin = tables.Sort(sizes, seed)
        self._columns = [self.moved(array) for array in (self._twin.keys, *self._twin.others)]

    def run(self, inputs: tuple[Value, ...]) -> Any:  # noqa: ANN401 - a tensor
        """Sort the keys, gather the rest by their order."""
        self._twin.take(inputs)
        keys, order = torch.sort(self._columns[0])
        return self.ended(torch.stack([keys, *(column[order] for column in self._columns[1:])]))

    def accuracy(self, output: Any) -> float:  # noqa: ANN401 - a tensor
        """Return the error that the twin reports."""
        return self._twin.accuracy(output.cpu().numpy())

    def close(self) -> None:
        """Do nothing: tensors are freed with the kernel."""


_KERNELS: Final[dict[str, tuple[Callable[[str, Sizes, int], Prepared], Maker]]] = {
    "filter": (Filter, tables.filter_scan),
    "project": (Project, more.project),
    "join": (Join, tables.hash_join),
    "aggregate": (Aggregate, tables.aggregate),
    "sort": (Sort, tables.sort),
}
MAKERS: Final = {
    f"{name}_{device}": Maker(partial(kernel, device), of.needs_bytes, of.may_be_zero, of.optional)
    for name, (kernel, of) in _KERNELS.items()
    for device in ("cpu", "cuda")
}


def __getattr__(name: str) -> Maker:
    """Return a factory by its entry-point name: KERNEL_DEVICE."""
    try:
        return MAKERS[name]
    except KeyError:
        raise AttributeError(name) from None
