"""Forecasters by exponential smoothing: plain, with clipped innovations, and with a trend."""

from __future__ import annotations

from typing import Final

_CLIP: Final = 2.0
_MOST_OF_SCALE: Final = 3.0
_SCALE_GAIN: Final = 0.05


class Exponential:
    """A level that moves a fixed share of the way to each measurement."""

    def __init__(self, gain: float) -> None:
        self.name = f"exponential, gain {gain:g}"
        self._gain = gain
        self._level: float | None = None

    def next(self, time_s: float) -> float | None:  # noqa: ARG002 - any time is like another
        """Return the level."""
        return self._level

    def see(self, time_s: float, value: float) -> None:  # noqa: ARG002
        """Take a measurement."""
        self._level = value if self._level is None else self._level + self._gain * (value - self._level)


class Clipped:
    """A level that moves a share of the way to each measurement, counting at most two mean deviations.

    One wild measurement hardly moves it, a lasting new level does (Huber's function of the innovation).
    """

    def __init__(self, gain: float) -> None:
        self.name = f"exponential, clipped, gain {gain:g}"
        self._gain = gain
        self.level: float | None = None
        self.deviation = 0.0

    def next(self, time_s: float) -> float | None:  # noqa: ARG002
        """Return the level."""
        return self.level

    def see(self, time_s: float, value: float) -> None:  # noqa: ARG002
        """Take a measurement."""
        if self.level is None:
            self.level = value
            return
        step = value - self.level
        self.deviation = self.deviation or abs(step)
        most = _CLIP * self.deviation
        self.level += self._gain * min(max(step, -most), most)
        self.deviation += _SCALE_GAIN * (min(abs(step), _MOST_OF_SCALE * self.deviation) - self.deviation)


class Trend:
    """The last measurement and a damped trend of the latest ones (Holt's method, damped as Gardner and McKenzie do)."""

    name: Final = "damped trend"
    _GAIN: Final = 0.3
    _DAMPED: Final = 0.8

    def __init__(self) -> None:
        self._level: float | None = None
        self._slope = 0.0

    def next(self, time_s: float) -> float | None:  # noqa: ARG002
        """Return the level and the damped trend."""
        return None if self._level is None else self._level + self._DAMPED * self._slope

    def see(self, time_s: float, value: float) -> None:  # noqa: ARG002
        """Take a measurement."""
        if self._level is not None:
            damped = self._DAMPED * self._slope
            self._slope = damped + self._GAIN * (value - self._level - damped)
        self._level = value
