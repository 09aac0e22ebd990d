"""Estimates: how long work takes, between which bounds, and how that is known; the form in which all who know answer.

Probes, the acceleration model and history answer with an `Estimate`; schedulers combine and rank them.
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
