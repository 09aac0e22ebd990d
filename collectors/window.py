"""A directed link's newest samples: a bounded span of time and a bounded number."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

from collectors.settings import StateSettings
from collectors.stitch import LinkSample
from collectors.values import DelaySource

Sample = TypeVar("Sample", tuple[int, int], tuple[int, int, DelaySource])


@dataclass(frozen=True, slots=True)
class WindowFigures:
    """A window's statistics; None for what no sample told. `samples` counts delays, those of `source` only."""

    delay_mean_ns: int | None
    delay_p50_ns: int | None
    delay_p99_ns: int | None
    source: DelaySource
    samples: int
    queue_occupancy_frames: float | None
    tx_bytes_per_window: int | None
    newest_ns: int


class LinkWindow:
    """Samples of the `window_ns` before the newest, at most `max_samples` of a kind; figures computed when asked."""

    def __init__(self, settings: StateSettings) -> None:
        self._span_ns = settings.window_ns
        self._limit = settings.max_samples
        self._delays: deque[tuple[int, int, DelaySource]] = deque()
        self._queues: deque[tuple[int, int]] = deque()
        self._tx_window_ns = settings.tx_window_ns
        self._tx: dict[int, tuple[int, int]] = {}
        self._newest_ns = 0
        self._figures: WindowFigures | None = None

    @property
    def newest_ns(self) -> int:
        """When the newest sample was taken, on the collector's clock."""
        return self._newest_ns

    def add(self, sample: LinkSample, at_ns: int) -> None:
        """Take a sample that belongs to `at_ns`; samples may come in any order."""
        self._newest_ns = max(self._newest_ns, at_ns)
        self._figures = None
        if sample.delay_ns is not None and sample.source is not None:
            _put(self._delays, (at_ns, sample.delay_ns, sample.source))
        if sample.queue_occupancy_frames is not None:
            _put(self._queues, (at_ns, sample.queue_occupancy_frames))
        if sample.tx_bytes_per_window is not None:
            self._add_tx(sample.tx_bytes_per_window, at_ns)
        self._prune()

    def figures(self) -> WindowFigures:
        """Return the window's statistics; percentiles by nearest rank."""
        if self._figures is None:
            source = self._delays[-1][2] if self._delays else DelaySource.NOMINAL
            delays = sorted(delay for _, delay, came_from in self._delays if came_from is source)
            self._figures = WindowFigures(
                delay_mean_ns=round(sum(delays) / len(delays)) if delays else None,
                delay_p50_ns=_nearest_rank(delays, 0.50),
                delay_p99_ns=_nearest_rank(delays, 0.99),
                source=source,
                samples=len(delays),
                queue_occupancy_frames=sum(q for _, q in self._queues) / len(self._queues) if self._queues else None,
                tx_bytes_per_window=_mean([count for _, count in self._tx.values()]),
                newest_ns=self._newest_ns,
            )
        return self._figures

    def _add_tx(self, tx_bytes: int, at_ns: int) -> None:
        """Keep the newest reading of each of the switch's own windows: those that many packets report count once."""
        number = at_ns // self._tx_window_ns
        if number not in self._tx or at_ns >= self._tx[number][0]:
            self._tx[number] = at_ns, tx_bytes

    def _prune(self) -> None:
        oldest_ns = self._newest_ns - self._span_ns
        # The newest reading stays however old the window has become: it is the last that is known.
        while len(self._tx) > 1 and (oldest := min(self._tx)) * self._tx_window_ns < oldest_ns:
            del self._tx[oldest]
        while self._delays and (self._delays[0][0] < oldest_ns or len(self._delays) > self._limit):
            self._delays.popleft()
        while self._queues and (self._queues[0][0] < oldest_ns or len(self._queues) > self._limit):
            self._queues.popleft()


def _put(samples: deque[Sample], sample: Sample) -> None:
    """Insert by time, nearly always at the end."""
    if not samples or samples[-1][0] <= sample[0]:
        samples.append(sample)
        return
    place = len(samples)
    while place and samples[place - 1][0] > sample[0]:
        place -= 1
    samples.insert(place, sample)


def _mean(values: Sequence[int]) -> int | None:
    return round(sum(values) / len(values)) if values else None


def _nearest_rank(ordered: Sequence[int], share: float) -> int | None:
    return ordered[math.ceil(share * len(ordered)) - 1] if ordered else None
