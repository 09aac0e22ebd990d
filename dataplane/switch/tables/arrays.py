"""Indirect counters and registers: arrays in memory that compiled code reads and writes too."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, MutableSequence, Sequence
from typing import overload

from dataplane.errors import EntryError, EntryFault
from dataplane.program.objects import CounterSpec, RegisterSpec
from dataplane.switch.tables.words import zeroed_words

WORD_BITS = 64
WORD_MASK = (1 << WORD_BITS) - 1


def word_count(width: int) -> int:
    """Return how many words hold `width` bits; zero bits take one, too, so that each value has a place."""
    return max(1, -(-width // WORD_BITS))


class CounterArray:
    """An indirect counter: packets and bytes for each index, modulo 2^64.

    `cells` are pairs (packets, bytes); `packets` and `bytes` are their columns.
    """

    def __init__(self, spec: CounterSpec) -> None:
        self.spec = spec
        self.cells = zeroed_words(2 * spec.size)
        self.packets, self.bytes = self.cells[0::2], self.cells[1::2]

    def count(self, index: int, nbytes: int) -> None:
        """Count one packet of `nbytes` bytes at `index`; as in bmv2, an index out of range counts nothing."""
        if 0 <= index < self.spec.size:
            self.cells[2 * index] = (self.cells[2 * index] + 1) & WORD_MASK
            self.cells[2 * index + 1] = (self.cells[2 * index + 1] + nbytes) & WORD_MASK

    def read(self, index: int) -> tuple[int, int]:
        """Return packets and bytes at `index`; raise EntryError if it is out of range."""
        self._check(index)
        return self.cells[2 * index], self.cells[2 * index + 1]

    def write(self, index: int, packets: int, nbytes: int) -> None:
        """Set both values at `index`; raise EntryError if it is out of range, or a value no word."""
        self._check(index)
        for value in (packets, nbytes):
            if not 0 <= value <= WORD_MASK:
                raise EntryError(EntryFault.INVALID, f"{value} does not fit {WORD_BITS} bits", where=self.spec.name)
        self.cells[2 * index], self.cells[2 * index + 1] = packets, nbytes

    def _check(self, index: int) -> None:
        if not 0 <= index < self.spec.size:
            raise EntryError(EntryFault.OUT_OF_RANGE, f"index {index} of {self.spec.size}", where=self.spec.name)


class RegisterCells(MutableSequence[int]):
    """A register whose cells fit one word each; equal to any sequence of the same values."""

    def __init__(self, size: int) -> None:
        self.words = zeroed_words(size)
        """The memory of the cells."""

    def __len__(self) -> int:
        return len(self.words)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self.words[index].tolist() if isinstance(index, slice) else self.words[index]

    @overload
    def __setitem__(self, index: int, value: int) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[int]) -> None: ...
    def __setitem__(self, index: int | slice, value: int | Iterable[int]) -> None:
        if isinstance(index, int) and isinstance(value, int):
            self.words[index] = value
        elif isinstance(index, slice) and not isinstance(value, int):
            self.words[index] = array("Q", value)

    def __delitem__(self, index: int | slice) -> None:
        raise TypeError("a register's size is fixed")

    def insert(self, index: int, value: int) -> None:  # noqa: ARG002 (the protocol's)
        """Refuse: a register's size is fixed."""
        raise TypeError("a register's size is fixed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence | array) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it changes


class WideCells(MutableSequence[int]):
    """A register whose cells take several words each, the low one first."""

    def __init__(self, size: int, width: int) -> None:
        self._size, self._stride = size, word_count(width)
        self.words = zeroed_words(self._stride * size)

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(self._size))]
        start = self._start(index)
        return int.from_bytes(self.words[start : start + self._stride].tobytes(), "little")

    @overload
    def __setitem__(self, index: int, value: int) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[int]) -> None: ...
    def __setitem__(self, index: int | slice, value: int | Iterable[int]) -> None:
        if isinstance(index, int) and isinstance(value, int):
            start = self._start(index)
            self.words[start : start + self._stride] = array("Q", value.to_bytes(8 * self._stride, "little"))
        elif isinstance(index, slice) and not isinstance(value, int):
            for position, item in zip(range(*index.indices(self._size)), value, strict=True):
                self[position] = item

    def __delitem__(self, index: int | slice) -> None:
        raise TypeError("a register's size is fixed")

    def insert(self, index: int, value: int) -> None:  # noqa: ARG002 (the protocol's)
        """Refuse: a register's size is fixed."""
        raise TypeError("a register's size is fixed")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence | array) and len(self) == len(other) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it changes

    def _start(self, index: int) -> int:
        return range(self._size)[index] * self._stride


Cells = RegisterCells | WideCells


def register_cells(spec: RegisterSpec) -> Cells:
    """Return a register's cells, all zero."""
    return RegisterCells(spec.size) if spec.width <= WORD_BITS else WideCells(spec.size, spec.width)
