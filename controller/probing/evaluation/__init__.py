"""Evaluation of probe results: scores, how far more units help, and how much to trust a centre's figures.

All of it is pure: results, clock and random generator are arguments.
"""

from __future__ import annotations

from controller.probing.evaluation.averages import Averaged, averaged
from controller.probing.evaluation.efficiency import Threshold, Verdict, threshold_of, units_for
from controller.probing.evaluation.estimating import estimate_of, lowered
from controller.probing.evaluation.policy import Policy, load_policy, policy_of, resource_of
from controller.probing.evaluation.scoring import RunScore, score, scored
from controller.probing.evaluation.trust import TRUSTED, Evidence, Trust, TrustSettings, trust_of

__all__ = [
    "TRUSTED",
    "Averaged",
    "Evidence",
    "Policy",
    "RunScore",
    "Threshold",
    "Trust",
    "TrustSettings",
    "Verdict",
    "averaged",
    "estimate_of",
    "load_policy",
    "lowered",
    "policy_of",
    "resource_of",
    "score",
    "scored",
    "threshold_of",
    "trust_of",
    "units_for",
]
