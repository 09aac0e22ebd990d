"""A plan explained: each operator's class, times and ratio alone, its device in the plan, and what would flip it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from controller.acceleration.model import Choice, TimeColumns, Works, choice_of, decided, threshold_of, times
from controller.acceleration.plans.flips import Ground, Rivals, flips_of
from controller.acceleration.plans.placing import place
from controller.acceleration.plans.values import (
    Explained,
    ExplainedOperator,
    Flip,
    Floats,
    Placement,
    Plan,
    Problem,
)
from controller.acceleration.values import CPU, Accelerator, Decision, Machines
from controller.cluster.estimates import Basis

# Cost of moving intermediates: the bus time of operators that is saved if neighbours are on the same device.
#
# By itself an operator on an accelerator brings in its input and takes out its output. In a plan the edge between two
# operators pays for that, and pays nothing if both are on one device that holds the data. The edges of a result with
# several readers (the plan's user is one) share the cost of taking it out equally. With every operator by itself the
# sums are those of the model.


@dataclass(frozen=True, eq=False)
class Crossings:
    """Seconds to bring an edge's data into a device and to take it out, [edge, device]; and whether it can stay."""

    comes: Floats
    leaves: Floats
    stays: np.ndarray[tuple[int, int], np.dtype[np.bool_]]


def crossings_of(plan: Plan, works: Works, accelerators: Sequence[Accelerator], choices: int) -> Crossings:
    """Return the data that crosses the buses of accelerators, devices 1, 2, ...; later devices have no bus."""
    shape = (len(plan.edges), choices)
    comes, leaves, stays = np.zeros(shape), np.zeros(shape), np.ones(shape, np.bool_)
    if not plan.edges:
        return Crossings(comes, leaves, stays)
    src, dst = (np.array([getattr(edge, side) for edge in plan.edges]) for side in ("src", "dst"))
    gb = np.array([edge.gb for edge in plan.edges])
    read = np.bincount(dst, gb, len(works))
    # Input from other operators is at most the whole input.
    gb *= np.minimum(1.0, np.divide(works.goes_in, read, out=np.ones_like(read), where=read > 0))[dst]
    readers = Counter(edge.src for edge in plan.edges)
    parts = np.array([readers[source] + (source in plan.ends) for source in src.tolist()])
    out_gb = works.output * np.where(works.is_grouped, 1.0, works.skew)
    for at, device in enumerate(accelerators, start=1):
        comes[:, at] = gb * works.skew[dst] / device.bus_gb_per_s
        leaves[:, at] = out_gb[src] / parts / device.bus_gb_per_s
        stays[:, at] = out_gb[src] <= device.memory_gb
    return Crossings(comes, leaves, stays)


def problem_of(
    plan: Plan, on_cpu: TimeColumns, choices: Sequence[Choice], crossings: Crossings, preset: float = 1.0
) -> Problem:
    """Return the minimisation problem; a choice's seconds, and its moves, count `preset` times."""
    count = len(choices) + 1
    seconds = np.empty((len(plan.works), count))
    seconds[:, 0] = on_cpu.total_s
    for at, choice in enumerate(choices, start=1):
        seconds[:, at] = np.where([bool(refusal) for refusal in choice.refusals], np.inf, choice.times.total_s)
    np.subtract.at(seconds, [edge.src for edge in plan.edges], crossings.leaves)
    np.subtract.at(seconds, [edge.dst for edge in plan.edges], crossings.comes)
    np.maximum(seconds, 0.0, out=seconds)
    seconds[:, 1:] *= preset
    for at, work in enumerate(plan.works):
        if work.basis is Basis.NONE:
            seconds[at] = [0.0, *([np.inf] * len(choices))]
    moves = crossings.leaves[:, :, None] + crossings.comes[:, None, :]
    on_one = np.arange(count)
    moves[:, on_one, on_one] = np.where(crossings.stays, 0.0, moves[:, on_one, on_one])
    return Problem(seconds, tuple((edge.src, edge.dst) for edge in plan.edges), moves * preset)


Others = Callable[[Works], Sequence[Choice]]
"""Choices that are not machines' accelerators (the switch), for the given works."""


@dataclass(frozen=True, eq=False)
class _Placed:
    """A plan with its problem, with and without the preset's weight, and the decision, with and without a tie band."""

    plan: Plan
    labels: tuple[str, ...]
    decisions: tuple[Decision, ...]
    plain: Problem
    placement: Placement
    without_band: Placement
    tie_band: float
    into: tuple[tuple[int, ...], ...]
    out_of: tuple[tuple[int, ...], ...]


def explain(
    plan: Plan,
    machines: Machines,
    accelerators: Sequence[Accelerator],
    *,
    preset: float = 1.0,
    others: Others | None = None,
    tie_band: float = 0.0,
) -> Explained:
    """Return a plan with a device for each operator that minimises the time of all operators and moves.

    As for one operator, a device other than the CPU must be `preset` times as fast, and faster by more than `tie_band`.
    Raise AccelerationError as `decide` does.
    """
    works = Works.of(plan.works)
    on_cpu = times(works, machines)
    choices = [
        *(choice_of(works, machines, accelerator) for accelerator in accelerators),
        *(others(works) if others else ()),
    ]
    decisions = decided(works, on_cpu, choices, preset, tie_band=tie_band)
    threshold = threshold_of(preset, tie_band)
    crossings = crossings_of(plan, works, accelerators, len(choices) + 1)
    placement = place(problem_of(plan, on_cpu, choices, crossings, threshold))
    has_band = threshold > preset
    placed = _Placed(
        plan,
        (CPU, *(choice.label for choice in choices)),
        decisions,
        problem_of(plan, on_cpu, choices, crossings),
        placement,
        place(problem_of(plan, on_cpu, choices, crossings, preset)) if has_band else placement,
        tie_band if has_band else 0.0,
        *_neighbours(plan),
    )
    device_of: list[Accelerator | None] = [*accelerators, *([None] * (len(choices) - len(accelerators)))]
    pairs = {choice.label: (choice, device) for choice, device in zip(choices, device_of, strict=True)}
    flips = _flips(Ground(works, machines, on_cpu, pairs, threshold), placed)
    operators = tuple(_explained(placed, row, flips.get(row, ())) for row in range(len(plan.works)))
    return _summed(placed, operators, on_cpu, machines, preset)


