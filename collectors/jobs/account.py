"""Account of one job as a switch reports it: waits, last contributors, repetitions and cells in use, in a time window.

Sums over the window are updated as reports arrive and expire, because snapshots are taken far more often.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from collectors.settings import JobWatchSettings
from collectors.statistics.sketch import Sketch
from collectors.values import ChildKey, ChildState, JobKey, JobNote, JobState
from dataplane.clock import NS_PER_S
from dataplane.wire.completion import Completion

SLOTS: Final = 8
"""Parts of a window; the newest counts from its beginning, so a window holds 7/8 of its span at least."""

_US_NS: Final = 1000
_HALF_CIRCLE: Final = 1 << 31
_MOST_BEHIND: Final = 1 << 16
"""An item further behind the newest belongs to another job rather than being late: no switch has this many cells."""


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


@dataclass(slots=True)
class _Slot:
    """Reports of one part of the window; `items` is the job's item count when it began."""

    begun_ns: int
    items: int
    waits: Sketch = field(default_factory=Sketch)
    repeated: int = 0
    cells_used: int = 0
    by_child: dict[int, _Waits] = field(default_factory=dict)


@dataclass(slots=True)
class _Child:
    key: ChildKey
    last: int = 0
    waits: _Waits = field(default_factory=_Waits)
    """Waits in the window."""


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
        self._waits = Sketch()
        self._children: dict[int, _Child] = {}
        self._items = 1
        self._reported = self._repeated = 0
        self._is_leaf = False
        self._note = None

    @property
    def newest_ns(self) -> int:
        """Arrival time of the newest report."""
        return self._newest_ns

    def add(self, completion: Completion, child: str, now_ns: int) -> None:
        """Take a report of a complete item, whose last contribution came from the named child."""
        self._advance(completion.item)
        self._newest_ns = max(self._newest_ns, now_ns)
        slot, wait_ns = self._slot(now_ns), completion.wait_us * _US_NS
        slot.waits.add(wait_ns)
        self._waits.add(wait_ns)
        slot.repeated += completion.repeated
        slot.cells_used = max(slot.cells_used, completion.ahead + 1)
        slot.by_child.setdefault(completion.last_child, _Waits()).add(wait_ns)
        account_of_child = self._child(completion.last_child, child)
        account_of_child.waits.add(wait_ns)
        account_of_child.last += 1
        self._reported += 1
        self._repeated += completion.repeated
        self._is_leaf = completion.leaf

    def note(self, note: JobNote) -> None:
        """Take the job's name; it stays the job's when it has ended."""
        self._note = note

    def state(self, now_ns: int) -> JobState:
        """Return the job's state; only after the first reported item."""
        slots, waits, note = list(self._slots.values()), self._waits, self._note
        children = [_state(child, waits.count) for child in self._children.values()]
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
            children=tuple(sorted(children, key=lambda child: (-child.wait_caused_ns, child.key.number))),
        )

    def _advance(self, item: int) -> None:
        """Count items by the newest number; start again where the numbers do."""
        if self._newest_item is None:
            self._newest_item = item
            return
        # Numbers wrap around, so take the shorter way between the two.
        further = (item - self._newest_item + _HALF_CIRCLE) % (2 * _HALF_CIRCLE) - _HALF_CIRCLE
        if further > 0:
            self._items += further
        elif further < -_MOST_BEHIND:
            self._begin()
        else:
            return
        self._newest_item = item

    def _child(self, number: int, name: str) -> _Child:
        child = self._children.get(number)
        if child is None:
            child = self._children[number] = _Child(ChildKey(self._key.job, self._key.switch, number, name))
        elif child.key.name != name:
            child.key = ChildKey(self._key.job, self._key.switch, number, name)
        return child

    def _slot(self, now_ns: int) -> _Slot:
        number = now_ns // self._slot_ns
        slot = self._slots.get(number)
        if slot is None:
            for old in [old for old in self._slots if old + SLOTS <= number]:
                self._forget(self._slots.pop(old))
            slot = self._slots[number] = _Slot(now_ns, self._items)
        return slot

    def _forget(self, old: _Slot) -> None:
        """Take a part of the window out of its sums."""
        left = list(self._slots.values())
        self._waits.remove(old.waits, [slot.waits for slot in left])
        for number, waits in old.by_child.items():
            window = self._children[number].waits
            window.count -= waits.count
            window.total_ns -= waits.total_ns
            others = (slot.by_child[number].greatest_ns for slot in left if number in slot.by_child)
            window.greatest_ns = max(others, default=0)

    def _rate(self, oldest: _Slot, now_ns: int) -> float | None:
        gained, span_ns = self._items - oldest.items, now_ns - oldest.begun_ns
        # A single report spans no time.
        return gained * NS_PER_S / span_ns if span_ns > 0 and self._reported > 1 else None


def _state(child: _Child, samples: int) -> ChildState:
    waits = child.waits
    return ChildState(
        key=child.key,
        last=child.last,
        last_share=waits.count / samples,
        wait_mean_ns=waits.total_ns // waits.count if waits.count else None,
        wait_max_ns=waits.greatest_ns if waits.count else None,
        wait_caused_ns=waits.total_ns // samples,
        samples=samples,
    )
