"""The flows that the path server manages, numbered in the order of their admission."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import numpy as np

from controller.network.algorithms.link_table import Flags, Longs
from controller.network.intents import FlowSpec
from controller.network.paths.deciding.graph import Network
from controller.network.paths.deciding.located import FlowNames
from controller.network.paths.deciding.path_book import NOWHERE, PathBook

_NOT_MANAGED: Final = -1
_REMEMBERED: Final = 3
"""Columns of codes whose numbers are kept: a round asks several times, and the next one mostly for the same."""


class ManagedFlows:
    """Flows by number, and when each was last seen; when a flow is removed, those behind it move up.

    `code_of` returns a flow's code as in `SeenFlows`.
    """

    def __init__(self, network: Network, code_of: Callable[[FlowSpec], int]) -> None:
        self._network, self._code_of = network, code_of
        self.names: list[FlowSpec] = []
        self.seen_ns: Longs = np.zeros(0, np.int64)
        self._number: dict[FlowSpec, int] = {}
        self._by_code: dict[int, int] = {}
        self._codes: tuple[Longs, Longs] | None = None
        self._numbered: tuple[tuple[Longs, Longs], ...] = ()
        self._base: tuple[PathBook, list[tuple[int, int, int, bool]]] = network.book, []
        self._columns: tuple[Longs, Longs, Longs, Flags] | None = None
        self._kept: tuple[Flags, FlowNames] | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, flow: FlowSpec) -> bool:
        return flow in self._number

    def __iter__(self) -> Iterator[FlowSpec]:
        return iter(self.names)

    def add(self, flows: Iterable[FlowSpec], now_ns: int) -> None:
        """Manage flows from now on; managed ones stay as they are."""
        new = [flow for flow in dict.fromkeys(flows) if flow not in self._number]
        if not new:
            return
        for flow in new:
            self._number[flow] = self._by_code[self._code_of(flow)] = len(self.names)
            self.names.append(flow)
        self.seen_ns = np.append(self.seen_ns, np.full(len(new), now_ns))
        self._forget()

    def remove(self, gone: Flags) -> None:
        """Stop managing some flows."""
        self.names = [name for name, leaves in zip(self.names, gone.tolist(), strict=True) if not leaves]
        self.seen_ns = self.seen_ns[~gone]
        self._number = {name: number for number, name in enumerate(self.names)}
        self._by_code = {self._code_of(name): number for number, name in enumerate(self.names)}
        self._base = self._base[0], []
        self._forget()

    def _forget(self) -> None:
        """Forget all that other flows would make wrong."""
        self._columns = self._kept = self._codes = None
        self._numbered = ()

    def discard(self, flow: FlowSpec) -> None:
        """Stop managing a flow, if it is managed."""
        if flow in self._number:
            self.remove(np.arange(len(self.names)) == self._number[flow])

    def number(self, flow: FlowSpec) -> int | None:
        """Return a flow's number, None if it is not managed."""
        return self._number.get(flow)

    def numbers(self, codes: Longs) -> Longs:
        """Return the numbers of flows of these codes, -1 for unmanaged ones; neither column may be changed after."""
        for known, numbers in self._numbered:
            if known is codes:
                return numbers
        if self._codes is None:
            own = np.fromiter(self._by_code.keys(), np.int64, len(self._by_code))
            order = np.argsort(own)
            self._codes = own[order], np.fromiter(self._by_code.values(), np.int64, len(own))[order]
        own, numbers = self._codes
        if not len(own):
            return np.full(len(codes), _NOT_MANAGED, np.int64)
        places = np.minimum(np.searchsorted(own, codes), len(own) - 1)
        found: Longs = np.where(own[places] == codes, numbers[places], _NOT_MANAGED)
        self._numbered = ((codes, found), *self._numbered)[:_REMEMBERED]
        return found

    def among(self, flows: Iterable[FlowSpec]) -> Iterator[tuple[int, FlowSpec]]:
        """Yield the numbers of the managed ones among some flows."""
        for flow in flows:
            number = self._number.get(flow)
            if number is not None:
                yield number, flow

    def ends(self, book: PathBook) -> tuple[Longs, Longs, Longs, Flags]:
        """Return the switches at both ends of each flow, its first base path, and whether that is the only one."""
        if self._base[0] is not book:
            self._base, self._columns = (book, []), None
        if self._columns is None:
            known_ends = self._base[1]
            known_ends += [self._end(book, flow) for flow in self.names[len(known_ends) :]]
            src, dst, base = (np.array([row[column] for row in known_ends], np.int64) for column in range(3))
            self._columns = src, dst, base, np.array([row[3] for row in known_ends], np.bool_)
        return self._columns

    def _end(self, book: PathBook, flow: FlowSpec) -> tuple[int, int, int, bool]:
        ends = self._network.ends(flow.src_host, flow.dst_host)
        src, dst = (self._network.table.switch_number[name] for name in ends)
        base = self._network.base(*ends)
        return (src, dst, NOWHERE, False) if base is None else (src, dst, book.number(base[0]), base[1])

    def kept(self, keep: Flags) -> FlowNames:
        """Return the names of some of the flows; the same ones are the same object until flows are added or removed."""
        if self._kept is None or not np.array_equal(self._kept[0], keep):
            names = [name for name, stays in zip(self.names, keep.tolist(), strict=True) if stays]
            self._kept = keep, FlowNames(names)
        return self._kept[1]
