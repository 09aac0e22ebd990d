"""Figures of pods and tasks as features, from 0 to 1."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from controller.learning.values import Floats

PAGE_BYTES: Final = 4096
_LOG_BITS: Final = 64
_SHARE_BITS: Final = 8
_TIME_UNIT_NS: Final = 1024
_TIME_BITS: Final = 36
"""Times up to 19 hours are distinguishable."""


def logarithmic(figures: npt.ArrayLike) -> Floats:
    """Return log2(1 + figure) / 64, as the environment has operations, pages and delays."""
    features: Floats = (np.log2(1 + np.asarray(figures, np.float64)) / _LOG_BITS).astype(np.float32)
    return features


def shared(figures: npt.ArrayLike) -> Floats:
    """Return log2(1 + figure) / 8 of what there is for each core or unit, 1 at most."""
    features: Floats = np.minimum(np.log2(1 + np.asarray(figures, np.float64)) / _SHARE_BITS, 1).astype(np.float32)
    return features


def timed(nanoseconds: npt.ArrayLike) -> Floats:
    """Return log2(1 + time / 1024 ns) / 36, 1 at most."""
    logs = np.log2(1 + np.asarray(nanoseconds, np.float64) / _TIME_UNIT_NS) / _TIME_BITS
    features: Floats = np.minimum(logs, 1).astype(np.float32)
    return features
