"""Which kernel of the library resembles an operator most, and whether that is enough."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller.cluster.operators.values import Operator, OperatorGraph
from controller.schedulers.probe.matching.similarity import Similarity, similarity
from controller.schedulers.probe.values import Match, ProbeKernel

Threshold = float
DEFAULT_THRESHOLD: Final[Threshold] = 0.6


def match(
    graph: OperatorGraph, library: Iterable[ProbeKernel], *, threshold: Threshold = DEFAULT_THRESHOLD
) -> tuple[Match, ...]:
    """Return, for each operator of a graph in its order, the kernel that resembles it most; no match is an answer."""
    kernels = tuple(library)
    return tuple(match_operator(operator, kernels, graph.category, threshold=threshold) for operator in graph.operators)


def match_operator(
    operator: Operator,
    library: Iterable[ProbeKernel],
    category: str = "",
    *,
    threshold: Threshold = DEFAULT_THRESHOLD,
) -> Match:
    """Return the kernel that resembles an operator most, None with its nearest miss where that is below the threshold.

    Kernels of the operator's category of tasks go before others as long as one of them is similar enough.
    """
    kernels = tuple(library)
    if not kernels:
        return Match(operator.name, None, 0.0, reason="no match: the library is empty")
    narrowed = tuple(kernel for kernel in kernels if kernel.category == category)
    found, alike = max(
        ((kernel, similarity(operator, as_operator(kernel))) for kernel in narrowed or kernels),
        key=lambda pair: pair[1].value,
    )
    if narrowed and alike.value < threshold:
        return match_operator(operator, kernels, threshold=threshold)
    if alike.value < threshold:
        reason = f"no match: nearest is {found.identifier} with {alike.value:.2f} < {threshold:.2f}"
        return Match(operator.name, None, alike.value, reason=reason)
    return Match(operator.name, found, alike.value, operator.shape, 1.0, _reason(operator, found, alike))


def as_operator(kernel: ProbeKernel) -> Operator:
    """Return the operator that a kernel executes at its own sizes."""
    return Operator(kernel.identifier, kernel.operator, kernel.sizes, kernel.number_format, code=kernel.code)


def _reason(operator: Operator, kernel: ProbeKernel, alike: Similarity) -> str:
    return (
        f"{operator.kind} is {kernel.identifier} with {alike.value:.2f}: kind {alike.kind:.2f},"
        f" format {alike.number_format:.2f}, sizes {alike.sizes:.2f}"
    )
