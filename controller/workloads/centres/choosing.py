"""Unit types that can run a set of kernels, and the centre's choice of type and number among them; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from controller.apiserver.resources.centre import UnitType
from controller.probing.values import ProbeTask
from dataplane.topology.values import DeviceKind


def can_run(types: Sequence[UnitType], probe: ProbeTask | None, units: int = 1) -> tuple[str, ...]:
    """Return the unit types that support every kernel of a probe and have enough units, sorted by name.

    Tasks other than probes need no kernel.
    """
    kernels = set() if probe is None else set(probe.kernels)
    devices = set() if probe is None else {use.device for use in probe.uses} - {DeviceKind.CPU}
    return tuple(
        sorted(
            unit.name
            for unit in types
            if unit.count >= max(units, 1)
            and kernels <= set(unit.operators)
            and devices <= {kind for need in unit.unit.devices for kind in need.kinds}
        )
    )


def missing_kernels(types: Sequence[UnitType], probe: ProbeTask) -> tuple[str, ...]:
    """Return the kernels of a probe that no unit type supports, sorted."""
    return tuple(sorted(set(probe.kernels) - {kernel for unit in types for kernel in unit.operators}))


def pick(types: Sequence[UnitType], able: Sequence[str], taken: Mapping[str, int], units: int) -> str | None:
    """Return the type that the centre picks: the one with the most free units, if they are enough.

    Ties go to the smallest units, to keep large ones for tasks that need them; None if no type has enough.
    """
    free = {unit.name: unit.for_tasks - taken.get(unit.name, 0) for unit in types}
    fitting = [unit for unit in types if unit.name in able and free[unit.name] >= units]
    if not fitting:
        return None
    best = min(fitting, key=lambda unit: (-free[unit.name], unit.unit.cpu_milli, unit.unit.memory_bytes, unit.name))
    return best.name


def pick_with_count(
    types: Sequence[UnitType], able: Sequence[str], taken: Mapping[str, int], counts: Sequence[int], promised: int = 0
) -> tuple[str, int] | None:
    """Return the type that `pick` chooses, and the largest of `counts` that is free, or else 1; None if none is free.

    `promised` units stay free for tasks whose type is still to be picked.
    """
    name = pick(types, able, taken, 1)
    if name is None:
        return None
    free = next(unit.for_tasks for unit in types if unit.name == name) - taken.get(name, 0) - promised
    return name, max((count for count in counts if count <= free), default=1)
