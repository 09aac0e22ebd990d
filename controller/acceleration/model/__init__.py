"""The acceleration model: times of operators in parts, vectorised and exact, ratios, decisions, the worked cases."""

from __future__ import annotations

from controller.acceleration.model.columns import TimeColumns, Works
from controller.acceleration.model.deciding import Choice, choice_of, decide, decided, ratio_of, threshold_of
from controller.acceleration.model.exact import ExactTimes, exact_ratio, exact_times
from controller.acceleration.model.times import rounds_of, senders_of, times

__all__ = [
    "Choice",
    "ExactTimes",
    "TimeColumns",
    "Works",
    "choice_of",
    "decide",
    "decided",
    "exact_ratio",
    "exact_times",
    "ratio_of",
    "rounds_of",
    "senders_of",
    "threshold_of",
    "times",
]
