"""Belady's rule judges evictions alone: given where tasks ran, which fetches could have been spared.

Belady, "A study of replacement algorithms for a virtual-storage computer", 1966. With objects of one size it is the
least that there can be; with several sizes it is a rule that is hard to beat.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, Protocol

from controller.learning.environment.values import System, Workload
from controller.learning.errors import LearningError

_NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Judged:
    """Misses of fast memories when tasks used data, and bytes evicted, in one run."""

    misses: int
    evicted_bytes: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """Evictions of the least recently used, and of what is not used for longest from now on, which is best.

    `is_least` says that objects have one size, so that nothing has fewer misses.
    """

    accesses: int
    lru: Judged
    best: Judged
    is_least: bool


def judge(system: System, workload: Workload, decisions: Sequence[tuple[int, int]]) -> Verdict:
    """Return the misses and evictions of decisions, (task, node) in their order, and their least possible ones.

    An object is in one place: when a node takes it, its previous node loses it. Raise LearningError for a task whose
    data does not fit into its node's fast memory.
    """
    accesses = _accesses(workload, decisions)
    following = _following(accesses)
    judged = []
    for cache_of in (_Lru, _Furthest):
        run = _Run(system, workload, cache_of)
        for index, (node, objects) in enumerate(accesses):
            run.use(node, objects, following[index])
        judged.append(Judged(run.misses, run.evicted_bytes))
    sizes = set(workload.object_bytes.tolist())
    return Verdict(sum(len(objects) for _, objects in accesses), judged[0], judged[1], len(sizes) == 1)


def _accesses(workload: Workload, decisions: Sequence[tuple[int, int]]) -> list[tuple[int, list[int]]]:
    starts, objects = workload.access_start.tolist(), workload.access_object.tolist()
    return [(node, objects[starts[task] : starts[task + 1]]) for task, node in decisions]


def _following(accesses: Sequence[tuple[int, list[int]]]) -> list[list[int]]:
    """Return the next use of each use of an object; never, if another node takes it by then."""
    later: dict[int, tuple[int, int]] = {}
    following: list[list[int]] = [[] for _ in accesses]
    for index in reversed(range(len(accesses))):
        node, objects = accesses[index]
        for number in objects:
            when, where = later.get(number, (_NEVER, node))
            following[index].append(when if where == node else _NEVER)
            later[number] = index, node
    return following


class _Cache(Protocol):
    """Contents of one node's fast memory, and its eviction order."""

    def use(self, number: int, following: int) -> None:
        """Record that an object is used, and when next."""
        ...

    def drop(self, number: int) -> None: ...

    def victim(self, kept: set[int]) -> int | None:
        """Return the next victim, but nothing of `kept`; None if nothing can go."""
        ...


class _Lru:
    def __init__(self) -> None:
        self._order: OrderedDict[int, None] = OrderedDict()

    def use(self, number: int, following: int) -> None:  # noqa: ARG002 - only the past counts
        self._order[number] = None
        self._order.move_to_end(number)

    def drop(self, number: int) -> None:
        del self._order[number]

    def victim(self, kept: set[int]) -> int | None:
        return next((number for number in self._order if number not in kept), None)


class _Furthest:
    def __init__(self) -> None:
        self._following: dict[int, int] = {}
        self._heap: list[tuple[int, int]] = []

    def use(self, number: int, following: int) -> None:
        self._following[number] = following
        heappush(self._heap, (-following, number))

    def drop(self, number: int) -> None:
        del self._following[number]

    def victim(self, kept: set[int]) -> int | None:
        aside, chosen = [], None
        while self._heap and chosen is None:
            entry = heappop(self._heap)
            if self._following.get(entry[1]) != -entry[0]:
                continue
            aside.append(entry)
            chosen = None if entry[1] in kept else entry[1]
        for entry in aside:
            heappush(self._heap, entry)
        return chosen


class _Run:
    """One run of all accesses, with fast memories that evict by one rule."""

    def __init__(self, system: System, workload: Workload, cache_of: type[_Lru] | type[_Furthest]) -> None:
        self._bytes: list[int] = workload.object_bytes.tolist()
        self._caches: list[_Cache] = [cache_of() for _ in system.nodes]
        self._free = [node.memories[0].capacity_bytes for node in system.nodes]
        self._where: dict[int, int] = {}
        self.misses = self.evicted_bytes = 0

    def use(self, node: int, objects: list[int], following: list[int]) -> None:
        """Put all objects into a node's fast memory together: as in the environment, first use those already there."""
        kept, missing = set(objects), []
        for number, when in zip(objects, following, strict=True):
            if self._where.get(number) == node:
                self._caches[node].use(number, when)
            else:
                missing.append((number, when))
        self.misses += len(missing)
        for number, when in missing:
            self._make_room(node, self._bytes[number], kept)
            self._take(number, node)
            self._caches[node].use(number, when)

    def _make_room(self, node: int, nbytes: int, kept: set[int]) -> None:
        while self._free[node] < nbytes:
            victim = self._caches[node].victim(kept)
            if victim is None:
                raise LearningError(f"data of a task does not fit into the fast memory of node {node}")
            self.evicted_bytes += self._bytes[victim]
            self._drop(victim)

    def _take(self, number: int, node: int) -> None:
        if number in self._where:
            self._drop(number)
        self._where[number] = node
        self._free[node] -= self._bytes[number]

    def _drop(self, number: int) -> None:
        node = self._where.pop(number)
        self._caches[node].drop(number)
        self._free[node] += self._bytes[number]
