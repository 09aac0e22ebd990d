"""Recursive least squares, and an autoregressive forecaster by it."""

from __future__ import annotations

from collections import deque
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
    """Weights of a linear forecast, learned a case at a time; errors are clipped, as outliers would pull them away.

    `forgetting` is the share of older cases' weight that stays with each new one, `ridge` how firmly the first weights
    are held. Features and targets are to be of scale 1.
    """

    def __init__(self, first: Vector, *, forgetting: float, ridge: float) -> None:
        self.weights = first.copy()
        self._forgetting = forgetting
        self._most = 1.0 / ridge
        self._spread = np.eye(len(first)) / ridge

    def learn(self, features: Vector, target: float) -> None:
        """Take what followed these features."""
        error = min(max(target - float(features @ self.weights), -_CLIP), _CLIP)
        towards = self._spread @ features
        gain = towards / (self._forgetting + float(features @ towards))
        self.weights += gain * error
        spread = (self._spread - np.outer(gain, towards)) / self._forgetting
        # Where nothing new is learned forgetting would let it grow without end.
        if float(np.trace(spread)) <= self._most * len(self.weights):
            self._spread = spread


class Autoregressive:
    """A linear function of the last measurements, as deviations from their median; learned with forgetting."""

    _RIDGE: Final = 1.0
    _FORGETTING: Final = 0.995

    def __init__(self, order: int) -> None:
        self.name = f"autoregressive, {order}"
        self._order = order
        self._recent: deque[float] = deque(maxlen=_WINDOW)
        self._model = LeastSquares(np.zeros(order), forgetting=self._FORGETTING, ridge=self._RIDGE)
        self._level = self._scale = 0.0
        self._features = np.zeros(order)

    def next(self, time_s: float) -> float | None:  # noqa: ARG002 - any time is like another
        """Return the forecast; None until there are some measurements more than the order."""
        if not self._is_ready:
            return None
        return self._level + self._scale * float(self._features @ self._model.weights)

    def see(self, time_s: float, value: float) -> None:  # noqa: ARG002
        """Take a measurement."""
        if self._is_ready:
            self._model.learn(self._features, (value - self._level) / self._scale)
        self._recent.append(value)
        recent = list(self._recent)
        middle = median(recent)
        self._scale = _MAD_OF_NORMAL * median(abs(one - middle) for one in recent)
        self._level = median(recent[-_LEVEL_OF:])
        if self._scale > 0:
            last = np.array(recent[: -self._order - 1 : -1])
            deviation = np.zeros(self._order)
            deviation[: len(last)] = (last - self._level) / self._scale
            self._features = deviation.clip(-2 * _CLIP, 2 * _CLIP)

    @property
    def _is_ready(self) -> bool:
        return self._scale > 0 and len(self._recent) > self._order + 3
