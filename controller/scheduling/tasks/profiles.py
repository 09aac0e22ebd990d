"""Profiles of tasks: named ways to decide; `measured` is the one to use, the others are for comparison."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal, Self

import numpy as np

from controller.apiserver.resources.base import Name
from controller.scheduling.framework.plugins import TASKS
from controller.scheduling.framework.policies import Ids, NoSettings
from controller.scheduling.framework.profiles import NamedFilter, PolicySettings, Profile
from controller.scheduling.tasks.filters import UnitsFree
from controller.scheduling.tasks.values import PendingTask, TimedOptions
from dataplane.config import Strict

NO_UNITS: Final = "no-units"
"""Name of the filter that refuses options whose units are held for an unknown time."""

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
    order: Literal["rank", "arrival"] = "rank"
    """Order of the tasks of a graph: the longest path to its end first, or as they were submitted."""


MEASURED = TaskProfileSettings()
ALL_UNITS = TaskProfileSettings(name="all-units", filters=_named(*_FIRST, "all-units", *_LAST))
ACCELERATED = TaskProfileSettings(
    name="accelerated", scores=(*MEASURED.scores, PolicySettings(policy="operator-devices"))
)
"""`measured` with operators assigned to devices: the program is told, and units where they gain count more."""
HEFT = TaskProfileSettings(name="heft", scores=(PolicySettings(policy="finish-time"),))
"""Heterogeneous earliest finish time: tasks of graphs by rank, each where it ends first."""
FIXED_BENCHMARK = TaskProfileSettings(name="fixed-benchmark", benchmark=("fixed-dgemm", "fixed-stream"))


@dataclass(frozen=True)
class TaskProfile(Profile[PendingTask, TimedOptions]):
    """A profile of tasks with its policies constructed. Its last filter refuses options with an unknown start.

    Ties go to the option that begins first, then to the one with the fewest units, then to the first in order.
    """

    kind = TASKS

    benchmark: tuple[str, ...] = ()
    order: str = "rank"

    @classmethod
    def of(cls, settings: TaskProfileSettings) -> Self:
        """Return the profile for settings; raise SchedulerError, naming it, for invalid ones."""
        profile = super().of(settings)
        return replace(profile, filters=(*profile.filters, NamedFilter(NO_UNITS, UnitsFree(NoSettings()))))

    def pick(self, subject: PendingTask, candidates: TimedOptions, best: Ids) -> int:  # noqa: ARG002 - equal for all tasks
        """Return the option to take of those with the most points."""
        order = np.lexsort((best, candidates.options.units[best], candidates.start_s[best]))
        return int(best[order[0]])

    @classmethod
    def _others(cls, settings: Any) -> dict[str, Any]:  # noqa: ANN401 - settings of tasks
        return {"benchmark": settings.benchmark, "order": settings.order}
