"""Flows with their present paths as columns, which read as assignments by flow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.network.algorithms.link_table import Flags, Longs
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.decide import Assignment, Part, flow_order
from controller.network.paths.deciding.path_book import Path, PathBook

Floats = npt.NDArray[np.float64]

UNKNOWN: Final = -1
"""Stands for None: an unknown rate, or the time of a move that never was."""


class FlowNames:
    """Managed flows in the order of their admission; the same flows have the same object."""

    def __init__(self, names: Sequence[FlowSpec]) -> None:
        self.names = tuple(names)

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def number(self) -> Mapping[FlowSpec, int]:
        """Each flow's position."""
        return {name: index for index, name in enumerate(self.names)}

    @cached_property
    def order(self) -> Longs:
        """The positions in order of flow."""
        keys = [flow_order(name) for name in self.names]
        return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Parts of flows whose 5-tuples are spread over several paths, those of a flow side by side, in order of flow."""

    flow: Longs
    path: Longs
    rate_bps: Floats
    variance: Floats


NO_PARTS: Final = Parts(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0), np.zeros(0))


@dataclass(frozen=True, slots=True, eq=False)
class LocatedFlows(Mapping[FlowSpec, Assignment]):
    """Flows with the numbers of their paths in `book`, and the other fields of `Assignment`; UNKNOWN for None.

    Single assignments are made when they are asked for.
    """

    flows: FlowNames
    book: PathBook
    path: Longs
    since_ns: Longs
    rate_bps: Longs
    packet_bytes: Longs
    measured_bytes: Longs
    past_bps: Longs
    uncertain_bps: Longs
    pinned: Flags
    parts: Parts = NO_PARTS

    @classmethod
    def of(cls, book: PathBook, current: Mapping[FlowSpec, Assignment]) -> LocatedFlows:
        """Return assignments as columns: their existing ones, else built from single ones."""
        if isinstance(current, cls):
            return current
        all_ = list(current.values())
        parts = [(index, part) for index, assignment in enumerate(all_) for part in assignment.parts]
        return cls(
            FlowNames(tuple(current)),
            book,
            _longs([book.number(assignment.path) for assignment in all_]),
            since_ns=_longs([assignment.since_ns for assignment in all_]),
            rate_bps=_longs([assignment.rate_bps for assignment in all_]),
            packet_bytes=_longs([assignment.packet_bytes for assignment in all_]),
            measured_bytes=_longs([assignment.measured_bytes for assignment in all_]),
            past_bps=_longs([assignment.past_bps for assignment in all_]),
            uncertain_bps=_longs([assignment.uncertain_bps for assignment in all_]),
            pinned=np.array([assignment.pinned for assignment in all_], np.bool_),
            parts=Parts(
                _longs([index for index, _ in parts]),
                _longs([book.number(part.path) for _, part in parts]),
                np.array([part.rate_bps for _, part in parts], np.float64),
                np.array([part.variance for _, part in parts], np.float64),
            ),
        )

    def __len__(self) -> int:
        return len(self.flows)

    def __iter__(self) -> Iterator[FlowSpec]:
        return iter(self.flows.names)

    def __contains__(self, flow: object) -> bool:
        return flow in self.flows.number

    def __getitem__(self, flow: FlowSpec) -> Assignment:
        index = self.flows.number[flow]
        first, last = np.searchsorted(self.parts.flow, (index, index + 1)).tolist()
        parts = (
            Part(
                self.book.paths[self.parts.path[row]], float(self.parts.rate_bps[row]), float(self.parts.variance[row])
            )
            for row in range(first, last)
        )
        return Assignment(
            self.book.paths[self.path[index]],
            _maybe(self.since_ns[index]),
            _maybe(self.rate_bps[index]),
            _maybe(self.packet_bytes[index]),
            _maybe(self.measured_bytes[index]),
            int(self.past_bps[index]),
            _maybe(self.uncertain_bps[index]),
            tuple(parts),
            bool(self.pinned[index]),
        )

    def paths(self) -> list[Path]:
        """Return the paths of all flows, each once."""
        return [self.book.paths[number] for number in np.unique(self.path).tolist()]

    def on_links(self, rows: Flags) -> dict[FlowSpec, Assignment]:
        """Return the flows whose paths cross any of these links."""
        numbers = np.unique(self.path)
        links, hops = self.book.rows.links(numbers)
        hit = np.zeros(len(self.book), np.bool_)
        hit[np.repeat(numbers, hops)[rows[links]]] = True
        return {name: self[name] for name in map(self.flows.names.__getitem__, np.flatnonzero(hit[self.path]).tolist())}


def _longs(values: Sequence[int | None]) -> Longs:
    return np.array([UNKNOWN if value is None else value for value in values], np.int64)


def _maybe(number: np.int64) -> int | None:
    return None if number == UNKNOWN else int(number)
