"""A window of samples of a link or of a path: the newest span of time in slots, a sketch of delays in each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from typing import Final

from collectors.settings import StateSettings
from collectors.statistics.columns import Integers, Numbers
from collectors.statistics.sketch import Sketch
from collectors.values import LINK_FIGURES, DelaySource

SLOTS: Final = 8
"""Parts of a window; the newest counts from its beginning, so a window holds 7/8 of its span at least."""

TX_READINGS: Final = 16
"""Number of the switch's own windows whose readings a window keeps."""

SOURCES: Final = (
    DelaySource.NOMINAL,
    DelaySource.HOP_LATENCY,
    DelaySource.PROBES,
    DelaySource.CORRECTED_STAMPS,
    DelaySource.STAMPS,
)
"""From the worst to the best; the index is the source's number in native memory."""

RANK: Final = {source: rank for rank, source in enumerate(SOURCES)}


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """A window's statistics; None for figures without samples. `samples` counts delays, those of `source` only.

    `delay_ewma_ns` is the mean of the slots' means, each of which weighs half of the next newer one. `newest_delay_ns`
    and `newest_queue_frames` are means over the newest slot that has such samples, `newest_tx_bytes` is the newest
    reading.
    """

    delay_mean_ns: int | None
    delay_p50_ns: int | None
    delay_p99_ns: int | None
    delay_ewma_ns: int | None
    delay_max_ns: int | None
    source: DelaySource
    samples: int
    queue_occupancy_frames: float | None
    tx_bytes_per_window: int | None
    newest_ns: int
    buffer_occupancy_frames: float | None = None
    newest_delay_ns: int | None = None
    newest_queue_frames: float | None = None
    newest_tx_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WindowColumns:
    """`WindowFigures` of links, one place each; `newest_ns` is UNKNOWN where nothing ever came."""

    delay_mean_ns: Integers
    delay_p50_ns: Integers
    delay_p99_ns: Integers
    delay_ewma_ns: Integers
    delay_max_ns: Integers
    source: Integers
    """Places in `SOURCES`."""

    samples: Integers
    queue_occupancy_frames: Numbers
    tx_bytes_per_window: Integers
    newest_ns: Integers
    buffer_occupancy_frames: Numbers
    newest_delay_ns: Integers
    newest_queue_frames: Numbers
    newest_tx_bytes: Integers


PASSED_ON: Final = tuple(
    field.name for field in fields(WindowFigures) if field.name in LINK_FIGURES and LINK_FIGURES[field.name].is_optional
)
"""Figures of windows that become figures of links unchanged."""

NO_FIGURES: Final = WindowFigures(None, None, None, None, None, DelaySource.NOMINAL, 0, None, None, 0)
"""Figures of an empty window."""


@dataclass(slots=True)
class _Slot:
    """Samples of one part of the window: delays of the best source available, and queues."""

    delays: Sketch = field(default_factory=Sketch)
    source: DelaySource = DelaySource.NOMINAL
    queue_total: int = 0
    queues: int = 0
    buffer_total: int = 0
    buffers: int = 0
    newest_ns: int = 0


