"""Plans: devices for all operators of a plan, including the cost of moves between them, and what would flip them."""

from __future__ import annotations

from controller.acceleration.plans.explaining import explain
from controller.acceleration.plans.mixing import mixed
from controller.acceleration.plans.placing import place
from controller.acceleration.plans.values import (
    Explained,
    ExplainedOperator,
    Flip,
    Method,
    Placement,
    Plan,
    Problem,
    Quantity,
)
from controller.acceleration.plans.works import ROOT, SUMS, Reading, Stated, plan_of, reading_of_statement

__all__ = [
    "ROOT",
    "SUMS",
    "Explained",
    "ExplainedOperator",
    "Flip",
    "Method",
    "Placement",
    "Plan",
    "Problem",
    "Quantity",
    "Reading",
    "Stated",
    "explain",
    "mixed",
    "place",
    "plan_of",
    "reading_of_statement",
]
