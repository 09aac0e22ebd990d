"""What a switch has reported of one job: waits, who came last, repetitions and cells in use, in a window of time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from collectors.settings import JobWatchSettings
from collectors.sketch import Sketch
from collectors.values import ChildKey, ChildState, JobKey, JobNote, JobState
from dataplane.wire.completion import Completion

SLOTS: Final = 8
"""Parts of a window; the newest counts from its beginning, so a window holds 7/8 of its span at least."""

_US_NS: Final = 1000
_SECOND_NS: Final = 1_000_000_000
_HALF_CIRCLE: Final = 1 << 31
_MOST_BEHIND: Final = 1 << 16
"""An item further behind the newest is no late one, for no switch has as many cells, but one of another job."""


@dataclass(slots=True)
class _Waits:
    """The waits of some items."""

    count: int = 0
    total_ns: int = 0
    greatest_ns: int = 0

    def add(self, wait_ns: int) -> None:
        self.count += 1
        self.total_ns += wait_ns
        self.greatest_ns = max(self.greatest_ns, wait_ns)

    def merge(self, other: _Waits) -> None:
        self.count += other.count
        self.total_ns += other.total_ns
        self.greatest_ns = max(self.greatest_ns, other.greatest_ns)


@dataclass(slots=True)
class _Slot:
    """What came in one part of the window; by `items` the job was when it began."""

    begun_ns: int
    items: int
    waits: Sketch = field(default_factory=Sketch)
    repeated: int = 0
    cells_used: int = 0
    by_child: dict[int, _Waits] = field(default_factory=dict)


@dataclass(slots=True)
class _Child:
    name: str
    last: int = 0


class JobAccount:
    """One job in one switch, in constant memory however many items are reported."""

    def __init__(self, key: JobKey, settings: JobWatchSettings) -> None:
        self._key = key
        self._slot_ns = max(settings.window_ns // SLOTS, 1)
        self._newest_ns = 0
        self._newest_item: int | None = None
        self._note: JobNote | None
        self._begin()

    def _begin(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._children: dict[int, _Child] = {}
        self._items = 1
        self._reported = self._repeated = 0
        self._is_leaf = False
        self._note = None

    @property
    def newest_ns(self) -> int:
        """When the newest report came."""
        return self._newest_ns

    def add(self, said: Completion, child: str, now_ns: int) -> None:
        """Take a report of a complete item, whose last contribution was that of a child of this name."""
        self._advance(said.item)
        self._newest_ns = max(self._newest_ns, now_ns)
        slot, wait_ns = self._slot(now_ns), said.wait_us * _US_NS
        slot.waits.add(wait_ns)
        slot.repeated += said.repeated
        slot.cells_used = max(slot.cells_used, said.ahead + 1)
        slot.by_child.setdefault(said.last_child, _Waits()).add(wait_ns)
        known = self._children.setdefault(said.last_child, _Child(child))
        known.name, known.last = child, known.last + 1
        self._reported += 1
        self._repeated += said.repeated
        self._is_leaf = said.leaf

    def note(self, note: JobNote) -> None:
        """Take the job's name; it stays the job's when it has ended."""
        self._note = note

    def state(self, now_ns: int) -> JobState:
        """Return the job's state; there is one as soon as an item was reported."""
        note = self._note
        slots = list(self._slots.values())
        waits = Sketch()
        for slot in slots:
            waits.merge(slot.waits)
        return JobState(
            key=self._key,
            name=None if note is None else note.name,
            epoch=None if note is None else note.epoch,
            cells=None if note is None else note.cells,
            is_leaf=self._is_leaf,
            items=self._items,
            items_per_s=self._rate(slots[0], now_ns),
            reported=self._reported,
            repeated=self._repeated,
            repeated_per_item=sum(slot.repeated for slot in slots) / waits.count,
            cells_used=max(slot.cells_used for slot in slots),
            wait_mean_ns=waits.mean or 0,
            wait_p50_ns=waits.quantile(0.50) or 0,
            wait_p99_ns=waits.quantile(0.99) or 0,
            wait_max_ns=waits.greatest,
            samples=waits.count,
            age_ns=max(now_ns - self._newest_ns, 0),
            children=tuple(self._child_states(slots, waits.count)),
        )

    def _advance(self, item: int) -> None:
        """Count items by the newest number; begin anew where the numbers do."""
        if self._newest_item is None:
            self._newest_item = item
            return
        further = (item - self._newest_item + _HALF_CIRCLE) % (2 * _HALF_CIRCLE) - _HALF_CIRCLE
        if further > 0:
            self._items += further
        elif further < -_MOST_BEHIND:
            self._begin()
        else:
            return
        self._newest_item = item

    def _slot(self, now_ns: int) -> _Slot:
        number = now_ns // self._slot_ns
        slot = self._slots.get(number)
        if slot is None:
            for old in [old for old in self._slots if old + SLOTS <= number]:
                del self._slots[old]
            slot = self._slots[number] = _Slot(now_ns, self._items)
        return slot

    def _rate(self, oldest: _Slot, now_ns: int) -> float | None:
        gained, span_ns = self._items - oldest.items, now_ns - oldest.begun_ns
        return gained * _SECOND_NS / span_ns if span_ns > 0 and self._reported > 1 else None

    def _child_states(self, slots: Iterable[_Slot], samples: int) -> list[ChildState]:
        waits = {number: _Waits() for number in self._children}
        for slot in slots:
            for number, some in slot.by_child.items():
                waits[number].merge(some)
        states = [
            ChildState(
                key=ChildKey(self._key.job, self._key.switch, number, self._children[number].name),
                last=self._children[number].last,
                last_share=mine.count / samples,
                wait_mean_ns=mine.total_ns // mine.count if mine.count else None,
                wait_max_ns=mine.greatest_ns if mine.count else None,
                wait_caused_ns=mine.total_ns // samples,
                samples=samples,
            )
            for number, mine in waits.items()
        ]
        return sorted(states, key=lambda child: (-child.wait_caused_ns, child.key.number))
