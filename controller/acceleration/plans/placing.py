"""Joint placement of a plan's operators on devices, minimising the time of all operators and moves.

Over a tree (each result has at most one reader) dynamic programming from the leaves is exact. Otherwise all
combinations of devices are tried for results with several readers, if there are not too many, and the rest is a forest;
between two devices a minimum cut is exact for any graph, as no move has a negative cost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from controller.acceleration.plans.values import Floats, Method, Placement, Problem

if TYPE_CHECKING:
    import networkx as nx

MOST_COMBINATIONS: Final = 4096
"""Maximum combinations of shared results' devices to try exhaustively."""
_GAIN: Final = 1e-12
"""Relative gain below which a difference is rounding."""

Numbers = npt.NDArray[np.intp]


def place(problem: Problem, most: int = MOST_COMBINATIONS) -> Placement:
    """Return a device for each operator; ties go to the first, and so to the CPU."""
    readers = Counter(src for src, _ in problem.edges)
    shared = tuple(sorted(source for source, count in readers.items() if count > 1))
    choices = problem.seconds.shape[1]
    if not shared:
        return _best_of(problem, shared, np.zeros((1, 0), np.intp), Method.TREE)
    if choices ** len(shared) <= most:
        return _best_of(problem, shared, _all_of(choices, len(shared)), Method.CONDITIONED)
    if choices == 2:
        return _cut(problem)
    return _searched(problem, shared)


def exhaustive(problem: Problem) -> Placement:
    """Return the minimum over all combinations, tried one by one: the twin of `place`, for small plans."""
    operators, choices = problem.seconds.shape
    combinations = [tuple(map(int, combination)) for combination in _all_of(choices, operators)]
    best = min(combinations, key=problem.cost_s)
    return Placement(best, problem.cost_s(best), Method.TREE)


@dataclass(frozen=True, eq=False)
class _Tables:
    """Least seconds up to each operator [combination, device], and the source device of each edge."""

    costs: Floats
    best: list[Floats]
    came: list[Numbers | None]


def _best_of(problem: Problem, shared: tuple[int, ...], fixed: Numbers, method: Method) -> Placement:
    tables = _tables(problem, shared, fixed)
    row = int(tables.costs.argmin())
    devices = _devices(problem, shared, fixed[row], tables, row)
    return Placement(devices, problem.cost_s(devices), method)


def _tables(problem: Problem, shared: Sequence[int], fixed: Numbers) -> _Tables:
    """Fill the tables of dynamic programming for each row of `fixed`, devices of shared operators."""
    place_of = {operator: at for at, operator in enumerate(shared)}
    into = _into(problem)
    reads = {src for src, _ in problem.edges}
    rows = np.arange(len(fixed))
    costs = np.zeros(len(fixed))
    best: list[Floats] = []
    came: list[Numbers | None] = [None] * len(problem.edges)
    for operator, own in enumerate(problem.seconds):
        total = np.repeat(own[None, :], len(fixed), axis=0)
        for edge, src in into[operator]:
            if src in place_of:
                total += problem.moves[edge][fixed[:, place_of[src]]]
            else:
                through = best[src][:, :, None] + problem.moves[edge][None]
                came[edge] = through.argmin(axis=1)
                total += through.min(axis=1)
        best.append(total)
        if operator in place_of:
            costs += total[rows, fixed[:, place_of[operator]]]
        elif operator not in reads:
            costs += total.min(axis=1)
    return _Tables(costs, best, came)


def _devices(problem: Problem, shared: Sequence[int], fixed: Numbers, tables: _Tables, row: int) -> tuple[int, ...]:
    """Trace back from the roots to the leaves."""
    into = _into(problem)
    devices = {operator: int(device) for operator, device in zip(shared, fixed, strict=True)}
    for operator in reversed(range(len(problem.seconds))):
        device = devices.setdefault(operator, int(tables.best[operator][row].argmin()))
        for edge, src in into[operator]:
            if (came := tables.came[edge]) is not None:
                devices[src] = int(came[row, device])
    return tuple(devices[operator] for operator in range(len(problem.seconds)))


def _into(problem: Problem) -> list[list[tuple[int, int]]]:
    into: list[list[tuple[int, int]]] = [[] for _ in range(len(problem.seconds))]
    for at, (src, dst) in enumerate(problem.edges):
        into[dst].append((at, src))
    return into


def _all_of(choices: int, count: int) -> Numbers:
    """Return all combinations, [combination, place], the last place changing fastest."""
    return np.indices((choices,) * count).reshape(count, -1).T.astype(np.intp)


def _cut(problem: Problem) -> Placement:
    """Return the minimum between two devices: operators on the CPU's side of a minimum cut, and the others."""
    import networkx as nx  # noqa: PLC0415 - not needed for plans of queries, and takes a quarter of a second

    graph = nx.DiGraph()
    graph.add_nodes_from(("cpu", "other"))
    for operator, (on_cpu, elsewhere) in enumerate(problem.seconds):
        _arc(graph, "cpu", operator, float(elsewhere))
        _arc(graph, operator, "other", float(on_cpu))
    for (src, dst), move in zip(problem.edges, problem.moves, strict=True):
        # Split the four costs of an edge into each operator's own and the cost of being on different devices.
        (neither, comes), (leaves, both) = move.tolist()
        _own(graph, src, leaves - neither)
        _own(graph, dst, both - leaves)
        _arc(graph, src, dst, comes + leaves - neither - both)
    _, (cpu, _) = nx.minimum_cut(graph, "cpu", "other")
    devices = tuple(int(operator not in cpu) for operator in range(len(problem.seconds)))
    return Placement(devices, problem.cost_s(devices), Method.CUT)


def _own(graph: nx.DiGraph, operator: int, more: float) -> None:
    """Add an operator's cost difference between the other device and the CPU."""
    _arc(graph, *(("cpu", operator, more) if more >= 0 else (operator, "other", -more)))


def _arc(graph: nx.DiGraph, src: object, dst: object, capacity: float) -> None:
    before = graph.edges[src, dst]["capacity"] if graph.has_edge(src, dst) else 0.0
    graph.add_edge(src, dst, capacity=before + capacity)


def _searched(problem: Problem, shared: tuple[int, ...]) -> Placement:
    """Change the device of one shared result at a time while that gains, the rest by dynamic programming."""
    choices = problem.seconds.shape[1]
    own = problem.seconds.argmin(axis=1)[list(shared)]
    allowed = [
        [device if np.isfinite(problem.seconds[operator, device]) else 0 for operator in shared]
        for device in range(choices)
    ]
    starts = np.array([*allowed, own], np.intp)
    costs = _tables(problem, shared, starts).costs
    current, least = starts[int(costs.argmin())], float(costs.min())
    while True:
        beside = np.repeat(current[None, :], len(shared) * choices, axis=0)
        beside[np.arange(len(beside)), np.repeat(np.arange(len(shared)), choices)] = np.tile(
            np.arange(choices), len(shared)
        )
        costs = _tables(problem, shared, beside).costs
        if not float(costs.min()) < least * (1 - _GAIN):
            return _best_of(problem, shared, current[None, :], Method.SEARCH)
        current, least = beside[int(costs.argmin())], float(costs.min())
