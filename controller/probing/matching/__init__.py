"""Matching a target's operators with the library's probe kernels, by structure."""

from __future__ import annotations

from controller.probing.matching.choosing import THRESHOLD, match, match_operator
from controller.probing.matching.similarity import Similarity, similarity, tree_similarity

__all__ = ["THRESHOLD", "Similarity", "match", "match_operator", "similarity", "tree_similarity"]
