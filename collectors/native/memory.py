"""Zeroed memory for kernels, of which only touched pages use memory."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dataplane.native import Array, sizeof

_HUGE_FROM = 4 << 20


def address_in(numbers: NDArray[Any]) -> int:
    """Return the address of an array's data: like its `ctypes.data`, which takes two or three times as long."""
    if numbers.flags.writeable and numbers.size:
        return ctypes.addressof(ctypes.c_char.from_buffer(numbers))  # type: ignore[arg-type]  # arrays are buffers
    return int(numbers.ctypes.data)


class CellMemory:
    """Cells of one kind side by side: for kernels a pointer, for Python an array of their bytes.

    `huge` asks for large pages, which make a big table that is touched all over quicker.
    """

    def __init__(self, kind: type[Any], count: int, *, huge: bool = False) -> None:
        self.nbytes = max(count, 1) * sizeof(kind)
        self._map = mmap.mmap(-1, self.nbytes)
        if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux's
            with contextlib.suppress(OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE if huge and self.nbytes >= _HUGE_FROM else mmap.MADV_NOHUGEPAGE)
        start = ctypes.c_char.from_buffer(self._map)
        self.pointer: Array[Any] = Array(kind, ctypes.addressof(start), (self._map, start))

    def rows(self, dtype: DTypeLike) -> NDArray[Any]:
        """Return the cells as an array of a numpy type."""
        view: NDArray[Any] = np.frombuffer(self._map, np.dtype(dtype))
        return view
