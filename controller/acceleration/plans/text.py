"""An explained plan, as rows for people and as a document for programs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, Final

from controller.acceleration.plans.values import Explained, ExplainedOperator, Flip, Quantity
from controller.acceleration.values import Times

COLUMNS: Final = (
    *("operator", "class", "runs on", "times of", "compute", "aggregate", "transfer", "bus", "pack", "total s"),
    *("ratio", "what would flip it"),
)
_PLAIN: Final = ("the CPU takes", "nothing to compute", "adds up nothing", "the CPU is the only choice")
"""Phrases of reasons that the rows already convey."""
_PARTS: Final = ("compute_s", "aggregation_s", "transfer_s", "bus_s", "compression_s", "total_s")
_UNITS: Final = {Quantity.RATE: "Gbit/s", Quantity.DATA: "GB", Quantity.CPU_TIME: "s for 100 MB"}
_NAMES: Final = {Quantity.RATE: "rate", Quantity.DATA: "data", Quantity.CPU_TIME: "t"}

Cell = str | float | None


def rows_of(explained: Explained) -> Iterator[tuple[Cell, ...]]:
    """Yield a row for each choice of each operator, in seconds; the first one also has the operator's own values."""
    for operator in explained.operators:
        work = operator.decision.work
        heads: tuple[Cell, ...] = (work.name, str(work.growth), operator.device)
        tails: tuple[Cell, ...] = (_rounded(operator.decision.ratio), flips_line(operator))
        if not operator.decision.times:
            yield (*heads, "unknown", *([None] * len(_PARTS)), None, work.unknown)
        for device, times in operator.decision.times.items():
            yield (*heads, device, *(_rounded(getattr(times, part)) for part in _PARTS), *tails)
            heads, tails = ("", "", ""), (None, "")


def flips_line(operator: ExplainedOperator) -> str:
    """Return what would flip an operator's device, in one line."""
    if not operator.flips:
        return "nothing: no choice"
    flips = [_flip_text(flip, flip.value) for flip in operator.flips if flip.value is not None]
    to = operator.flips[0].to
    return f"to {to}: {'; '.join(flips)}" if flips else f"to {to}: no rate, data size or t"


def summary_lines(explained: Explained) -> list[str]:
    """Return what the rows omit, one line each."""
    machines = explained.machines
    by_itself = f"{explained.one_by_one_s:.4g} s with each operator by itself"
    network = f"{machines.network.rate_gbit_per_s:.4g} Gbit/s, transfer {machines.transfer}"
    count = f"{machines.count} machine{'s' if machines.count > 1 else ''}"
    lines = [
        f"{explained.name}: {explained.placed_s:.4g} s as placed, {by_itself}, {explained.cpu_s:.4g} s all on the CPU",
        f"{count}, fan-in {machines.fan_in}, {network}; {limits_of(explained)}",
        f"placed by {explained.method}",
    ]
    for operator in explained.operators:
        if tie := _tie(operator, explained.tie_band):
            lines.append(f"{operator.decision.work.name}: {tie}")
        if operator.device != operator.decision.device:
            lines.append(f"{operator.decision.work.name}: {operator.why}")
        lines += [
            f"{operator.decision.work.name}: {reason}"
            for reason in operator.decision.reasons
            if operator.decision.times and not any(words in reason for words in _PLAIN)
        ]
    return [*lines, *explained.notes]


def limits_of(explained: Explained) -> str:
    """Return the preset, and the tie band if it goes further."""
    return f"preset {explained.preset:g}" + (f", tie band {explained.tie_band:g}" if explained.tie_band else "")


def _tie(operator: ExplainedOperator, tie_band: float) -> str:
    """Return how the tie band changed an operator's device, in the plan or alone; '' if it did not."""
    if operator.tied:
        return f"on the {operator.device} by the tie band of {tie_band:g}, without it on the {operator.tied}"
    if operator.decision.tied:
        return f"alone on the cpu by the tie band of {tie_band:g}, without it on the {operator.decision.tied}"
    return ""


def document_of(explained: Explained) -> dict[str, Any]:
    """Return a plan for programs: JSON values only; infinite or unknown figures are null."""
    machines = explained.machines
    return {
        "name": explained.name,
        "machines": machines.count,
        "fan_in": machines.fan_in,
        "rate_gbit_per_s": _finite(machines.network.rate_gbit_per_s),
        "transfer": machines.transfer.value,
        "preset": explained.preset,
        "tie_band": explained.tie_band,
        "choices": list(explained.labels),
        "method": explained.method.value,
        "placed_s": explained.placed_s,
        "one_by_one_s": explained.one_by_one_s,
        "cpu_s": explained.cpu_s,
        "operators": [_operator(operator) for operator in explained.operators],
        "notes": list(explained.notes),
    }


def _operator(operator: ExplainedOperator) -> dict[str, Any]:
    work = operator.decision.work
    return {
        "name": work.name,
        "computes": operator.computes,
        "reads": list(operator.reads),
        "class": work.growth.value,
        "cpu_s_per_100mb": work.cpu_s_per_100mb if operator.decision.times else None,
        "basis": work.basis.value,
        "input_gb": work.input_gb + work.other_gb,
        "output_gb": work.output_gb,
        "device": operator.device,
        "by_itself": operator.decision.device,
        "without_tie_band": operator.tied or operator.device,
        "by_itself_without_tie_band": operator.decision.tied or operator.decision.device,
        "ratio": None if operator.decision.ratio is None else _finite(operator.decision.ratio),
        "times": {device: _times(times) for device, times in operator.decision.times.items()},
        "moved_s": operator.moved_s,
        "why": operator.why,
        "reasons": list(operator.decision.reasons),
        "flips": [document_of_flip(flip) for flip in operator.flips],
    }


def _times(times: Times) -> dict[str, float]:
    return dataclasses.asdict(times) | {"total_s": times.total_s}


def document_of_flip(flip: Flip) -> dict[str, Any]:
    """Return a break-even for programs: JSON values only."""
    document = {"quantity": flip.quantity.value, "to": flip.to, "value": flip.value, "unit": _UNITS[flip.quantity]}
    return document | {"factor": flip.factor}


def _flip_text(flip: Flip, value: float) -> str:
    side = "above" if flip.factor is not None and flip.factor > 1 else "below"
    return f"{_NAMES[flip.quantity]} {side} {plain(value)} {_UNITS[flip.quantity]}"


def plain(value: float) -> str:
    """Return a figure with three digits, whole from 1000 to a million, instead of 1.46e+03."""
    return f"{value:.0f}" if 1000 <= abs(value) < 1e6 else f"{value:.3g}"


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
