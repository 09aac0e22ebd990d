"""Similarity of two syntax trees by their pq-grams.

A pq-gram is a node with p - 1 of its ancestors and q of its children in a row (Augsten, Böhlen and Gamper, Approximate
Matching of Hierarchical Data Using pq-Grams, VLDB 2005). Trees that differ in few places share most of them, and
counting them takes time n log n where an edit distance takes n^3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from controller.cluster.operators.tracing.syntax import Tree, parsed

_P, _Q = 2, 2
_NONE: Final = "*"
Gram = tuple[str, ...]


def tree_similarity(one: str, other: str) -> float:
    """Return the similarity of two normalised trees, 0 to 1: symmetric, 1 for equal ones, 0 for invalid text."""
    if not one or not other:
        return 0.0
    if one == other:
        return 1.0
    left, right = _profile(one), _profile(other)
    total = left.total() + right.total()
    return 2 * (left & right).total() / total if total else 0.0


@lru_cache(maxsize=4096)
def _profile(text: str) -> Counter[Gram]:
    try:
        tree = parsed(text)
    except ValueError:
        return Counter()
    # The root stands for a function, whatever it does.
    return Counter(gram for child in tree.children for gram in _grams(child, ()))


def _grams(tree: Tree, above: Sequence[str]) -> Iterator[Gram]:
    stack: list[tuple[Tree, tuple[str, ...]]] = [(tree, tuple(above))]
    while stack:
        node, ancestors = stack.pop()
        stem = (*((_NONE,) * (_P - 1 - len(ancestors))), *ancestors[-(_P - 1) :], node.label)
        window = [_NONE] * (_Q - 1) + [child.label for child in node.children] + [_NONE] * (_Q - 1)
        if not node.children:
            yield (*stem, *((_NONE,) * _Q))
        else:
            yield from ((*stem, *window[start : start + _Q]) for start in range(len(window) - _Q + 1))
        stack += [(child, (*ancestors, node.label)) for child in node.children]
