"""Matching a target's operators with the library's probe kernels, by structure."""

from __future__ import annotations

from controller.schedulers.probe.matching.choosing import Threshold, match, match_operator
from controller.schedulers.probe.matching.similarity import similarity

__all__ = ["Threshold", "match", "match_operator", "similarity"]
