"""Operators and their times as columns: one array per figure, one element per operator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.acceleration.values import OUTPUT_SHARE, Growth, Times, Work

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
_BYTES_PER_GB: Final = 1e9


@dataclass(frozen=True, eq=False)
class Works:
    """Operators as columns, in the units of `Work`; construct with `Works.of`."""

    items: tuple[Work, ...]
    t: Floats
    d: Floats
    output: Floats
    """The given output, or the share of the input, or the groups."""
    other_t: Floats
    other_d: Floats
    merge_t: Floats
    skew: Floats
    rows_per_gb: Floats
    is_square: Flags
    is_sort: Flags
    is_grouped: Flags
    grows: Flags
    stays: Flags

    @classmethod
    def of(cls, items: Sequence[Work]) -> Works:
        """Return operators as columns."""
        growths = [work.growth for work in items]
        return cls(
            tuple(items),
            _floats([work.cpu_s_per_100mb for work in items]),
            _floats([work.input_gb for work in items]),
            _floats([_output_gb(work) for work in items]),
            _floats([_or(work.other_s_per_100mb, work.cpu_s_per_100mb) for work in items]),
            _floats([work.other_gb if work.growth is Growth.HASH_JOIN else 0.0 for work in items]),
            _floats([_or(work.merge_s_per_100mb, work.cpu_s_per_100mb) for work in items]),
            _floats([work.skew for work in items]),
            _floats([_BYTES_PER_GB / work.row_bytes for work in items]),
            np.array([growth is Growth.SQUARE for growth in growths], np.bool_),
            np.array([growth is Growth.SORT for growth in growths], np.bool_),
            np.array([growth is Growth.GROUPED for growth in growths], np.bool_),
            np.array([work.grows for work in items], np.bool_),
            np.array([work.stays for work in items], np.bool_),
        )

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def goes_in(self) -> Floats:
        """GB read by each machine, from both sides of a join."""
        return self.d + self.other_d

    @cached_property
    def has_sorts(self) -> bool:
        """True if any operator grows by n log n."""
        return bool(self.is_sort.any())

    @cached_property
    def has_squares(self) -> bool:
        """True if any operator grows by the square."""
        return bool(self.is_square.any())


@dataclass(frozen=True, eq=False)
class TimeColumns:
    """Seconds of operators on one device, in parts: the columns of `Times`."""

    compute_s: Floats
    aggregation_s: Floats
    transfer_s: Floats
    bus_s: Floats
    compression_s: Floats

    @cached_property
    def total_s(self) -> Floats:
        """All parts, one after the other."""
        return self.compute_s + self.aggregation_s + self.transfer_s + self.bus_s + self.compression_s

    @cached_property
    def rows(self) -> tuple[Times, ...]:
        """The parts of each operator."""
        parts = (self.compute_s, self.aggregation_s, self.transfer_s, self.bus_s, self.compression_s)
        return tuple(map(Times, *(part.tolist() for part in parts)))

    def __getitem__(self, row: int) -> Times:
        return self.rows[row]

    def __iter__(self) -> Iterator[Times]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.compute_s)


def _output_gb(work: Work) -> float:
    if work.output_gb is not None:
        return work.output_gb
    if work.growth is Growth.GROUPED and work.groups is not None:
        rows = work.input_gb * _BYTES_PER_GB / work.row_bytes
        return min(work.groups, rows) * work.group_bytes / _BYTES_PER_GB
    other_gb = work.other_gb if work.growth is Growth.HASH_JOIN else 0.0
    return OUTPUT_SHARE * (work.input_gb + other_gb)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _floats(values: list[float]) -> Floats:
    return np.array(values, np.float64)
