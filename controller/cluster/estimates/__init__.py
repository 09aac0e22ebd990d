"""Estimates of how long work takes, with bounds and basis; the common form for all estimators.

Probes, the acceleration model and history return an `Estimate`; schedulers combine and rank them.
"""

from __future__ import annotations

from controller.cluster.estimates.combine import repeated, scaled, successive, together
from controller.cluster.estimates.errors import EstimateError
from controller.cluster.estimates.order import Comparison, Ranking, compare, rank
from controller.cluster.estimates.values import Baseline, Basis, Estimate

__all__ = [
    "Baseline",
    "Basis",
    "Comparison",
    "Estimate",
    "EstimateError",
    "Ranking",
    "compare",
    "rank",
    "repeated",
    "scaled",
    "successive",
    "together",
]
