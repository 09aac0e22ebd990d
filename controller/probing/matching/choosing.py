"""Chooses the library's kernel that resembles an operator most, if it resembles it enough."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from controller.cluster.operators.values import Operator, OperatorGraph
from controller.probing.matching.similarity import Similarity, similarity
from controller.probing.matching.sizing import sizes_as, work_ratio
from controller.probing.values import Library, Match, ProbeKernel, sizes_of

THRESHOLD: Final = 0.6
"""Least similarity of a match: most hand-written forms of a kind reach it among each other, other code does not."""
_OF_ALL: Final = frozenset({"memory", "io", "network"})
"""Categories that are no class of tasks: programs of all classes move bytes."""
_CATEGORY: Final = 0.05
"""Bonus of a kernel of the task's category."""


def match(graph: OperatorGraph, library: Iterable[ProbeKernel], *, threshold: float = THRESHOLD) -> tuple[Match, ...]:
    """Return, for each operator of a graph in its order, the kernel that resembles it most; no match is a valid answer.

    Compares kinds and their relations, number formats, sizes, and the normalised syntax trees of users' functions, but
    not names. Of kernels that are about equally similar, one of the graph's category goes before others.
    """
    kernels = tuple(library)
    return tuple(match_operator(operator, kernels, graph.category, threshold=threshold) for operator in graph.operators)


def match_operator(
    operator: Operator, library: Iterable[ProbeKernel], category: str = "", *, threshold: float = THRESHOLD
) -> Match:
    """Return the kernel that resembles an operator most; or, below the threshold, no match and the reason."""
    ranked = _ranked(operator, tuple(library), category)
    if not ranked:
        return Match(operator.name, None, 0.0, reason="no match: the library is empty")
    kernel, alike = ranked[0]
    if alike.value < threshold:
        return Match(operator.name, None, alike.value, reason=_why_not(operator, kernel, alike, threshold))
    defaults = dict(kernel.sizes)
    sizes = {name: size for name, size in (sizes_as(operator, kernel.operator) or {}).items() if name in defaults}
    here = Operator.of(operator.name, kernel.operator, defaults | sizes, operator.number_format or kernel.number_format)
    scale = (work_ratio(operator, here) or 1.0) if not operator.code else 1.0
    return Match(
        operator.name,
        kernel,
        alike.value,
        sizes_of(sizes),
        scale,
        _why(operator, kernel, alike),
        _library(operator, kernel),
    )


def as_operator(kernel: ProbeKernel) -> Operator:
    """Return the operator that a kernel executes at its own sizes."""
    return Operator(kernel.identifier, kernel.operator, kernel.sizes, kernel.number_format, code=kernel.code)


def _ranked(operator: Operator, kernels: Sequence[ProbeKernel], category: str) -> list[tuple[ProbeKernel, Similarity]]:
    """Return kernels with their similarity, the best first; of a kernel's versions the newest goes first."""
    ranked = [(kernel, similarity(operator, as_operator(kernel))) for kernel in kernels]
    preferred = _OF_ALL | {category}

    def rank(pair: tuple[ProbeKernel, Similarity]) -> tuple[float, int, str]:
        kernel, alike = pair
        ahead = _CATEGORY if kernel.category in preferred else 0.0
        return -(alike.value + ahead), -kernel.version, kernel.identifier

    return sorted(ranked, key=rank)


def _library(operator: Operator, kernel: ProbeKernel) -> Library | None:
    """Return the library that the target uses, if the kernel is implemented with it."""
    return next(
        (
            implementation.library
            for implementation in kernel.implementations
            if implementation.library.value == operator.library
        ),
        None,
    )


def _why(operator: Operator, kernel: ProbeKernel, alike: Similarity) -> str:
    what = "its code" if operator.code else operator.kind
    like = f"is {kernel.operator}" if alike.kind == 1.0 else f"is like {kernel.operator} ({alike.kind:.2f})"
    return f"{what} {like}; format {alike.number_format:.2f}, sizes {alike.sizes:.2f}"


def _why_not(operator: Operator, kernel: ProbeKernel, alike: Similarity, threshold: float) -> str:
    what = "its code" if operator.code else operator.kind
    if alike.kind == 0.0:
        return f"no match: no kernel computes {'anything like it' if operator.code else f'{what} or anything like it'}"
    why = f"{what} and {kernel.operator} have similarity {alike.kind:.2f}"
    return f"no match: the nearest is {kernel.identifier} with {alike.value:.2f} of {threshold:.2f}: {why}"
