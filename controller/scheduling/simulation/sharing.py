"""Flows that share links fairly (max-min), at a moment in virtual time: their rates, and which finishes first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from heapq import heappop, heappush
from typing import Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from controller.common.errors import SchedulerError
from controller.network.algorithms.structures import NO_ENTRY, Heap
from controller.scheduling.simulation.kernels import sharing as kernels
from controller.scheduling.simulation.kernels.compiled import compiled
from controller.scheduling.simulation.kernels.structures import Flows, Links
from controller.scheduling.simulation.kernels.structures import Sharing as NativeSharing
from controller.scheduling.simulation.units import MOST_BITS, MOST_BPS, MOST_LINKS, ONE
from dataplane.native import pointer_to

_FIRST_ROOM: Final = 64
_FIRST_STRIDE: Final = 8


class Hop(NamedTuple):
    """A link that a flow crosses, and the part of the flow that does, 1 to `ONE`."""

    link: int
    share: int = ONE


@dataclass(frozen=True, slots=True)
class Finish:
    """The flow that finishes first, and when."""

    flow: int
    time_ns: int


class FairSharing(Protocol):
    """Flows over links. Rates apply from one `settle` to the next; flows without common links are independent.

    Rates are whole bit/s, rounded down; bits sent before a rate change are whole, rounded down, and finishing times are
    whole nanoseconds, rounded up: a finishing time is late by at most one bit's time for each change, never early.
    """

    @property
    def flows(self) -> int:
        """Number of flows."""
        ...

    def add(self, hops: Sequence[Hop], bits: int, now_ns: int) -> int:
        """Start a flow, and return its number; raise SchedulerError for one without links or with a repeated link."""
        ...

    def remove(self, flow: int) -> None:
        """Remove a flow, finished or not."""
        ...

    def set_capacity(self, link: int, capacity_bps: int) -> None:
        """Set a link's capacity from now on; at 0 its flows wait."""
        ...

    def settle(self, now_ns: int) -> int:
        """Update the rates of all affected flows, before time advances; return their number."""
        ...

    def rate_bps(self, flow: int) -> int:
        """Return a flow's rate since the last `settle`."""
        ...

    def first_to_finish(self) -> Finish | None:
        """Return which flow finishes first at the present rates, None if none does."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Flows by slot, and their hops; `kernels.structures.Flows` describes the columns."""

    active: npt.NDArray[np.uint32]
    place: npt.NDArray[np.uint32]
    hops: npt.NDArray[np.uint32]
    listed: npt.NDArray[np.uint32]
    rate_bps: npt.NDArray[np.int64]
    left_bits: npt.NDArray[np.int64]
    since_ns: npt.NDArray[np.int64]
    finish_ns: npt.NDArray[np.int64]
    seen: npt.NDArray[np.uint64]
    fixed: npt.NDArray[np.uint64]
    link: npt.NDArray[np.uint32]
    following: npt.NDArray[np.uint32]
    before: npt.NDArray[np.uint32]
    share: npt.NDArray[np.int64]

    @classmethod
    def empty(cls, room: int, stride: int) -> _Columns:
        """Return columns with room for this many flows and hops."""
        slots = [np.zeros(room, kind) for kind in (*[np.uint32] * 4, *[np.int64] * 4, *[np.uint64] * 2)]
        hops = [np.zeros(room * stride, kind) for kind in (*[np.uint32] * 3, np.int64)]
        return cls(*slots, *hops)

    def native(self, stride: int, count: int) -> Flows:
        """Return the columns as kernels see them."""
        pointers = {field.name: pointer_to(getattr(self, field.name)) for field in fields(self)}
        return Flows(stride=stride, count=count, **pointers)

    def grown(self, rooms: tuple[int, int], strides: tuple[int, int]) -> _Columns:
        """Return the same flows with more room (former, new) for flows and for hops, which renumbers the hops."""
        columns = _Columns.empty(rooms[1], strides[1])
        for field in fields(self):
            former, new = getattr(self, field.name), getattr(columns, field.name)
            if field.name in _OF_HOPS:
                former = renumbered(former, strides) if field.name in _NUMBERS else former
                new.reshape(rooms[1], strides[1])[: rooms[0], : strides[0]] = former.reshape(rooms[0], strides[0])
            else:
                new[: rooms[0]] = former
        return columns


_OF_HOPS: Final = ("link", "following", "before", "share")
_NUMBERS: Final = ("following", "before")


def renumbered(hops: npt.NDArray[np.uint32], strides: tuple[int, int]) -> npt.NDArray[np.uint32]:
    """Return hops' numbers for a different number of hops per flow; NO_ENTRY stays."""
    number: npt.NDArray[np.uint32] = hops // strides[0] * strides[1] + hops % strides[0]
    return np.where(hops == NO_ENTRY, np.uint32(NO_ENTRY), number).astype(np.uint32)