def _neighbours(plan: Plan) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    into: list[list[int]] = [[] for _ in plan.works]
    out_of: list[list[int]] = [[] for _ in plan.works]
    for at, edge in enumerate(plan.edges):
        into[edge.dst].append(at)
        out_of[edge.src].append(at)
    return tuple(map(tuple, into)), tuple(map(tuple, out_of))


def _seconds_on(placed: _Placed, row: int, device: int) -> float:
    """Return an operator's seconds on a device, given its neighbours' devices: its own, and all of its moves."""
    problem, devices = placed.plain, placed.placement.devices
    seconds = float(problem.seconds[row, device])
    seconds += sum(float(problem.moves[at, devices[problem.edges[at][0]], device]) for at in placed.into[row])
    return seconds + sum(float(problem.moves[at, device, devices[problem.edges[at][1]]]) for at in placed.out_of[row])


def _flips(ground: Ground, placed: _Placed) -> dict[int, tuple[Flip, ...]]:
    rivals = [found for row in range(len(placed.plan.works)) if (found := _rivals(ground, placed, row)) is not None]
    return dict(zip((rival.row for rival in rivals), flips_of(ground, rivals), strict=True))


def _rivals(ground: Ground, placed: _Placed, row: int) -> Rivals | None:
    """Return an operator's device, or the runner-up to the CPU, against the CPU; None if there is no choice."""
    if placed.plan.works[row].basis is Basis.NONE:
        return None
    device = placed.placement.devices[row]
    allowed = [at for at in range(1, len(placed.labels)) if placed.labels[at] in placed.decisions[row].times]
    if not allowed:
        return None
    other = device or min(allowed, key=lambda at: _seconds_on(placed, row, at))
    label = placed.labels[other]
    own_s = float(ground.on_cpu.total_s[row])
    other_s = float(ground.choices[label][0].times.total_s[row])
    # The cost of bringing data out of a neighbour's device for the CPU is weighted like its other times.
    moves_cpu_s = ground.threshold * (_seconds_on(placed, row, 0) - own_s)
    return Rivals(row, label, moves_cpu_s, _seconds_on(placed, row, other) - other_s, device == 0)


def _explained(placed: _Placed, row: int, flips: tuple[Flip, ...]) -> ExplainedOperator:
    decision, devices = placed.decisions[row], placed.placement.devices
    operator = placed.plan.graph.operator[decision.work.name]
    moved_s = sum(
        float(placed.plain.moves[at, devices[placed.plain.edges[at][0]], devices[row]]) for at in placed.into[row]
    )
    reads = tuple(flow.src for flow in placed.plan.graph.into[operator.name])
    device = placed.labels[devices[row]]
    without = placed.labels[placed.without_band.devices[row]]
    tied = "" if without == device else without
    why = _why(placed, row, device)
    if tied:
        why += f"; without the tie band of {placed.tie_band:g} on the {tied}"
    return ExplainedOperator(decision, device, operator.signature, reads, moved_s, why, flips, tied)


def _why(placed: _Placed, row: int, device: str) -> str:
    decision = placed.decisions[row]
    if device == decision.device:
        return "; ".join(decision.reasons)
    here = _seconds_on(placed, row, placed.labels.index(device))
    alone = _seconds_on(placed, row, placed.labels.index(decision.device))
    return (
        f"alone on the {decision.device} (ratio {_ratio(decision)}); with its neighbours {here:.4g} s"
        f" on the {device}, {alone:.4g} s on the {decision.device}, data moves included"
    )


def _ratio(decision: Decision) -> str:
    return "unknown" if decision.ratio is None else f"{decision.ratio:.4g}"


def _summed(
    placed: _Placed,
    operators: tuple[ExplainedOperator, ...],
    on_cpu: TimeColumns,
    machines: Machines,
    preset: float,
) -> Explained:
    rows = [row for row, work in enumerate(placed.plan.works) if work.basis is not Basis.NONE]
    alone = [placed.decisions[row] for row in rows]
    reasons: tuple[str, ...] = ()
    if unknown := [work.name for work in placed.plan.works if work.basis is Basis.NONE]:
        reasons = (f"not counted, as their time is unknown: {', '.join(unknown)}",)
    return Explained(
        placed.plan.graph.name,
        machines,
        preset,
        placed.labels,
        operators,
        placed.plan.edges,
        placed.placement.method,
        placed.plain.cost_s(placed.placement.devices),
        sum(decision.times[decision.device].total_s for decision in alone),
        sum(float(on_cpu.total_s[row]) for row in rows),
        reasons,
        placed.tie_band,
    )
