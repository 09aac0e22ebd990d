"""How long an execution takes in a program that runs for long, told from one that ran for a fraction of a second.

A quota of CPU time is handed out by periods (100 ms unless set otherwise): a program runs until it is used up and
stands still for the period's rest. A time that was taken over half a period knows nothing of that, or too much. Here
such a stand-still is a gap: an interval in which far more time passed than the thread had of a CPU, within executions
and between them, as the kernel likes to let a thread wait where it makes a system call. Times are those of executions
without a gap, stretched by what gaps took of a window that begins where one gap ends and ends where another does, and
so holds whole periods.

What takes many times as long as the same execution does otherwise was disturbed, and is left out: one collection of
garbage, or one pause of the machine, of a tenth of a second would be a third of all that was measured, and is next to
nothing of minutes.
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
"""What a thread waits at least where it stands still; shorter waits are part of its time."""
AT_LEAST_S: Final = 0.25
"""Two periods of a quota and a half."""
_BY_NATURE: Final = 0.5
"""The part of a use's executions with gaps from which on it waits by nature: for a disk, a network, its threads."""
_PERIOD_S: Final = 0.1
"""The period of quotas, as Linux, containers and batch systems have it unless told otherwise."""
_PUNCTUAL: Final = 0.1
"""How far, in periods, a gap may end from where a quota's would; a stray one says nothing of periods."""
_WHOLE: Final = 0.5
"""The part of all time that lies between gaps of another period if these are a quota's."""
_STRAY: Final = 3.0
"""How many times the median an execution takes that was disturbed."""


@dataclass(frozen=True, slots=True)
class Instant:
    """A time by the machine's clock, and the CPU time that the thread had had by then."""

    wall_s: float
    cpu_s: float


def began() -> Instant:
    """Return the instant before an execution; what the kernel lets wait here counts for the execution."""
    wall_s = time.perf_counter()
    return Instant(wall_s, time.thread_time())


def ended() -> Instant:
    """Return the instant after an execution."""
    cpu_s = time.thread_time()
    return Instant(time.perf_counter(), cpu_s)


@dataclass(frozen=True, slots=True)
class _Interval:
    """An execution, or what lies between two of them, of no use."""

    use: str
    wall_s: float
    cpu_s: float

    @property
    def gap_s(self) -> float:
        """How long the thread stood still."""
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
        """Take in an execution between two instants, and what lies between the one before and it."""
        if self._last is not None:
            self._take("", self._last, start)
        self._take(use, start, end)
        self._counts[use] += 1
        self._last = end

    def is_enough(self, latest: int, at_least_s: float = AT_LEAST_S) -> bool:
        """Return whether a run may end after a repetition of so many executions.

        It lasts `at_least_s`, and where it stood still until it has just done so again, for twice as long at most.
        """
        if self.spent_s < at_least_s:
            return False
        gaps = self._own_gaps
        has_just = len(gaps) > 1 and gaps[-1] >= len(self._intervals) - 2 * latest
        return not gaps or has_just or self.spent_s >= 2 * at_least_s

    def steady_s(self) -> Mapping[str, float]:
        """Return the seconds of one execution of each use as a long run has it; only of uses that were executed.

        Uses that wait by nature have the mean of their times, others that of those that were not disturbed.
        """
        times: dict[str, list[float]] = {use: [] for use in self._counts}
        for one in self._intervals:
            if one.use and (self._waits(one.use) or not one.gap_s):
                times[one.use].append(one.wall_s)
        stretch = self.stretch
        return {
            use: _mean(found) if self._waits(use) else _undisturbed(found) * stretch for use, found in times.items()
        }

    def cpu_s(self) -> Mapping[str, float]:
        """Return the CPU time of one execution of each use, the mean time of those that wait by nature."""
        spent: dict[str, list[float]] = {use: [] for use in self._counts}
        for one in self._intervals:
            if one.use:
                spent[one.use].append(one.wall_s if self._waits(one.use) else one.cpu_s)
        return {use: _mean(found) if self._waits(use) else _undisturbed(found) for use, found in spent.items()}

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
        """Where the program stood still that does not wait by nature there."""
        return [place for place in self._gaps if not self._waits(self._intervals[place].use)]

    @property
    def stretch(self) -> float:
        """How many times as long as without gaps everything took that does not wait by nature."""
        gaps = self._own_gaps
        if not gaps:
            return 1.0
        window: Sequence[_Interval] = self._intervals[gaps[0] + 1 : gaps[-1] + 1]
        if math.fsum(one.wall_s for one in window) < _WHOLE * self.spent_s and not self._are_punctual(gaps):
            window = self._intervals
        own = [one for one in window if not self._waits(one.use)]
        spent_s, stood_s = math.fsum(one.wall_s for one in own), math.fsum(one.gap_s for one in own)
        return spent_s / (spent_s - stood_s)

    def _are_punctual(self, gaps: Sequence[int]) -> bool:
        """Return whether gaps end as many whole periods apart as they do where a quota is handed out."""
        between = [
            math.fsum(one.wall_s for one in self._intervals[first + 1 : second + 1]) / _PERIOD_S
            for first, second in pairwise(gaps)
        ]
        return bool(between) and all(round(one) >= 1 and abs(one - round(one)) <= _PUNCTUAL for one in between)


def _mean(times: Sequence[float]) -> float:
    return math.fsum(times) / len(times)


def _undisturbed(times: Sequence[float]) -> float:
    """Return the mean of times without those that are far above the others."""
    most = _STRAY * sorted(times)[len(times) // 2]  # the module statistics takes as long to import as json
    return _mean([one for one in times if one <= most])
