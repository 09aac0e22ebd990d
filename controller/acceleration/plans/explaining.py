"""A plan explained: each operator's class, times and ratio alone, its device in the plan, and what would flip it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from controller.acceleration.model import Choice, TimeColumns, Works, choice_of, decided, times
from controller.acceleration.plans.flips import Ground, Rivals, flips_of
from controller.acceleration.plans.moving import crossings_of, problem_of
from controller.acceleration.plans.placing import place
from controller.acceleration.plans.values import (
    Explained,
    ExplainedOperator,
    Flip,
    Placement,
    Plan,
    Problem,
)
from controller.acceleration.values import CPU, Accelerator, Decision, Machines
from controller.cluster.estimates import Basis

Others = Callable[[Works], Sequence[Choice]]
"""Choices that are not machines' accelerators (the switch), for the given works."""


@dataclass(frozen=True, eq=False)
class _Placed:
    """A plan with its problem, with and without the preset's weight, and the decision."""

    plan: Plan
    labels: tuple[str, ...]
    decisions: tuple[Decision, ...]
    plain: Problem
    placement: Placement
    into: tuple[tuple[int, ...], ...]
    out_of: tuple[tuple[int, ...], ...]


def explain(
    plan: Plan,
    machines: Machines,
    accelerators: Sequence[Accelerator],
    *,
    preset: float = 1.0,
    others: Others | None = None,
) -> Explained:
    """Return a plan with a device for each operator that minimises the time of all operators and moves.

    As for one operator, a device other than the CPU must be `preset` times as fast. Raise AccelerationError as `decide`
    does.
    """
    works = Works.of(plan.works)
    on_cpu = times(works, machines)
    choices = [*(choice_of(works, machines, one) for one in accelerators), *(others(works) if others else ())]
    decisions = decided(works, on_cpu, choices, preset)
    crossings = crossings_of(plan, works, accelerators, len(choices) + 1)
    placement = place(problem_of(plan, on_cpu, choices, crossings, preset))
    placed = _Placed(
        plan,
        (CPU, *(one.label for one in choices)),
        decisions,
        problem_of(plan, on_cpu, choices, crossings),
        placement,
        *_neighbours(plan),
    )
    device_of: list[Accelerator | None] = [*accelerators, *([None] * (len(choices) - len(accelerators)))]
    pairs = {one.label: (one, device) for one, device in zip(choices, device_of, strict=True)}
    flips = _flips(Ground(works, machines, on_cpu, pairs, preset), placed)
    operators = tuple(_explained(placed, row, flips.get(row, ())) for row in range(len(plan.works)))
    return _summed(placed, operators, on_cpu, machines, preset)


def _neighbours(plan: Plan) -> tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]:
    into: list[list[int]] = [[] for _ in plan.works]
    out_of: list[list[int]] = [[] for _ in plan.works]
    for at, edge in enumerate(plan.edges):
        into[edge.dst].append(at)
        out_of[edge.src].append(at)
    return tuple(map(tuple, into)), tuple(map(tuple, out_of))


def _beside(placed: _Placed, row: int, device: int) -> float:
    """Return an operator's seconds on a device, given its neighbours' devices: its own, and all of its moves."""
    problem, devices = placed.plain, placed.placement.devices
    found = float(problem.seconds[row, device])
    found += sum(float(problem.moves[at, devices[problem.edges[at][0]], device]) for at in placed.into[row])
    return found + sum(float(problem.moves[at, device, devices[problem.edges[at][1]]]) for at in placed.out_of[row])


def _flips(ground: Ground, placed: _Placed) -> dict[int, tuple[Flip, ...]]:
    rivals = [found for row in range(len(placed.plan.works)) if (found := _rivals(ground, placed, row)) is not None]
    return dict(zip((one.row for one in rivals), flips_of(ground, rivals), strict=True))


def _rivals(ground: Ground, placed: _Placed, row: int) -> Rivals | None:
    """Return an operator's device, or the runner-up to the CPU, against the CPU; None if there is no choice."""
    if placed.plan.works[row].basis is Basis.NONE:
        return None
    device = placed.placement.devices[row]
    allowed = [at for at in range(1, len(placed.labels)) if placed.labels[at] in placed.decisions[row].times]
    if not allowed:
        return None
    other = device or min(allowed, key=lambda at: _beside(placed, row, at))
    label = placed.labels[other]
    own_s = float(ground.on_cpu.total_s[row])
    other_s = float(ground.choices[label][0].times.total_s[row])
    # The cost of bringing data out of a neighbour's device for the CPU is weighted like its other times.
    moves_cpu_s = ground.preset * (_beside(placed, row, 0) - own_s)
    return Rivals(row, label, moves_cpu_s, _beside(placed, row, other) - other_s, device == 0)


def _explained(placed: _Placed, row: int, flips: tuple[Flip, ...]) -> ExplainedOperator:
    decision, devices = placed.decisions[row], placed.placement.devices
    operator = placed.plan.graph.operator[decision.work.name]
    moved_s = sum(
        float(placed.plain.moves[at, devices[placed.plain.edges[at][0]], devices[row]]) for at in placed.into[row]
    )
    reads = tuple(flow.src for flow in placed.plan.graph.into[operator.name])
    device = placed.labels[devices[row]]
    return ExplainedOperator(decision, device, operator.signature, reads, moved_s, _why(placed, row, device), flips)


def _why(placed: _Placed, row: int, device: str) -> str:
    decision = placed.decisions[row]
    if device == decision.device:
        return "; ".join(decision.reasons)
    here = _beside(placed, row, placed.labels.index(device))
    alone = _beside(placed, row, placed.labels.index(decision.device))
    return (
        f"by itself on the {decision.device} (ratio {_ratio(decision)}); beside its neighbours {here:.4g} s"
        f" on the {device}, {alone:.4g} s on the {decision.device}, with what moving its data takes"
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
    known = [row for row, one in enumerate(placed.plan.works) if one.basis is not Basis.NONE]
    alone = [placed.decisions[row] for row in known]
    told: tuple[str, ...] = ()
    if unknown := [one.name for one in placed.plan.works if one.basis is Basis.NONE]:
        told = (f"not counted, as their time is not known: {', '.join(unknown)}",)
    return Explained(
        placed.plan.graph.name,
        machines,
        preset,
        placed.labels,
        operators,
        placed.plan.edges,
        placed.placement.method,
        placed.plain.cost_s(placed.placement.devices),
        sum(one.times[one.device].total_s for one in alone),
        sum(float(on_cpu.total_s[row]) for row in known),
        told,
    )
