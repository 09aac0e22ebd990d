"""Recursive least squares, and an autoregressive forecaster based on it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median
from typing import Final

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]

_CLIP: Final = 3.0
_WINDOW: Final = 60
_LEVEL_OF: Final = 40
_MAD_OF_NORMAL: Final = 1.4826


class LeastSquares:
    """Weights of a linear forecast, learned one case at a time; errors are clipped, as outliers would pull them away.

    `forgetting` is the share of older cases' weight that stays with each new one, `ridge` how firmly the first weights
    are held, one for each. Features and targets should be of scale 1.
    """

    def __init__(self, first: Sequence[float], *, forgetting: float, ridge: Sequence[float]) -> None:
        self.weights = np.array(first, np.float64)
        self._forgetting = forgetting
        self._spread = np.diag(1.0 / np.array(ridge, np.float64))
        self._most = float(np.trace(self._spread))

    def learn(self, features: Vector, target: float) -> None:
        """Learn the target that followed these features."""
        error = min(max(target - float(features @ self.weights), -_CLIP), _CLIP)
        towards = self._spread @ features
        gain = towards / (self._forgetting + float(features @ towards))
        self.weights += gain * error
        spread = (self._spread - np.outer(gain, towards)) / self._forgetting
        # Without new information, forgetting would let it grow without bound.
        if float(np.trace(spread)) <= self._most:
            self._spread = spread


class Autoregressive:
    """A linear function of the last measurements, as deviations from their median; learned with forgetting.

    It forecasts nothing until it has learned from two dozen measurements: it would only be as good as its first
    weights.
    """

    _RIDGE: Final = 1.0
    _FORGETTING: Final = 0.995
    _LEAST: Final = 24

    def __init__(self, order: int) -> None:
        self.name = f"autoregressive, {order}"
        self._order = order
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._model = LeastSquares([0.0] * order, forgetting=self._FORGETTING, ridge=[self._RIDGE] * order)
        self._level = self._scale = 0.0
        self._features = np.zeros(order)
        self._learned = 0

    def next(self, time_s: float) -> float | None:  # noqa: ARG002 - any time is like another
        """Return the forecast."""
        if self._learned < self._LEAST:
            return None
        return self._level + self._scale * float(self._features @ self._model.weights)

    def see(self, time_s: float, value: float) -> None:  # noqa: ARG002
        """Take a measurement."""
        if self._is_ready:
            self._model.learn(self._features, (value - self._level) / self._scale)
            self._learned += 1
        self._recent.append(value)
        recent = list(self._recent)
        middle = median(recent)
        self._scale = _MAD_OF_NORMAL * median(abs(value - middle) for value in recent)
        self._level = median(recent[-_LEVEL_OF:])
        if self._scale > 0:
            last = np.array(recent[: -self._order - 1 : -1])
            deviation = np.zeros(self._order)
            deviation[: len(last)] = (last - self._level) / self._scale
            self._features = deviation.clip(-2 * _CLIP, 2 * _CLIP)

    @property
    def _is_ready(self) -> bool:
        return self._scale > 0 and len(self._recent) > self._order + 3
