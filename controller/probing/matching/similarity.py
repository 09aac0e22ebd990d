"""Similarity of two operators, 0 to 1: by what they compute, their number formats, and their sizes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from controller.cluster.operators.tracing.syntax import Tree, parsed
from controller.cluster.operators.values import Operator
from controller.probing.matching.references import references
from controller.probing.matching.sizing import as_kind
from dataplane.topology.values import NumberFormat

# Similarity of two syntax trees by their pq-grams.
#
# A pq-gram is a node with p - 1 of its ancestors and q of its children in a row (Augsten, Böhlen and Gamper,
# Approximate Matching of Hierarchical Data Using pq-Grams, VLDB 2005). Trees that differ in few places share most of
# them, and counting them takes time n log n where an edit distance takes n^3.


_P, _Q = 2, 2
_NONE: Final = "*"
Gram = tuple[str, ...]


def tree_similarity(first: str, other: str) -> float:
    """Return the similarity of two normalised trees, 0 to 1: symmetric, 1 for equal ones, 0 for invalid text."""
    if not first or not other:
        return 0.0
    if first == other:
        return 1.0
    left, right = _profile(first), _profile(other)
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


_KIND, _FORMAT, _SIZES = 0.6, 0.2, 0.2
"""Contributions of the same kind, of equal formats and of equal sizes."""
_HALF_AT_DOUBLINGS: Final = 16.0
"""Doublings at which sizes count half: a use runs at the target's sizes, whatever the kernel's are."""
_OTHER_WIDTH: Final = 0.5
"""Similarity of numbers of the same sort in other widths."""

_RELATIVES: Final[Mapping[frozenset[str], float]] = {
    frozenset(pair): value
    for value, pairs in (
        (0.9, (("axpy", "stream-triad"), ("complex-gemm", "gemm"), ("complex-gemv", "gemv"), ("complex-dot", "dot"))),
        (0.85, (("solve", "factorise"), ("dot", "reduction"), ("spmm", "spmv"), ("elementwise", "stream-triad"))),
        (0.8, (("inverse", "factorise"), ("inverse", "solve"), ("copy", "elementwise"), ("elementwise", "axpy"))),
        (0.75, (("cholesky", "factorise"), ("cholesky", "solve"), ("copy", "stream-triad"), ("table-scan", "filter"))),
        (0.7, (("solve", "gemm"), ("factorise", "gemm"), ("scan", "reduction"), ("top-n", "filter"))),
        (0.65, (("cholesky", "gemm"), ("inverse", "gemm"))),
    )
    for pair in pairs
}
"""Kinds with the same bottleneck.

Most of a factorisation is products of its blocks (Golub and Van Loan, Matrix Computations, 3.2), operations on each of
many numbers wait for the same memory.
"""


@dataclass(frozen=True, slots=True)
class Similarity:
    """Similarity of two operators, and its parts; each is 1 for the same and 0 for nothing in common.

    `kind` compares what they compute: 1 for one kind, less for relatives; for users' code, the similarity of the syntax
    trees.
    """

    value: float
    kind: float
    number_format: float
    sizes: float


def similarity(first: Operator, other: Operator) -> Similarity:
    """Return the similarity of two operators: symmetric, 1 for the same, whatever their names."""
    kind = _kind_similarity(first, other)
    number_format = _format_similarity(first.number_format, other.number_format)
    sizes = max(_size_similarity(first, other), _size_similarity(other, first))
    return Similarity(kind * (_KIND + _FORMAT * number_format + _SIZES * sizes), kind, number_format, sizes)


def _kind_similarity(first: Operator, other: Operator) -> float:
    if first.code and other.code:
        return tree_similarity(first.code, other.code)
    if first.code or other.code:
        user, named = (first, other) if first.code else (other, first)
        if user.kind == named.kind:
            return 1.0
        return max((tree_similarity(user.code, form) for form in references(named.kind)), default=0.0)
    return 1.0 if first.kind == other.kind else _RELATIVES.get(frozenset((first.kind, other.kind)), 0.0)


def _format_similarity(first: NumberFormat | None, other: NumberFormat | None) -> float:
    # Rows, bytes and Python objects have no format: that counts neither way.
    if first is other or first is None or other is None:
        return 1.0
    return _OTHER_WIDTH if _is_integer(first) == _is_integer(other) else 0.0


def _is_integer(number_format: NumberFormat) -> bool:
    return number_format.value.startswith("int")


def _size_similarity(first: Operator, other: Operator) -> float:
    """Return the similarity of sizes, those of one operator in the other's terms."""
    here, there = dict(as_kind(first, other.kind).shape), dict(other.shape)
    shared = here.keys() & there.keys()
    if not shared:
        return 1.0 if not first.shape and not other.shape else 0.0
    parts = [1 / (1 + _doublings(here[name], there[name]) / _HALF_AT_DOUBLINGS) for name in sorted(shared)]
    return sum(parts) / len(parts)


def _doublings(first: int, other: int) -> float:
    return abs(math.log2(max(first, 1)) - math.log2(max(other, 1)))
