"""Cost of moving intermediates: the bus time of operators that is saved if neighbours are on the same device.

By itself an operator on an accelerator brings in its input and takes out its output. In a plan the edge between two
operators pays for that, and pays nothing if both are on one device that holds the data. The edges of a result with
several readers (the plan's user is one) share the cost of taking it out equally. With every operator by itself the sums
are those of the model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from controller.acceleration.model import Choice, TimeColumns, Works
from controller.acceleration.plans.values import Floats, Plan, Problem
from controller.acceleration.values import Accelerator
from controller.cluster.estimates import Basis


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
    parts = np.array([readers[one] + (one in plan.ends) for one in src.tolist()])
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
        seconds[:, at] = np.where([bool(one) for one in choice.refusals], np.inf, choice.times.total_s)
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
