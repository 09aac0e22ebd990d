"""Long-run time of one execution, estimated from a program that ran for a fraction of a second.

A CPU time quota is handed out by periods (100 ms unless set otherwise): a program runs until it is used up and stalls
for the rest of the period. A time taken over half a period misses that, or overstates it. Here such a stall is a gap:
an interval in which far more time passed than the thread had of a CPU. Gaps occur within executions and between them,
as the kernel likes to suspend a thread at a system call. Times are those of executions without a gap, stretched by the
gaps' share of a window that begins at the end of one gap and ends at the end of another, and so holds whole periods.

An execution that takes many times as long as usual was disturbed, and is left out: one garbage collection, or one pause
of the machine, of a tenth of a second would be a third of the measurement, and is next to nothing over minutes.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

GAP_S: Final = 5e-3
"""Least wait that is a gap; shorter waits are part of a thread's time."""
AT_LEAST_S: Final = 0.25
"""Two and a half quota periods."""
_BY_NATURE: Final = 0.5
"""Part of a use's executions with gaps from which it waits by nature: for a disk, a network, its threads."""
_PERIOD_S: Final = 0.1
"""Quota period of Linux, containers and batch systems by default."""
_PUNCTUAL: Final = 0.1
"""Largest distance, in periods, of a gap's end from a quota's; a stray gap says nothing about periods."""
_WHOLE: Final = 0.5
"""Least part of all time between the first and last gap of a quota with another period."""
_STRAY: Final = 3.0
"""Factor over the median from which an execution was disturbed."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A time by the machine's clock, and the thread's CPU time until then."""

    wall_s: float
    cpu_s: float


def began() -> Instant:
    """Return the instant before an execution; waits that the kernel causes here count as part of the execution."""
    wall_s = time.perf_counter()
    return Instant(wall_s, time.thread_time())


def ended() -> Instant:
    """Return the instant after an execution."""
    cpu_s = time.thread_time()
    return Instant(time.perf_counter(), cpu_s)


@dataclass(frozen=True, slots=True)
class _Interval:
    """An execution, or the time between two of them, which has no use."""

    use: str
    wall_s: float
    cpu_s: float

    @property
    def gap_s(self) -> float:
        """Time for which the thread stalled."""
        waited_s = self.wall_s - self.cpu_s
        return waited_s if waited_s > GAP_S else 0.0


@dataclass(slots=True)
class Series:
    """Executions of uses of kernels in the order of their time."""

    spent_s: float = 0.0
    _last: Instant | None = None
    _intervals: list[_Interval] = field(default_factory=list)
    _gaps: list[int] = field(default_factory=list)
    _counts: Counter[str] = field(default_factory=Counter)
    _gap_counts: Counter[str] = field(default_factory=Counter)

    def add(self, use: str, start: Instant, end: Instant) -> None:
        """Record an execution between two instants, and the interval since the one before."""
        if self._last is not None:
            self._take("", self._last, start)
        self._take(use, start, end)
        self._counts[use] += 1
        self._last = end

    def is_enough(self, latest: int, at_least_s: float = AT_LEAST_S) -> bool:
        """Return whether a run may end after a repetition of this many executions.

        It lasts `at_least_s`; if it has stalled, until it has just done so again, for twice as long at most.
        """
        if self.spent_s < at_least_s:
            return False
        gaps = self._own_gaps
        has_just = len(gaps) > 1 and gaps[-1] >= len(self._intervals) - 2 * latest
        return not gaps or has_just or self.spent_s >= 2 * at_least_s

    def steady_s(self) -> Mapping[str, float]:
        """Return the long-run seconds of one execution of each use; only uses that were executed.

        Uses that wait by nature get the mean of their times, others that of undisturbed executions.
        """
        times: dict[str, list[float]] = {use: [] for use in self._counts}
        for interval in self._intervals:
            if interval.use and (self._waits(interval.use) or not interval.gap_s):
                times[interval.use].append(interval.wall_s)
        stretch = self.stretch
        return {
            use: _mean(use_times) if self._waits(use) else _undisturbed(use_times) * stretch
            for use, use_times in times.items()
        }

    def cpu_s(self) -> Mapping[str, float]:
        """Return the CPU time of one execution of each use; for those that wait by nature, the mean time."""
        spent: dict[str, list[float]] = {use: [] for use in self._counts}
        for interval in self._intervals:
            if interval.use:
                spent[interval.use].append(interval.wall_s if self._waits(interval.use) else interval.cpu_s)
        return {
            use: _mean(use_times) if self._waits(use) else _undisturbed(use_times) for use, use_times in spent.items()
        }

    def _take(self, use: str, start: Instant, end: Instant) -> None:
        interval = _Interval(use, end.wall_s - start.wall_s, end.cpu_s - start.cpu_s)
        self.spent_s += interval.wall_s
        if interval.gap_s:
            self._gaps.append(len(self._intervals))
            self._gap_counts[use] += 1
        self._intervals.append(interval)

    def _waits(self, use: str) -> bool:
        """Return whether a use waits by nature."""
        return bool(use) and self._gap_counts[use] > _BY_NATURE * self._counts[use]

    @property
    def _own_gaps(self) -> list[int]:
        """Indices of all gaps except those of uses that wait by nature."""
        return [gap for gap in self._gaps if not self._waits(self._intervals[gap].use)]

    @property
    def stretch(self) -> float:
        """Factor by which gaps lengthened everything that does not wait by nature."""
        gaps = self._own_gaps
        if not gaps:
            return 1.0
        window: Sequence[_Interval] = self._intervals[gaps[0] + 1 : gaps[-1] + 1]
        if math.fsum(interval.wall_s for interval in window) < _WHOLE * self.spent_s and not self._are_punctual(gaps):
            window = self._intervals
        own = [interval for interval in window if not self._waits(interval.use)]
        spent_s, stood_s = math.fsum(interval.wall_s for interval in own), math.fsum(interval.gap_s for interval in own)
        return spent_s / (spent_s - stood_s)

    def _are_punctual(self, gaps: Sequence[int]) -> bool:
        """Return whether gaps end whole periods apart, as with a quota."""
        between = [
            math.fsum(interval.wall_s for interval in self._intervals[first + 1 : second + 1]) / _PERIOD_S
            for first, second in pairwise(gaps)
        ]
        return bool(between) and all(
            round(periods) >= 1 and abs(periods - round(periods)) <= _PUNCTUAL for periods in between
        )


def _mean(times: Sequence[float]) -> float:
    return math.fsum(times) / len(times)


def _undisturbed(times: Sequence[float]) -> float:
    """Return the mean of times without those far above the others."""
    most = _STRAY * sorted(times)[len(times) // 2]  # the module statistics takes as long to import as json
    return _mean([time_s for time_s in times if time_s <= most])