class Sharing:
    """`FairSharing` compiled to machine code; see `controller.scheduling.simulation.kernels.sharing`."""

    def __init__(self, capacity_bps: Sequence[int]) -> None:
        check_links(capacity_bps)
        self._links = len(capacity_bps)
        self._capacity = np.array(capacity_bps, np.int64)
        links, heap = self._links, Heap(keys=_u64(self._links), switches=_u32(self._links))
        native_links = Links(
            capacity_bps=pointer_to(self._capacity),
            seen=_u64(links),
            weight=_i64(links),
            left=_i64(links),
            listed=_u32(links),
            changed=_u32(links),
            is_changed=_u32(links),
        )
        self._first = np.full(self._links, NO_ENTRY, np.uint32)
        native_links.first = pointer_to(self._first)
        self._columns = _Columns.empty(_FIRST_ROOM, _FIRST_STRIDE)
        self._net = NativeSharing(links=native_links, heap=heap, flows=self._columns.native(_FIRST_STRIDE, 0))
        self._room, self._stride = _FIRST_ROOM, _FIRST_STRIDE
        self._free = list(range(_FIRST_ROOM))

    @property
    def flows(self) -> int:
        """Number of flows."""
        return self._room - len(self._free)

    def add(self, hops: Sequence[Hop], bits: int, now_ns: int) -> int:
        """Start a flow; return its number."""
        check_flow(hops, bits, self._links)
        if not self._free or len(hops) > self._stride:
            # Grow only what is short: slots for flows, or hops for each of them.
            self._grow(self._room * (1 if self._free else 2), max(self._stride, len(hops)))
        slot = heappop(self._free)
        start = slot * self._stride
        columns = self._columns
        columns.hops[slot] = len(hops)
        for index, (link, share) in enumerate(hops, start):
            columns.link[index], columns.share[index] = link, share
        compiled(kernels.add_flow)(self._net, slot, bits, now_ns)
        return slot

    def remove(self, flow: int) -> None:
        """Remove a flow."""
        compiled(kernels.remove_flow)(self._net, flow)
        heappush(self._free, flow)

    def set_capacity(self, link: int, capacity_bps: int) -> None:
        """Set the capacity of a link."""
        check_links([capacity_bps])
        compiled(kernels.set_capacity)(self._net, link, capacity_bps)

    def settle(self, now_ns: int) -> int:
        """Recompute rates where something has changed."""
        return int(compiled(kernels.settle)(self._net, now_ns))

    def rate_bps(self, flow: int) -> int:
        """Return a flow's rate."""
        return int(self._columns.rate_bps[flow])

    def first_to_finish(self) -> Finish | None:
        """Return which flow finishes first, and when."""
        slot = compiled(kernels.first_to_finish)(self._net)
        return None if slot == NO_ENTRY else Finish(slot, int(self._columns.finish_ns[slot]))

    def _grow(self, room: int, stride: int) -> None:
        count = int(self._net.flows.count)
        self._columns = self._columns.grown((self._room, room), (self._stride, stride))
        # Links' lists name hops by their numbers, which depend on the stride.
        self._first[:] = renumbered(self._first, (self._stride, stride))
        self._net.flows = self._columns.native(stride, count)
        for slot in range(self._room, room):
            heappush(self._free, slot)
        self._room, self._stride = room, stride


def check_links(capacity_bps: Iterable[int]) -> None:
    """Raise SchedulerError for links that are too many or too fast."""
    rates = list(capacity_bps)
    if len(rates) > MOST_LINKS:
        raise SchedulerError(f"{len(rates)} links; at most {MOST_LINKS}")
    if wrong := next((rate for rate in rates if not 0 <= rate <= MOST_BPS), None):
        raise SchedulerError(f"a link of {wrong} bit/s is not between 0 and {MOST_BPS}")


def check_flow(hops: Sequence[Hop], bits: int, links: int) -> None:
    """Raise SchedulerError for an invalid flow."""
    crossed = [link for link, _ in hops]
    if not hops or len(set(crossed)) != len(crossed) or not all(0 <= link < links for link in crossed):
        raise SchedulerError(f"invalid flow over links {crossed} of {links}")
    if not all(0 < share <= ONE for _, share in hops) or not 0 < bits <= MOST_BITS:
        raise SchedulerError(f"invalid flow of {bits} bits with shares {[share for _, share in hops]}")


def _u32(count: int) -> object:
    return pointer_to(np.zeros(max(count, 1), np.uint32))


def _u64(count: int) -> object:
    return pointer_to(np.zeros(max(count, 1), np.uint64))


def _i64(count: int) -> object:
    return pointer_to(np.zeros(max(count, 1), np.int64))
