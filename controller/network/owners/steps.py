"""Steps of a change that concerns several switches: which updates may be sent together, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from controller.network.tables.entities import EntityKey, Update


class Phase(StrEnum):
    """Half of make-before-break that a step belongs to."""

    MAKE = "make"
    BREAK = "break"


@dataclass(frozen=True, slots=True)
class Step:
    """Updates by switch that may be sent together, when every earlier step is acknowledged."""

    phase: Phase
    updates: Mapping[str, tuple[Update, ...]]


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Steps in order, and the entries that must wait because a switch they need is not there, or refused them."""

    steps: tuple[Step, ...] = ()
    pending: frozenset[EntityKey] = frozenset()


NO_STEPS = UpdatePlan()


def merged(plans: Sequence[UpdatePlan]) -> UpdatePlan:
    """Return independent plans as one: their steps are merged, everything that makes before everything that breaks."""
    steps: list[Step] = []
    for phase in Phase:
        sequences = [[step for step in plan.steps if step.phase is phase] for plan in plans]
        for index in range(max(map(len, sequences), default=0)):
            updates: dict[str, tuple[Update, ...]] = {}
            for step in (sequence[index] for sequence in sequences if index < len(sequence)):
                for name, more in step.updates.items():
                    updates[name] = (*updates.get(name, ()), *more)
            steps.append(Step(phase, updates))
    return UpdatePlan(tuple(steps), frozenset[EntityKey]().union(*(plan.pending for plan in plans)))
