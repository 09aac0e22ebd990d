"""Break-evens: the rate, data size or CPU time at which an operator of a plan changes its device, all else equal.

Each is where the CPU's seconds are `threshold` times those of the other choice, including moves to and from the devices
of the operator's neighbours: the preset, or 1 plus the tie band if that is more. Rates and CPU times have a closed
form, because parts of the seconds are proportional to them; data sizes only matter if a part is not proportional to
data (sorts, groups, delays): these are searched.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from controller.acceleration.model import Choice, TimeColumns, Works, times
from controller.acceleration.plans.values import Flip, Floats, Quantity
from controller.acceleration.values import (
    CPU,
    Accelerator,
    Growth,
    Machines,
    TransferModel,
)

_REACH: Final = 1e6
"""Data sizes are searched over this factor in both directions."""
_GRID: Final = np.linspace(0.0, 1.0, 25)
_REFINEMENTS: Final = 4
_BYTES_PER_GB: Final = 1e9


@dataclass(frozen=True, slots=True)
class Rivals:
    """An operator's choice against the CPU: their moves with neighbours as placed, and the current winner."""

    row: int
    label: str
    moves_cpu_s: float
    moves_other_s: float
    is_on_cpu: bool


@dataclass(frozen=True, eq=False)
class Ground:
    """Inputs of the times: works, machines, and the choices with their accelerators (None: the switch)."""

    works: Works
    machines: Machines
    on_cpu: TimeColumns
    choices: dict[str, tuple[Choice, Accelerator | None]]
    threshold: float


def flips_of(ground: Ground, rivals: Sequence[Rivals]) -> list[tuple[Flip, ...]]:
    """Return for each operator what would flip it, in the order rate, data, CPU time."""
    sizes = _data_flips(ground, rivals)
    return [
        (_rate_flip(ground, rival), size, _cpu_flip(ground, rival)) for rival, size in zip(rivals, sizes, strict=True)
    ]


def _to(rivals: Rivals) -> str:
    return rivals.label if rivals.is_on_cpu else CPU


def _rate_flip(ground: Ground, rivals: Rivals) -> Flip:
    choice = ground.choices[rivals.label][0].times
    delay_s = 0.0 if ground.works.items[rivals.row].stays else _delay_s(ground.machines)
    packed = _packed(ground, rivals)
    own_s = float(ground.on_cpu.transfer_s[rivals.row]) - delay_s
    other_s = float(choice.transfer_s[rivals.row]) - packed * delay_s
    rest_s = float(ground.on_cpu.total_s[rivals.row]) - own_s + rivals.moves_cpu_s
    rest_other_s = float(choice.total_s[rivals.row]) - other_s + rivals.moves_other_s
    slower = _root(rest_s - ground.threshold * rest_other_s, own_s - ground.threshold * other_s)
    if slower is None:
        return Flip(Quantity.RATE, _to(rivals))
    rate = ground.machines.network.rate_gbit_per_s / slower
    return Flip(Quantity.RATE, _to(rivals), rate, 1 / slower)


def _cpu_flip(ground: Ground, rivals: Rivals) -> Flip:
    choice, work = ground.choices[rivals.label][0].times, ground.works.items[rivals.row]
    own_s = float(ground.on_cpu.compute_s[rivals.row] + ground.on_cpu.aggregation_s[rivals.row])
    other_s = float(choice.compute_s[rivals.row] + choice.aggregation_s[rivals.row])
    rest_s = float(ground.on_cpu.total_s[rivals.row]) - own_s + rivals.moves_cpu_s
    rest_other_s = float(choice.total_s[rivals.row]) - other_s + rivals.moves_other_s
    longer = _root(rest_s - ground.threshold * rest_other_s, own_s - ground.threshold * other_s)
    if longer is None:
        return Flip(Quantity.CPU_TIME, _to(rivals))
    factor = math.sqrt(longer) if work.growth is Growth.SQUARE else longer
    return Flip(Quantity.CPU_TIME, _to(rivals), work.cpu_s_per_100mb * factor, factor)


def _root(constant: float, slope: float) -> float | None:
    """Return the x above 0 where constant + slope x is 0, None without one."""
    if slope == 0 or constant == 0:
        return None
    root = -constant / slope
    return root if 0 < root < math.inf else None


