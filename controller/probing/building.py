"""Builds probe tasks: from a target's operators and what they match in the library, or from what an expert wrote.

Pure. Each matched operator becomes a use of its kernel, repeated a thousandth as often as the target executes it, and
the uses are wired as data flows in the target, also where it flows through operators that match nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta

from controller.cluster.operators import Operator, OperatorGraph, work_of
from controller.probing.errors import ProbeError
from controller.probing.library import sizes_for
from controller.probing.matching import THRESHOLD, match
from controller.probing.values import (
    MOST_REPETITIONS,
    MOST_UNMATCHED,
    MOST_USES,
    Implementation,
    KernelUse,
    Library,
    Link,
    Match,
    ProbeKernel,
    ProbeTask,
)
from dataplane.config import Strict
from dataplane.topology.values import DeviceKind

_OTHER: Final = re.compile(r"[^a-z0-9.-]+")
_LONGEST_NAME: Final = 90
"""Longest name of a probe task, with room for a part's number."""


_CATEGORY_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("hpc", "solve", "solver", "dense", "sparse", "linear", "lapack", "fft", "spectral"), "hpc"),
    **dict.fromkeys(("stencil", "grid", "cfd", "climate", "weather", "simulation", "molecular", "finite"), "hpc"),
    **dict.fromkeys(("ai", "ml", "train", "training", "inference", "conv", "convolution", "neural", "model"), "ai"),
    **dict.fromkeys(("llm", "transformer", "learning", "embedding"), "ai"),
    **dict.fromkeys(("sql", "query", "queries", "join", "olap", "etl", "analytics", "report", "table"), "sql"),
    **dict.fromkeys(("io", "storage", "file", "files", "backup", "archive", "checkpoint"), "io"),
    **dict.fromkeys(("network", "transfer", "download", "pull", "copy", "replication", "allreduce"), "network"),
    **dict.fromkeys(("memory", "stream", "graph", "cache", "index"), "memory"),
}
"""Words in users' task types, and the library category that each one names."""
_WORDS: Final = re.compile(r"[a-z0-9]+")


class Unlinked(StrEnum):
    """Treatment of parts between which no data flows."""

    TOGETHER = "together"
    """Sub-tasks of one probe task, run one after another."""
    APART = "apart"
    """One probe task each."""


class BuildSettings(Strict, frozen=True):
    """Settings for building a probe task from a target."""

    ratio: Annotated[int, Meta(ge=1, le=1 << 53)] = 1000
    """Executions in the target per repetition in the probe task."""
    small: Annotated[int, Meta(ge=1, le=10_000)] = 10
    """Counts up to this one are not scaled down."""
    unlinked: Unlinked = Unlinked.TOGETHER
    device: DeviceKind = DeviceKind.CPU
    """Device kind to choose kernels for."""
    limit_s: Annotated[float, Meta(gt=0, le=3600)] = 5.0
    """Longest time that a probe task may run on one unit, once."""
    is_parallel: bool = False
    """Divide kernels over processes even where the target's libraries use one core: the target itself is parallel."""
    seed: Annotated[int, Meta(ge=0, le=1 << 53)] = 0


