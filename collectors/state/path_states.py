"""Flows' paths as columns: a snapshot of many flows costs little until their paths are read one by one."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass, fields
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, TypeVar

import numpy as np

from collectors.statistics.columns import UNKNOWN, Flags, Integers, Numbers
from collectors.values import FlowKey, PathState

Column = Integers | Numbers | Flags
T = TypeVar("T")

FIGURES: Final = tuple(field.name for field in fields(PathState)[2:])
"""Columns of figures in `PathState`'s order: all but the flow and its switches."""
FLOATS: Final = frozenset({"loss", "gap_variation"})
FLAGS: Final = frozenset({"is_young"})
OPTIONAL: Final = frozenset({"rate_bps", "delay_p50_ns", "delay_p99_ns", "loss", "gap_mean_ns"})
"""Figures that may be None: UNKNOWN in columns of integers, NaN in those of floats."""


@dataclass(frozen=True, slots=True, eq=False)
class PathColumns:
    """Flows' paths side by side; `src` and `dst` index `addresses`, `route` indexes `routes`.

    Addresses are packed, 4 bytes of IPv4 or 16 of IPv6, each once. `figures` has a column for each of `FIGURES`.
    """

    addresses: Sequence[bytes]
    routes: tuple[tuple[str, ...], ...]
    src: Integers
    dst: Integers
    protocol: Integers
    src_port: Integers
    dst_port: Integers
    route: Integers
    figures: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.route)

    def integers(self, figure: str) -> Integers:
        """Return a figure of every flow that is an integer; UNKNOWN where it is not known."""
        column: Integers = self.figures[figure].astype(np.int64, copy=False)
        return column

    def floats(self, figure: str) -> Numbers:
        """Return a figure of every flow that is a float; NaN where it is not known."""
        column: Numbers = self.figures[figure].astype(np.float64, copy=False)
        return column

    def flags(self, figure: str) -> Flags:
        """Return a truth value of every flow."""
        column: Flags = self.figures[figure].astype(np.bool_, copy=False)
        return column

    def flow_keys(self) -> Iterator[FlowKey]:
        """Yield the flows in order."""
        ends = [_address(packed) for packed in self.addresses]
        about = (column.tolist() for column in (self.protocol, self.src_port, self.dst_port))
        return map(FlowKey, _pick(ends, self.src), _pick(ends, self.dst), *about)

    def states(self) -> Iterator[tuple[FlowKey, PathState]]:
        """Yield the flows with their paths in order."""
        flows, ways = list(self.flow_keys()), _pick(self.routes, self.route)
        figures = (_values(name, self.figures[name]) for name in FIGURES)
        return zip(flows, map(PathState, flows, ways, *figures), strict=True)


class PathStates(Mapping[FlowKey, PathState]):
    """The paths of one snapshot, immutable. Single states are built on demand.

    `make` returns the columns; it is called at most once, on first access, in any thread.
    """

    def __init__(self, count: int, make: Callable[[], PathColumns]) -> None:
        self._count = count
        self._make: Callable[[], PathColumns] | None = make
        self._columns: PathColumns | None = None
        self._all: dict[FlowKey, PathState] | None = None

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[FlowKey]:
        return iter(self._made())

    def __getitem__(self, key: FlowKey) -> PathState:
        return self._made()[key]

    def __repr__(self) -> str:
        return repr(self._made())

    def items(self) -> ItemsView[FlowKey, PathState]:
        """Return every flow with its path."""
        return self._made().items()

    def values(self) -> ValuesView[PathState]:
        """Return every flow's path."""
        return self._made().values()

    @property
    def columns(self) -> PathColumns:
        """All paths side by side."""
        # In this order: another thread that makes the columns meanwhile leaves them before it drops `make`.
        make, columns = self._make, self._columns
        if columns is None:
            assert make is not None
            columns = self._columns = make()
            self._make = None
        return columns

    def _made(self) -> dict[FlowKey, PathState]:
        if self._all is None:
            self._all = dict(self.columns.states())
        return self._all


def columns_of(paths: Mapping[FlowKey, PathState]) -> PathColumns:
    """Return paths as columns: their existing ones, else built from single states."""
    if isinstance(paths, PathStates):
        return paths.columns
    flows, states = list(paths), list(paths.values())
    addresses: dict[bytes, int] = {}
    src, dst = ([addresses.setdefault(end.packed, len(addresses)) for end in ends] for ends in _ends(flows))
    routes: dict[tuple[str, ...], int] = {}
    route = [routes.setdefault(state.switches, len(routes)) for state in states]
    return PathColumns(
        list(addresses),
        tuple(routes),
        src=_integers(src),
        dst=_integers(dst),
        protocol=_integers([flow.protocol for flow in flows]),
        src_port=_integers([flow.src_port for flow in flows]),
        dst_port=_integers([flow.dst_port for flow in flows]),
        route=_integers(route),
        figures={name: _column(name, [getattr(state, name) for state in states]) for name in FIGURES},
    )


def _ends(flows: Sequence[FlowKey]) -> tuple[list[IPv4Address | IPv6Address], list[IPv4Address | IPv6Address]]:
    return [flow.src for flow in flows], [flow.dst for flow in flows]


def _address(packed: bytes) -> IPv4Address | IPv6Address:
    return IPv4Address(packed) if len(packed) == 4 else IPv6Address(packed)


def _pick(things: Sequence[T], places: Integers) -> list[T]:
    return list(map(things.__getitem__, places.tolist()))


def _integers(numbers: Sequence[int]) -> Integers:
    return np.array(numbers, np.int64)


def _column(name: str, values: Sequence[Any]) -> Column:
    """Return a figure's values as a column."""
    if name in FLAGS:
        return np.array(values, np.bool_)
    if name in FLOATS:
        return np.array([np.nan if value is None else value for value in values], np.float64)
    return _integers([UNKNOWN if value is None else value for value in values])


def _values(name: str, column: Column) -> list[Any]:
    """Return a column as Python's values."""
    values: list[Any] = column.tolist()
    if name in OPTIONAL:
        unknown = np.isnan(column) if name in FLOATS else column == UNKNOWN
        for index in np.flatnonzero(unknown).tolist():
            values[index] = None
    return values
