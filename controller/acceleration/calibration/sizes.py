"""Size corrections: the extra cost of bytes beyond the caches, from the runs of all kinds on a device.

The cache size is one figure per device, determined by all kinds together. The cost of bytes beyond is fitted per kind:
the penalty that makes its runs likeliest, against a prior for no penalty, which prevents overfitting of a few sizes.
Errors of runs are modelled as lognormal, 1 + penalty as lognormal around 1 with a standard deviation of a half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from controller.acceleration.calibration.features import CONSTANT, TOUCHED, names_of
from controller.acceleration.calibration.least_squares import Array, solve
from controller.acceleration.calibration.values import Run, Uncached, degrees_of

_CACHES: Final = tuple(2.0 ** (half / 2) for half in range(40, 57))
"""1 MiB to 256 MiB, two per octave."""
_PENALTIES: Final = (0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0)
_PRIOR: Final = 4.0
"""One over the variance of the logarithm of 1 + penalty."""
_EXACT: Final = 1e-9
"""Mean square of logarithms below which a fit counts as exact."""


def cached_bytes_of(kinds: Sequence[tuple[str, Sequence[Run]]]) -> float | None:
    """Return the cache size from the runs of kinds on one device; None if no kind is likelier with a correction."""
    totals = [sum(_best(kind, runs, cached)[0] for kind, runs in kinds) for cached in _CACHES]
    plain = sum(_score(kind, runs, None) for kind, runs in kinds)
    least = min(totals, default=plain)
    return _CACHES[totals.index(least)] if least < plain else None


def uncached_of(kind: str, runs: Sequence[Run], cached_bytes: float) -> Uncached | None:
    """Return the correction of a kind's runs; None if none is likelier, or too few sizes determine it."""
    _, penalty = _best(kind, runs, cached_bytes)
    if penalty == 0:
        return None
    uncached = Uncached(cached_bytes, penalty, max(run.features[TOUCHED] for run in runs))
    coefficients = solve(columns_of(kind, runs, uncached), _seconds(runs)).coefficients.tolist()
    return uncached if degrees_of(len(runs), coefficients, is_corrected=True) >= 1 else None


def columns_of(kind: str, runs: Sequence[Run], uncached: Uncached | None = None) -> Array:
    """Return the features that a kind's time is fitted by, [run, feature], corrected for size."""
    names = names_of(kind)
    columns = np.array([[run.features[name] for name in names] for run in runs])
    if uncached is not None:
        factors = np.array([uncached.factor(run.features[TOUCHED]) for run in runs])
        columns[:, [name != CONSTANT for name in names]] *= factors[:, None]
    return columns


def _best(kind: str, runs: Sequence[Run], cached_bytes: float) -> tuple[float, float]:
    """Return the lowest score of a penalty, and the penalty."""
    most = max(run.features[TOUCHED] for run in runs)
    if most <= cached_bytes:
        return _score(kind, runs, None), 0.0
    scores = [(_score(kind, runs, None), 0.0)]
    for penalty in _PENALTIES[1:]:
        score = _score(kind, runs, Uncached(cached_bytes, penalty, most))
        scores.append((score + _PRIOR * math.log1p(penalty) ** 2, penalty))
    return min(scores)


def _score(kind: str, runs: Sequence[Run], uncached: Uncached | None) -> float:
    """Return minus twice the log likelihood of runs, without terms common to all corrections."""
    seconds = _seconds(runs)
    errors = np.log(solve(columns_of(kind, runs, uncached), seconds).expected / seconds)
    return len(runs) * math.log(float(np.square(errors).mean()) + _EXACT)


def _seconds(runs: Sequence[Run]) -> Array:
    return np.array([run.seconds for run in runs])
