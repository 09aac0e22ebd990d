"""Forecasters from the last measurements: the last one, means, medians and trimmed means of windows."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from typing import Final

_MOST: Final = 128
_TRIMMED: Final = 0.3
_GAIN: Final = 0.1


class LastValue:
    """The last measurement."""

    name: Final = "last value"

    def __init__(self) -> None:
        self._value: float | None = None

    def next(self, time_s: float) -> float | None:  # noqa: ARG002 - any time is like another
        """Return the last measurement."""
        return self._value

    def see(self, time_s: float, value: float) -> None:  # noqa: ARG002
        """Take a measurement."""
        self._value = value


class RunningMean:
    """The mean of all measurements."""

    name: Final = "mean of all"

    def __init__(self) -> None:
        self._mean, self._number = 0.0, 0

    def next(self, time_s: float) -> float | None:  # noqa: ARG002
        """Return the mean."""
        return self._mean if self._number else None

    def see(self, time_s: float, value: float) -> None:  # noqa: ARG002
        """Take a measurement."""
        self._number += 1
        self._mean += (value - self._mean) / self._number


class _Window:
    """The last measurements, in order of time and of size."""

    def __init__(self, name: str, width: int) -> None:
        self.name = name
        self._recent: deque[float] = deque(maxlen=width)
        self._ordered: list[float] = []

    def see(self, time_s: float, value: float) -> None:  # noqa: ARG002
        """Take a measurement."""
        if len(self._recent) == self._recent.maxlen:
            del self._ordered[bisect_left(self._ordered, self._recent[0])]
        self._recent.append(value)
        insort(self._ordered, value)


class WindowMean(_Window):
    """The mean of the last measurements."""

    def __init__(self, width: int) -> None:
        super().__init__(f"mean of {width}", width)

    def next(self, time_s: float) -> float | None:  # noqa: ARG002
        """Return the mean of the window."""
        return sum(self._ordered) / len(self._ordered) if self._ordered else None


class WindowMedian(_Window):
    """The median of the last measurements."""

    def __init__(self, width: int) -> None:
        super().__init__(f"median of {width}", width)

    def next(self, time_s: float) -> float | None:  # noqa: ARG002
        """Return the median of the window."""
        return _median(self._ordered) if self._ordered else None


class TrimmedMean(_Window):
    """The mean of the last measurements without the smallest and largest 30 % of them."""

    def __init__(self, width: int) -> None:
        super().__init__(f"trimmed mean of {width}", width)

    def next(self, time_s: float) -> float | None:  # noqa: ARG002
        """Return the trimmed mean of the window."""
        if not self._ordered:
            return None
        cut = int(_TRIMMED * len(self._ordered))
        kept = self._ordered[cut : len(self._ordered) - cut]
        return sum(kept) / len(kept)


class AdaptiveMedian:
    """The median of a window that grows or shrinks towards the width whose median erred less recently."""

    name: Final = "median of a window that adapts"

    def __init__(self) -> None:
        self._windows = [WindowMedian(width) for width in (4, 8, 16, 32, 64, _MOST)]
        self._errors = [0.0] * len(self._windows)
        self._at = 2

    def next(self, time_s: float) -> float | None:
        """Return the median of the current window."""
        return self._windows[self._at].next(time_s)

    def see(self, time_s: float, value: float) -> None:
        """Take a measurement; go one width up or down if that width has erred less."""
        for index, window in enumerate(self._windows):
            prediction = window.next(time_s)
            if prediction is not None:
                self._errors[index] += _GAIN * (abs(prediction - value) - self._errors[index])
            window.see(time_s, value)
        near = range(max(0, self._at - 1), min(len(self._windows), self._at + 2))
        self._at = min(near, key=lambda index: (self._errors[index], abs(index - self._at)))


def _median(ordered: list[float]) -> float:
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
