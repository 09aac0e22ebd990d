"""Device of each operator: by the ratio of the CPU's time to that of each other choice, against a preset."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from controller.acceleration.errors import AccelerationError
from controller.acceleration.model.columns import TimeColumns, Works
from controller.acceleration.model.times import times
from controller.acceleration.values import CPU, Accelerator, Decision, Growth, Machines, Work
from controller.cluster.estimates import Basis

_STREAMS: Final = frozenset({Growth.LINEAR, Growth.GROUPED})
"""Classes that stream their input, so that an accelerator need not hold it."""


@dataclass(frozen=True, eq=False)
class Choice:
    """A place other than the CPU for operators: their times there, and why each may not run ('': it may)."""

    label: str
    times: TimeColumns
    refusals: tuple[str, ...]


def decide(
    works: Works,
    machines: Machines,
    accelerators: Sequence[Accelerator],
    preset: float = 1.0,
    others: Sequence[Choice] = (),
    *,
    tie_band: float = 0.0,
) -> tuple[Decision, ...]:
    """Return for each operator the choice with the greatest ratio if it is above the preset, else the CPU.

    Up to 1 + `tie_band` a ratio counts as a tie, and the CPU is chosen, too. `others` are choices whose times come from
    elsewhere (the switch). Raise AccelerationError for a preset below 1, a negative band, and a duplicate label.
    """
    choices = [*(choice_of(works, machines, accelerator) for accelerator in accelerators), *others]
    return decided(works, times(works, machines), choices, preset, tie_band=tie_band)


def decided(
    works: Works, on_cpu: TimeColumns, choices: Sequence[Choice], preset: float, *, tie_band: float = 0.0
) -> tuple[Decision, ...]:
    """Return the result of `decide` for existing CPU times and choices; raise as it does."""
    if not 1 <= preset < math.inf:
        raise AccelerationError(f"a preset of {preset} is not finite and at least 1", at="preset")
    if not 0 <= tie_band < math.inf:
        raise AccelerationError(f"a tie band of {tie_band} is not finite and at least 0", at="tie_band")
    labels = [choice.label for choice in choices]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise AccelerationError(f"two choices have the label {twice}", at="accelerators")
    return tuple(
        _decided(work, row, on_cpu, choices, preset, tie_band=tie_band) for row, work in enumerate(works.items)
    )


def threshold_of(preset: float, tie_band: float) -> float:
    """Return the ratio above which another choice replaces the CPU."""
    return max(preset, 1 + tie_band)


def choice_of(works: Works, machines: Machines, accelerator: Accelerator) -> Choice:
    """Return an accelerator as a choice: its times, and what it cannot run."""
    refusals = tuple(_refusal(work, accelerator) for work in works.items)
    return Choice(accelerator.label, times(works, machines, accelerator), refusals)


def ratio_of(cpu_s: float, other_s: float) -> float | None:
    """Return the speed-up of the other, infinite if it takes no time, None if neither does."""
    if other_s == 0:
        return math.inf if cpu_s > 0 else None
    return cpu_s / other_s


def _refusal(work: Work, device: Accelerator) -> str:
    if device.runs is not None and work.kind not in device.runs:
        return f"it does not run {work.kind or 'operators without a kind'}"
    other_gb = work.other_gb if work.growth is Growth.HASH_JOIN else 0.0
    held_gb = (work.input_gb + other_gb) * work.skew
    if work.growth not in _STREAMS and held_gb > device.memory_gb:
        return f"{held_gb:.4g} GB do not fit in its {device.memory_gb:.4g} GB of memory"
    return ""


def _decided(
    work: Work, row: int, on_cpu: TimeColumns, choices: Sequence[Choice], preset: float, *, tie_band: float
) -> Decision:
    if work.basis is Basis.NONE:
        return Decision(work, CPU, {}, None, (work.unknown, "its time is unknown: the CPU is used"), work.basis)
    by_device = {CPU: on_cpu[row]}
    reasons, best, device = [], None, CPU
    for choice in choices:
        if refusal := choice.refusals[row]:
            reasons.append(f"{choice.label}: {refusal}")
            continue
        by_device[choice.label] = choice.times[row]
        ratio = ratio_of(by_device[CPU].total_s, by_device[choice.label].total_s)
        reasons.append(_compared(choice.label, ratio, preset, tie_band))
        if ratio is not None and (best is None or ratio > best):
            best, device = ratio, choice.label
    tied = ""
    if best is None or not best > threshold_of(preset, tie_band):
        tied = device if best is not None and best > preset else ""
        device = CPU
    return Decision(work, device, by_device, best, tuple(reasons) or ("the CPU is the only choice",), work.basis, tied)


def _compared(label: str, ratio: float | None, preset: float, tie_band: float) -> str:
    if ratio is None:
        return f"{label}: nothing to compute or to move, so nothing to gain"
    above = "above" if ratio > preset else "not above"
    is_tie = preset < ratio <= threshold_of(preset, tie_band)
    tie = f", but within the tie band of {tie_band:g} around 1" if is_tie else ""
    return f"{label}: the CPU takes {ratio:.4g} times as long, {above} the preset of {preset:g}{tie}"
