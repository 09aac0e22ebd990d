"""Corrections of a calibration by what tasks took: factors for kinds of operators and types of tasks, at one centre.

Each task tells one thing, the ratio of its measured to its expected time, about the sum over its operators. In
logarithms that is one equation for the factors of its kinds, weighted by their shares of the expected time; the factors
move along its normal by a part of the way (Kaczmarz's method, relaxed), so that tasks of different mixtures determine
them together. Factors are bounded, and so is what one task changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from dataplane.config import Strict

MOST_FACTOR: Final = 64.0
"""A factor is at most this, and at least its inverse."""
MOST_STEP: Final = 4.0
"""By how much one task may change the expected time of one like it."""
RELAXATION: Final = 0.5
"""Part of the way to a task's equation: halves what was wrong, and averages over noise."""
_LEAST_S: Final = 1e-6

MOST_KEPT: Final = 64
_Key = Annotated[str, Meta(max_length=100)]
Factor = Annotated[float, Meta(ge=1 / MOST_FACTOR, le=MOST_FACTOR)]


class Corrections(Strict, frozen=True):
    """Factors of expected times after so many tasks: the version, 0 without any.

    `factors` are by kind of operator. `types` are by type of task, the last ones that ran: what kinds alone cannot say,
    such as wrong sizes and the cost of starting.
    """

    version: Annotated[int, Meta(ge=0)] = 0
    factors: Annotated[dict[_Key, Factor], Meta(max_length=MOST_KEPT)] = msgspec.field(default_factory=dict)
    types: Annotated[dict[_Key, Factor], Meta(max_length=MOST_KEPT)] = msgspec.field(default_factory=dict)

    def factor_of(self, kind: str, task_type: str = "") -> float:
        """Return the factor of a kind in tasks of a type, 1 if unknown."""
        return self.factors.get(kind, 1.0) * self.types.get(task_type, 1.0)


def corrected(
    before: Corrections, expected_s: Mapping[str, float], measured_s: float, task_type: str = ""
) -> Corrections:
    """Return corrections after a task whose operators of each kind were to take `expected_s`, and took `measured_s`.

    `expected_s` were computed with `before`, or with an earlier version. A task without a type corrects kinds alone.
    """
    shares = {kind: seconds for kind, seconds in expected_s.items() if seconds > 0 and math.isfinite(seconds)}
    total_s = sum(shares.values())
    if total_s < _LEAST_S or not (math.isfinite(measured_s) and measured_s > 0):
        return before
    limit = math.log(MOST_STEP)
    # Not the logarithm of the ratio, which may be rounded to 0.
    error = min(max(math.log(measured_s) - math.log(total_s), -limit), limit)
    norm = sum((seconds / total_s) ** 2 for seconds in shares.values())
    factors, types = dict(before.factors), dict(before.types)
    of_kinds = RELAXATION * (1 - RELAXATION) if task_type else RELAXATION
    for kind, seconds in shares.items():
        factors[kind] = _moved(factors.get(kind, 1.0), of_kinds * error * (seconds / total_s) / norm)
    if task_type:
        # Taken out and put back at the end: the type that has not run for longest goes first.
        types[task_type] = _moved(types.pop(task_type, 1.0), RELAXATION * error)
    return Corrections(
        version=before.version + 1,
        factors=dict(list(factors.items())[:MOST_KEPT]),
        types=dict(list(types.items())[-MOST_KEPT:]),
    )


def _moved(factor: float, step: float) -> float:
    return min(max(factor * math.exp(step), 1 / MOST_FACTOR), MOST_FACTOR)
