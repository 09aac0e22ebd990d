"""Policies by name: those that are there, and those of installed packages, by their entry points."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec

from controller.common.errors import SchedulerError
from controller.scheduling.framework.devices import LeastLeft
from controller.scheduling.framework.filters import DeviceModel, FitsResources, NetworkNeed, Ready, StatedLocation
from controller.scheduling.framework.scores import LeastUsed, MostUsed, NetworkCost, Spread

GROUP: Final = "millrace.schedulers.policies"
"""The group of entry points; an entry's name is the policy's, its object the class."""

BUILT_IN: Final[Mapping[str, Callable[..., Any]]] = {
    "ready": Ready,
    "location": StatedLocation,
    "device-model": DeviceModel,
    "fits": FitsResources,
    "network-need": NetworkNeed,
    "least-used": LeastUsed,
    "most-used": MostUsed,
    "network-cost": NetworkCost,
    "spread": Spread,
    "least-left": LeastLeft,
}

CONTAINERS: Final[Mapping[str, str]] = {
    "device-threshold": "thresholds:DeviceThreshold",
    "one-a-node": "reduction:OneANode",
    "tree-cost": "reduction:TreeCost",
    "image-locality": "images:ImageLocality",
    "device-fit": "fit:DeviceFit",
    "best-fit": "fit:BestFit",
    "dot-product": "fit:DotProduct",
    "random": "fit:RandomFit",
    "fragmentation": "fragmentation:Fragmentation",
    "stranding": "stranding:Stranding",
}
"""Policies of the scheduler for containers, in modules of that package: it stands on this one, so they are named."""

TASKS: Final[Mapping[str, str]] = {
    "centre-ready": "filters:CentreReady",
    "stated": "filters:Stated",
    "units-exist": "filters:UnitsExist",
    "operators": "filters:Operators",
    "probed": "filters:Probed",
    "firm-estimate": "filters:FirmEstimate",
    "efficient": "filters:Efficient",
    "all-units": "filters:AllUnits",
    "reachable": "filters:Reachable",
    "finish-time": "scores:FinishTime",
    "thrift": "scores:Thrift",
    "good-hours": "scores:GoodHours",
}
"""Policies of tasks, likewise; they rank units of centres, not nodes."""
ACCELERATION: Final[Mapping[str, str]] = {"operator-devices": "policies.tasks:OperatorDevices"}
"""Policies of tasks that go by the acceleration model."""
ACCELERATION_OF_PODS: Final[Mapping[str, str]] = {"operator-devices": "policies.pods:PodDevices"}
"""Those of pods: one of the same name is the same for both."""
LEARNING: Final[Mapping[str, str]] = {"learned": "policy.pods:Learned"}
"""Policies of pods that go by what an agent has learned."""
LEARNING_OF_TASKS: Final[Mapping[str, str]] = {"learned": "policy.tasks:LearnedTasks"}
"""Those of tasks: one of the same name is the same for both, with centres in place of nodes."""
_PLACES: Final = (
    (CONTAINERS, "controller.scheduling.containers"),
    (LEARNING, "controller.learning"),
    (ACCELERATION_OF_PODS, "controller.acceleration"),
)
_PLACES_OF_TASKS: Final = (
    (TASKS, "controller.scheduling.dispatch"),
    (ACCELERATION, "controller.acceleration"),
    (LEARNING_OF_TASKS, "controller.learning"),
)


def make_policy(
    name: str, settings: Mapping[str, object], methods: tuple[str, ...], *, is_of_tasks: bool = False
) -> Any:  # noqa: ANN401 - a policy
    """Return a policy of pods, or of tasks, that has these methods, made with its settings.

    Raise SchedulerError, in one line, for a name that nothing has, a plug-in that does not load or lacks something, and
    settings that it does not take.
    """
    made_by = _named(name, _PLACES_OF_TASKS) if is_of_tasks else BUILT_IN.get(name) or _named(name, _PLACES)
    made_by = made_by or _load(name, is_of_tasks=is_of_tasks)
    kind = getattr(made_by, "Settings", None)
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        raise SchedulerError(f"policy {name}: it has no Settings")
    try:
        made = made_by(msgspec.convert(dict(settings), kind))
    except msgspec.ValidationError as error:
        raise SchedulerError(f"policy {name}: settings: {error}") from None
    except Exception as error:  # a plug-in may raise what it likes
        raise SchedulerError(f"policy {name}: it cannot be made: {_line(error)}") from error
    if missing := [method for method in methods if not hasattr(made, method)]:
        raise SchedulerError(f"policy {name}: it has no {', '.join(missing)}, so it cannot stand here")
    return made


def known_policies() -> tuple[str, ...]:
    """Return the names of all policies, those of plug-ins last."""
    own = (*BUILT_IN, *CONTAINERS, *LEARNING, *TASKS, *ACCELERATION)
    return (*own, *sorted(entry.name for entry in entry_points(group=GROUP) if entry.name not in own))


def _named(name: str, all_places: Sequence[tuple[Mapping[str, str], str]]) -> Callable[..., Any] | None:
    """Return a policy of the packages that stand on this one."""
    for places, package in all_places:
        if (place := places.get(name)) is not None:
            module, _, kind = place.partition(":")
            found: Callable[..., Any] = getattr(import_module(f"{package}.{module}"), kind)
            return found
    return None


def _load(name: str, *, is_of_tasks: bool) -> Callable[..., Any]:
    pods, tasks = {*BUILT_IN, *CONTAINERS, *LEARNING, *ACCELERATION_OF_PODS}, {*TASKS, *ACCELERATION}
    others, mine = (pods, tasks) if is_of_tasks else (tasks, pods)
    if name in others:
        what = ("pods", "tasks") if is_of_tasks else ("tasks", "pods")
        raise SchedulerError(f"policy {name} is of {what[0]}; those of {what[1]} are {', '.join(sorted(mine))}")
    found: list[EntryPoint] = [entry for entry in entry_points(group=GROUP) if entry.name == name]
    if not found:
        raise SchedulerError(f"there is no policy {name!r}; there are {', '.join(known_policies())}")
    if len(found) > 1:
        raise SchedulerError(
            f"policy {name}: {' and '.join(sorted(entry.value for entry in found))} both have the name"
        )
    try:
        loaded: Callable[..., Any] = found[0].load()
    except Exception as error:  # a plug-in may raise what it likes
        raise SchedulerError(f"policy {name}: {found[0].value} does not load: {_line(error)}") from error
    return loaded


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
