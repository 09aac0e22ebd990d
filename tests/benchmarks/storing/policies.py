"""Cache hit counts on the same requests: the controller's decision against classic policies."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from controller.network.content.settings import StoreSettings
from controller.network.content.switch_store import Generations, SwitchStore
from dataplane.store.names import HotName, Segment
from tests.reference.sketch import Sketch

_PRODUCER = 1
_MULTIPLIER = 0x9E3779B97F4A7C15F39CC0605CEDC835
INTERVAL_NS = 1_000_000_000


class Policy(Protocol):
    """Something that has some names; `ask` says whether it has this one now."""

    def ask(self, name: int) -> bool:
        """Take a request."""
        ...


class LeastRecent:
    """LRU: every requested name enters in place of the least recently requested."""

    def __init__(self, cells: int) -> None:
        self._cells, self._names = cells, OrderedDict[int, None]()

    def ask(self, name: int) -> bool:
        """Take a request."""
        if name in self._names:
            self._names.move_to_end(name)
            return True
        if len(self._names) >= self._cells:
            self._names.popitem(last=False)
        self._names[name] = None
        return False


class LeastFrequent:
    """LFU with counts of all names: a name requested more often than the least frequent one inside replaces it."""

    def __init__(self, cells: int) -> None:
        self._cells, self._counts, self._names = cells, Counter[int](), set[int]()
        self._least = 0

    def ask(self, name: int) -> bool:
        """Take a request."""
        self._counts[name] += 1
        if name in self._names:
            return True
        if len(self._names) < self._cells:
            self._names.add(name)
        elif self._counts[name] > self._least:
            coldest = min(self._names, key=self._counts.__getitem__)
            self._least = self._counts[coldest]
            if self._counts[name] > self._least:
                self._names.remove(coldest)
                self._names.add(name)
        return False


class Static:
    """The names that are going to be asked for most, from the start: no policy without change does better."""

    def __init__(self, names: Iterable[int]) -> None:
        self._names = frozenset(names)

    def ask(self, name: int) -> bool:
        """Take a request."""
        return name in self._names


class Switch:
    """A switch and its controller without packets: sketch, hot names, counters, decision."""

    def __init__(self, cells: int, per_interval: int) -> None:
        settings = StoreSettings(interval_ns=INTERVAL_NS, copies=cells)
        self._store = SwitchStore({_PRODUCER: 1}, settings, Generations())
        self._sketch, self._packets = Sketch(), Counter[Segment]()
        self._asked, self._per_interval, self._interval = 0, per_interval, 1
        self._threshold = settings.threshold
        self.changes = 0
        self._store.connected({}, {}, 0)
        self._acknowledge()

    def ask(self, name: int) -> bool:
        """Take a request; at the end of an interval the controller decides."""
        self._asked += 1
        now_ns = self._asked * INTERVAL_NS // self._per_interval
        segment = Segment((name + 1) * _MULTIPLIER % 2**128)
        is_held = segment in self._store.copies
        if is_held:
            self._packets[segment] += 1
        else:
            hot = self._sketch.ask(segment, interval=self._interval, threshold=self._threshold)
            if hot is not None:
                self._store.report_hot(HotName(segment, hot.requests, _PRODUCER, hot.interval), now_ns)
        if self._asked % self._per_interval == 0:
            self._store.interval(self._packets, now_ns)
            self._acknowledge()
        return is_held

    def _acknowledge(self) -> None:
        for batch in self._store.batches():
            self.changes += sum(update.verb == "insert" for update in batch)
            self._store.acknowledged(batch)
        held = self._store.held()
        self._interval, self._threshold = held.interval, held.threshold
        for segment in list(self._packets):
            if segment not in self._store.copies:
                del self._packets[segment]


@dataclass(frozen=True, slots=True)
class Load:
    """Requests by Zipf's law with an exponent; after each `shift` requests the ranks move on by `by` names."""

    names: int
    exponent: float
    requests: int
    shift: int = 0
    by: int = 0

    def draw(self, seed: int) -> Sequence[int]:
        """Return the names in the order of the requests."""
        rng = np.random.default_rng(seed)
        chances = 1 / np.arange(1, self.names + 1) ** self.exponent
        ranks = rng.choice(self.names, size=self.requests, p=chances / chances.sum())
        if self.shift:
            ranks = (ranks + np.arange(self.requests) // self.shift * self.by) % self.names
        requests: list[int] = ranks.tolist()
        return requests


def hit_rate(policy: Policy, requests: Sequence[int], after: int) -> float:
    """Return the share of requests answered, without the warm-up."""
    hits = sum(policy.ask(name) and index >= after for index, name in enumerate(requests))
    return hits / (len(requests) - after)