def _data_flips(ground: Ground, rivals: Sequence[Rivals]) -> list[Flip]:
    """Search data sizes for the operators whose seconds are not proportional to their data, all at once."""
    flips = {rival.row: Flip(Quantity.DATA, _to(rival)) for rival in rivals}
    for label, (_, device) in ground.choices.items():
        mine = [rival for rival in rivals if rival.label == label and _is_bent(ground, rival)]
        if device is None or not mine:
            continue
        for rival, factor in zip(mine, _searched(ground, device, mine).tolist(), strict=True):
            if math.isfinite(factor):
                gb = float(ground.works.goes_in[rival.row]) * ground.machines.count * factor
                flips[rival.row] = Flip(Quantity.DATA, _to(rival), gb, factor)
    return [flips[rival.row] for rival in rivals]


def _is_bent(ground: Ground, rivals: Rivals) -> bool:
    work = ground.works.items[rivals.row]
    has_groups = work.growth is Growth.GROUPED and work.groups is not None and work.output_gb is None
    return work.growth is Growth.SORT or has_groups or _delay_s(ground.machines) > 0


def _searched(ground: Ground, device: Accelerator, mine: Sequence[Rivals]) -> Floats:
    """Return for each operator the factor of data nearest to 1 where the better choice changes, infinite if none."""
    edge, factors = math.log(_REACH), np.full(len(mine), np.inf)
    low, high, left = np.full(len(mine), -edge), np.full(len(mine), edge), np.arange(len(mine))
    for _ in range(_REFINEMENTS):
        grid = low[:, None] + (high - low)[:, None] * _GRID
        gains = _gains(ground, device, [mine[row] for row in left.tolist()], np.exp(grid)) > 0
        changes = gains[:, :-1] != gains[:, 1:]
        left, grid, changes = (part[changes.any(axis=1)] for part in (left, grid, changes))
        if not left.size:
            return factors
        rows = np.arange(len(left))
        nearest = np.where(changes, np.abs(grid[:, :-1] + grid[:, 1:]), np.inf).argmin(axis=1)
        low, high = grid[rows, nearest], grid[rows, nearest + 1]
    factors[left] = np.exp((low + high) / 2)
    return factors


def _gains(ground: Ground, device: Accelerator, mine: Sequence[Rivals], factors: Floats) -> Floats:
    """Return the CPU's seconds minus `threshold` times the device's, with the data scaled: [operator, factor]."""
    scaled = _scaled(ground.works, [rival.row for rival in mine], factors)
    own_s = times(scaled, ground.machines).total_s.reshape(factors.shape)
    other_s = times(scaled, ground.machines, device).total_s.reshape(factors.shape)
    moves = np.array([(rival.moves_cpu_s, rival.moves_other_s) for rival in mine])
    gains: Floats = own_s + moves[:, :1] * factors - ground.threshold * (other_s + moves[:, 1:] * factors)
    return gains


def _scaled(works: Works, rows: Sequence[int], factors: Floats) -> Works:
    """Return some operators with their data scaled, one for each factor, as one batch; groups stay the same."""
    count = factors.shape[1]
    at, factor = np.repeat(np.array(rows), count), factors.ravel()
    items = [works.items[row] for row in rows]
    columns = {
        name: getattr(works, name)[at]
        for name in (
            "t",
            "other_t",
            "merge_t",
            "skew",
            "rows_per_gb",
            "is_square",
            "is_sort",
            "is_grouped",
            "grows",
            "stays",
        )
    }
    output = works.output[at] * factor
    for index, work in enumerate(items):
        if work.growth is Growth.GROUPED and work.groups is not None and work.output_gb is None:
            part = slice(index * count, (index + 1) * count)
            most = work.input_gb * factor[part] * _BYTES_PER_GB / work.row_bytes
            output[part] = np.minimum(work.groups, most) * work.group_bytes / _BYTES_PER_GB
    return replace(
        works,
        items=tuple(work for work in items for _ in range(count)),
        d=works.d[at] * factor,
        other_d=works.other_d[at] * factor,
        output=output,
        **columns,
    )


def _packed(ground: Ground, rivals: Rivals) -> float:
    device = ground.choices[rivals.label][1]
    return 1.0 if device is None or device.compression is None else device.compression.ratio


def _delay_s(machines: Machines) -> float:
    if machines.transfer is TransferModel.SUM or machines.network.rounds is None:
        return 0.0
    return sum(part.delay_s for part in machines.network.rounds)
