"""Task profiles: named ways to decide; `measured` is the one to use, the others are for comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from controller.apiserver.resources.base import Name
from controller.common.errors import SchedulerError
from controller.scheduling.dispatch.policies import TaskFilter, TaskScore
from controller.scheduling.framework.plugins import make_policy
from controller.scheduling.framework.profiles import MOST_WEIGHT, PolicySettings
from dataplane.config import Strict

_FIRST = ("centre-ready", "stated", "units-exist", "operators", "probed", "firm-estimate")
_LAST = ("reachable",)


def _named(*policies: str) -> tuple[PolicySettings, ...]:
    return tuple(PolicySettings(policy=policy) for policy in policies)


class TaskProfileSettings(Strict, frozen=True):
    """A way to decide about tasks: `filters` in order, then the weighted sum of `scores`.

    `benchmark` lists probe tasks, run one after the other, whose run time alone ranks all tasks, whatever they compute:
    a fixed benchmark. Empty: the probes of each task's own type.
    """

    name: Name = "measured"
    filters: tuple[PolicySettings, ...] = _named(*_FIRST, "efficient", *_LAST)
    scores: tuple[PolicySettings, ...] = (
        PolicySettings(policy="finish-time", weight=2),
        PolicySettings(policy="good-hours"),
    )
    benchmark: tuple[Name, ...] = ()


MEASURED = TaskProfileSettings()
ALL_UNITS = TaskProfileSettings(name="all-units", filters=_named(*_FIRST, "all-units", *_LAST))
ACCELERATED = TaskProfileSettings(
    name="accelerated", scores=(*MEASURED.scores, PolicySettings(policy="operator-devices"))
)
"""As `measured`, but operators are assigned to devices: the program is told, and units where they gain count more."""
FIXED_BENCHMARK = TaskProfileSettings(name="fixed-benchmark", benchmark=("fixed-dgemm", "fixed-stream"))


@dataclass(frozen=True, slots=True)
class NamedTaskFilter:
    """A filter and its name."""

    name: str
    policy: TaskFilter


@dataclass(frozen=True, slots=True)
class WeightedTaskScore:
    """A score, its name and its weight."""

    name: str
    weight: int
    policy: TaskScore


@dataclass(frozen=True, slots=True)
class TaskProfile:
    """A profile with its policies constructed."""

    name: str
    filters: tuple[NamedTaskFilter, ...]
    scores: tuple[WeightedTaskScore, ...]
    benchmark: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: TaskProfileSettings) -> TaskProfile:
        """Return the profile for settings; raise SchedulerError, naming it, for invalid ones."""
        try:
            filters = tuple(NamedTaskFilter(one.policy, _policy(one, ("passes", "reason"))) for one in settings.filters)
            scores = tuple(
                WeightedTaskScore(one.policy, one.weight, _policy(one, ("points", "reason"))) for one in settings.scores
            )
        except SchedulerError as error:
            raise SchedulerError(f"task profile {settings.name}: {error}") from None
        return cls(settings.name, filters, scores, settings.benchmark)


def task_profiles_of(settings: Sequence[TaskProfileSettings]) -> dict[str, TaskProfile]:
    """Return profiles by name; raise SchedulerError for a duplicate name."""
    found: dict[str, TaskProfile] = {}
    for one in settings:
        if one.name in found:
            raise SchedulerError(f"task profile {one.name} is there twice")
        found[one.name] = TaskProfile.of(one)
    return found


def _policy(settings: PolicySettings, methods: tuple[str, ...]) -> Any:  # noqa: ANN401 - a policy
    is_filter = "passes" in methods
    if is_filter and settings.weight != 1:
        raise SchedulerError(f"policy {settings.policy}: a filter has no weight")
    if not 1 <= settings.weight <= MOST_WEIGHT:
        raise SchedulerError(f"policy {settings.policy}: a weight of {settings.weight} is not 1 to {MOST_WEIGHT}")
    return make_policy(settings.policy, settings.settings, methods, is_of_tasks=True)