def repetitions(executions: int, settings: BuildSettings) -> int:
    """Return a kernel's repetitions for this many executions in the target: scaled by the ratio, rounded, at least 1.

    Small counts are not scaled (3000, 2000, 1000 at 1000:1 are 3, 2, 1; 1 stays 1).
    """
    if executions <= settings.small:
        return executions
    return max(1, (2 * executions + settings.ratio) // (2 * settings.ratio))


def category_of(task_type: str) -> str:
    """Return the library category for a task type, by the first of its words that names one; '' if none does."""
    words = (_CATEGORY_WORDS.get(word) for word in _WORDS.findall(task_type.lower()))
    return next((category for category in words if category is not None), "")


def of_target(
    graph: OperatorGraph,
    kernels: Iterable[ProbeKernel],
    settings: BuildSettings | None = None,
    *,
    task_type: str = "",
    seconds: Mapping[str, float] | None = None,
    run_time_s: float | None = None,
    threshold: float = THRESHOLD,
) -> tuple[tuple[ProbeTask, ...], tuple[Match, ...]]:
    """Return the probe tasks of a target and the match of each of its operators; see `build`.

    Kernels of the category that the task type names come first, otherwise those of the graph's own category; kernels of
    other categories follow where none of these resembles an operator.
    """
    available = tuple(kernels)
    if not available:
        raise ProbeError(f"{graph.name}: nothing to measure it by: the library of kernels is empty")
    category = category_of(task_type) or graph.category
    matches = match(replace(graph, category=category), available, threshold=threshold)
    probes = build(graph, matches, settings, task_type=task_type, seconds=seconds, run_time_s=run_time_s)
    return probes, matches


def build(
    graph: OperatorGraph,
    matches: Sequence[Match],
    settings: BuildSettings | None = None,
    *,
    task_type: str = "",
    seconds: Mapping[str, float] | None = None,
    run_time_s: float | None = None,
) -> tuple[ProbeTask, ...]:
    """Return the probe task of a target, or several if its unlinked parts are to run apart.

    `seconds` are the measured total times of the target's operators by name, if known; `run_time_s` is the time of the
    whole target, by default their sum. Raises ProbeError if no operator has matched, if a probe task cannot hold all
    uses, and for matches of other operators.
    """
    settings = settings or BuildSettings()
    costs = _costs(graph, seconds, run_time_s)
    usable = _usable(graph, matches, settings)
    names = _names_of_uses(graph, usable)
    uses = {name: _use(graph.operator[name], usable[name], names[name], settings) for name in names}
    probe = ProbeTask(
        _name_of(graph.name),
        _category(usable.values()),
        tuple(uses.values()),
        tuple(Link(names[src], names[dst]) for src, dst in links_between(graph, uses.keys())),
        task_type,
        graph.name,
        settings.ratio,
        _unmatched(graph, uses.keys()),
        _share(costs, uses.keys()),
        settings.seed,
    )
    return (probe,) if settings.unlinked is Unlinked.TOGETHER else apart(probe, costs)


def links_between(graph: OperatorGraph, kept: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of kept operators between which data flows, directly or through operators that are not kept."""
    chosen, links = set(kept), []
    before: dict[str, dict[str, None]] = {}
    for name in graph.order:
        near: dict[str, None] = {}
        for flow in graph.into[name]:
            near.update({flow.src: None} if flow.src in chosen else before[flow.src])
        before[name] = near
        if name in chosen:
            links += [(src, name) for src in near]
    return tuple(links)


def apart(probe: ProbeTask, costs: Mapping[str, float] | None) -> tuple[ProbeTask, ...]:
    """Return one probe task for each part that no link joins to the others, with its share of the target."""
    if len(probe.parts) == 1:
        return (probe,)
    probes = []
    for number, part in enumerate(probe.parts, 1):
        uses = tuple(use for use in probe.uses if use.name in part)
        probes.append(
            replace(
                probe,
                name=f"{probe.name}-{number}",
                uses=uses,
                links=tuple(link for link in probe.links if link.src in part),
                share_matched=_share(costs, {use.operator for use in uses}),
            )
        )
    return tuple(probes)


def _usable(graph: OperatorGraph, matches: Sequence[Match], settings: BuildSettings) -> dict[str, Match]:
    """Return, by operator, the matches whose kernel has code for the wanted device kind."""
    if strange := next((match.operator for match in matches if match.operator not in graph.operator), None):
        raise ProbeError(f"{graph.name}: a match for {strange}, which is not one of its operators")
    usable = {
        match.operator: match
        for match in matches
        if match.kernel is not None and match.kernel.implementation(settings.device) is not None
    }
    if not usable:
        raise ProbeError(f"{graph.name}: nothing to measure it by: {_why_nothing(graph, matches, settings)}")
    if len(usable) > MOST_USES:
        raise ProbeError(f"{graph.name}: {len(usable)} operators match, a probe task can have at most {MOST_USES} uses")
    return usable


def _why_nothing(graph: OperatorGraph, matches: Sequence[Match], settings: BuildSettings) -> str:
    if not graph.operators:
        return "it has no operators"
    if lacking := [match.kernel.identifier for match in matches if match.kernel is not None]:
        return f"no code for {settings.device.value} of {', '.join(sorted(set(lacking)))}"
    nearest = max(matches, key=lambda match: match.similarity, default=None)
    if nearest is None or not nearest.similarity:
        return f"none of its {len(graph.operators)} operators resembles a kernel of the library"
    detail = f" ({nearest.reason})" if nearest.reason else ""
    return f"no operator resembles a kernel enough; nearest is {nearest.operator} with {nearest.similarity:.2f}{detail}"


def use_names(kernels: Sequence[str]) -> tuple[str, ...]:
    """Return a name for each use of the kernels: the kernel's identifier, numbered if it repeats."""
    often, taken = Counter(kernels), set(kernels)
    names = []
    for kernel in kernels:
        name, number = kernel, 0
        while often[kernel] > 1 and name in taken:
            number += 1
            name = f"{kernel}-{number}"
        taken.add(name)
        names.append(name)
    return tuple(names)


def _names_of_uses(graph: OperatorGraph, usable: Mapping[str, Match]) -> dict[str, str]:
    """Return the uses' names by operator, in the graph's order."""
    chosen = [operator.name for operator in graph.operators if operator.name in usable]
    return dict(zip(chosen, use_names([_kernel(usable[name]).identifier for name in chosen]), strict=True))


def _use(operator: Operator, match: Match, name: str, settings: BuildSettings) -> KernelUse:
    kernel = _kernel(match)
    times = repetitions(operator.executions, settings)
    if times > MOST_REPETITIONS:
        would_do = -(-operator.executions // MOST_REPETITIONS)
        raise ProbeError(
            f"{operator.name}: {operator.executions} executions at {settings.ratio}:1 are {times} repetitions of"
            f" {kernel.identifier}, more than the limit of {MOST_REPETITIONS}: use a ratio of {would_do}"
        )
    return KernelUse(
        name,
        kernel.identifier,
        kernel.version,
        sizes_for(kernel, dict(match.sizes)),
        times,
        operator.executions,
        _code(kernel, settings.device, match.library),
        kernel.tolerance,
        operator.name,
        match.scale,
        kernel.splits if settings.is_parallel else "",
    )


def _kernel(match: Match) -> ProbeKernel:
    if match.kernel is None:
        raise ProbeError(f"{match.operator}: no matching kernel")
    return match.kernel


def _code(kernel: ProbeKernel, device: DeviceKind, library: Library | None = None) -> Implementation:
    implementation = kernel.implementation(device, library)
    if implementation is None:
        devices = ", ".join(sorted({implementation.device.value for implementation in kernel.implementations}))
        raise ProbeError(
            f"kernel {kernel.identifier} version {kernel.version}: no code for {device.value}, only {devices}"
        )
    return implementation


def _category(matches: Iterable[Match]) -> str:
    """Return the category of most matched kernels; of a tie, the first in the alphabet."""
    often = Counter(_kernel(match).category for match in matches)
    return min(often, key=lambda category: (-often[category], category))


def _unmatched(graph: OperatorGraph, matched: Iterable[str]) -> tuple[str, ...]:
    """Return the operators that have no use, at most as many as a probe task can name."""
    matched_names = set(matched)
    names = tuple(operator.name for operator in graph.operators if operator.name not in matched_names)
    if len(names) <= MOST_UNMATCHED:
        return names
    return (*names[: MOST_UNMATCHED - 1], f"and {len(names) - MOST_UNMATCHED + 1} more")


def _share(costs: Mapping[str, float] | None, matched: Iterable[str]) -> float | None:
    """Return the matched operators' part of the target's cost, None if unknown."""
    if costs is None or not (total := sum(costs.values())):
        return None
    return min(1.0, sum(costs.get(name, 0.0) for name in matched) / total)


def _costs(
    graph: OperatorGraph, seconds: Mapping[str, float] | None, run_time_s: float | None
) -> Mapping[str, float] | None:
    """Return the cost of each operator, and under '' the remainder: seconds, otherwise operation counts of one unit."""
    if seconds is not None:
        return {**seconds, "": max(0.0, (run_time_s or 0.0) - sum(seconds.values()))}
    works = {operator.name: work_of(operator) for operator in graph.operators}
    costs: dict[str, float] = {}
    units = set()
    for operator in graph.operators:
        if (work := works[operator.name]) is None or work.operations is None:
            return None
        costs[operator.name] = float(work.operations * operator.executions)
        units.add(work.unit)
    return costs if len(units) == 1 else None


def _name_of(text: str) -> str:
    """Return a graph's name in the form that a probe task allows."""
    return _OTHER.sub("-", text.lower())[:_LONGEST_NAME].strip("-.") or "probe"