class Window:
    """Samples of the `window_ns` before the newest, any number of them in constant memory."""

    def __init__(self, settings: StateSettings) -> None:
        self._slot_ns = max(settings.window_ns // SLOTS, 1)
        self._tx_window_ns = settings.tx_window_ns
        self._span_ns = settings.window_ns
        self._slots: dict[int, _Slot] = {}
        self._newest_slot = 0
        self._tx: dict[int, tuple[int, int]] = {}
        self._newest_ns = 0
        self._figures: WindowFigures | None = None

    @property
    def newest_ns(self) -> int:
        """Time at which the newest sample was taken, on the collector's clock."""
        return self._newest_ns

    def add(
        self,
        at_ns: int,
        delay_ns: int | None = None,
        source: DelaySource = DelaySource.NOMINAL,
        *,
        queue_frames: int | None = None,
        tx_bytes: int | None = None,
        buffer_frames: int | None = None,
    ) -> bool:
        """Take a sample that belongs to `at_ns`; return False, and take nothing, when that is before the window."""
        number = at_ns // self._slot_ns
        if number + SLOTS <= self._newest_slot:
            return False
        self._newest_ns = max(self._newest_ns, at_ns)
        self._figures = None
        self._advance(number)
        slot = self._slots.setdefault(number, _Slot())
        slot.newest_ns = max(slot.newest_ns, at_ns)
        if delay_ns is not None:
            _add_delay(slot, delay_ns, source)
        if queue_frames is not None:
            slot.queue_total += queue_frames
            slot.queues += 1
        if buffer_frames is not None:
            slot.buffer_total += buffer_frames
            slot.buffers += 1
        if tx_bytes is not None:
            self._add_tx(tx_bytes, at_ns)
        return True

    def figures(self) -> WindowFigures:
        """Return the window's statistics."""
        if self._figures is None:
            self._figures = self._added_up()
        return self._figures

    def delays(self) -> Sketch:
        """Return a sketch of the window's delays: those of the best source that there is."""
        source, merged = self._source(), Sketch()
        for slot in self._slots.values():
            if slot.source is source:
                merged.merge(slot.delays)
        return merged

    def rows(self) -> Iterator[tuple[int, int, Sketch, tuple[int, int, int, int, int]]]:
        """Yield the slots: number, place of the source, delays; queues, their frames, buffers, theirs, newest time."""
        for number, slot in sorted(self._slots.items()):
            sums = slot.queues, slot.queue_total, slot.buffers, slot.buffer_total, slot.newest_ns
            yield number, RANK[slot.source], slot.delays, sums

    def readings(self) -> Iterator[tuple[int, int, int]]:
        """Yield the readings of load in order: number, time and bytes."""
        for number, (at_ns, nbytes) in sorted(self._tx.items()):
            yield number, at_ns, nbytes

    def _source(self) -> DelaySource:
        return SOURCES[max((RANK[slot.source] for slot in self._slots.values()), default=0)]

    def _added_up(self) -> WindowFigures:
        source, merged = self._source(), self.delays()
        queues = sum(slot.queues for slot in self._slots.values())
        buffers = sum(slot.buffers for slot in self._slots.values())
        return WindowFigures(
            delay_mean_ns=merged.mean,
            delay_p50_ns=merged.quantile(0.50),
            delay_p99_ns=merged.quantile(0.99),
            delay_ewma_ns=self._weighted(source),
            delay_max_ns=merged.greatest if merged.count else None,
            source=source,
            samples=merged.count,
            queue_occupancy_frames=sum(s.queue_total for s in self._slots.values()) / queues if queues else None,
            tx_bytes_per_window=self._tx_mean(),
            newest_ns=self._newest_ns,
            buffer_occupancy_frames=sum(s.buffer_total for s in self._slots.values()) / buffers if buffers else None,
            newest_delay_ns=self._newest_delay(source),
            newest_queue_frames=self._newest_queue(),
            newest_tx_bytes=self._tx[max(self._tx)][1] if self._tx else None,
        )

    def _advance(self, number: int) -> None:
        if number <= self._newest_slot:
            return
        self._newest_slot = number
        for old in [old for old in self._slots if old + SLOTS <= number]:
            del self._slots[old]

    def _add_tx(self, tx_bytes: int, at_ns: int) -> None:
        """Keep the newest reading of each of the switch's own windows; one that many packets report counts once."""
        number = at_ns // self._tx_window_ns
        if number + TX_READINGS <= max(self._tx, default=0):
            return
        if number not in self._tx or at_ns >= self._tx[number][0]:
            self._tx[number] = at_ns, tx_bytes
        for old in [old for old in self._tx if old + TX_READINGS <= number]:
            del self._tx[old]

    def _tx_mean(self) -> int | None:
        """Return the mean of the readings in the window; the newest counts however old it is, as the last known."""
        if not self._tx:
            return None
        newest = max(self._tx)
        begins_ns = self._newest_ns - self._span_ns
        counted = [
            reading for n, (_, reading) in self._tx.items() if n == newest or n * self._tx_window_ns >= begins_ns
        ]
        return sum(counted) // len(counted)

    def _newest_delay(self, source: DelaySource) -> int | None:
        means = {n: slot.delays.mean for n, slot in self._slots.items() if slot.source is source and slot.delays.count}
        return means[max(means)] if means else None

    def _newest_queue(self) -> float | None:
        slot = max(
            ((n, slot) for n, slot in self._slots.items() if slot.queues), default=None, key=lambda each: each[0]
        )
        return None if slot is None else slot[1].queue_total / slot[1].queues

    def _weighted(self, source: DelaySource) -> int | None:
        total = weights = 0
        for number, slot in self._slots.items():
            if slot.source is source and slot.delays.mean is not None:
                # Each slot weighs half as much as the next newer one.
                weight = 1 << SLOTS - 1 - (self._newest_slot - number)
                total += weight * slot.delays.mean
                weights += weight
        return total // weights if weights else None


def _add_delay(slot: _Slot, delay_ns: int, source: DelaySource) -> None:
    """Take a delay unless the slot has better ones; a better one replaces those before it."""
    if RANK[source] < RANK[slot.source]:
        return
    if source is not slot.source:
        slot.delays, slot.source = Sketch(), source
    slot.delays.add(delay_ns)
