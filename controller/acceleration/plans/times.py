"""CPU times of operators: stated by kind, from a calibration, or from any source of t."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from controller.acceleration.calibration import Calibration, Side
from controller.acceleration.errors import AccelerationError
from controller.acceleration.values import Growth
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator


class CpuTimes(Protocol):
    """A source of CPU times of operators."""

    def t_of(self, operator: Operator, /) -> Estimate:
        """Return t, CPU seconds for 100 MB of an operator's input; unknown with the reason."""
        ...


@dataclass(frozen=True)
class Stated:
    """`t` are CPU seconds for 100 MB by kind; `otherwise` is the source for other kinds, None without one."""

    t: Mapping[str, float] = field(default_factory=dict)
    otherwise: CpuTimes | None = None

    def __post_init__(self) -> None:
        for kind, seconds in self.t.items():
            if not (math.isfinite(seconds) and seconds >= 0):
                raise AccelerationError(f"t of {kind}: {seconds} s for 100 MB is not 0 or more and finite", at=kind)

    def t_of(self, operator: Operator, /) -> Estimate:
        """Return the stated t, else that of the other source; unknown with the reason."""
        return t_of(self, operator, Side.BOTH, Growth.LINEAR)


def t_of(known: CpuTimes, operator: Operator, side: Side, growth: Growth) -> Estimate:
    """Return t of an operator, of a join's side, for its class; a source without sides or classes gives one for all."""
    if isinstance(known, Stated):
        if (seconds := known.t.get(operator.kind)) is not None:
            return Estimate.exactly(seconds, Basis.NOMINAL, f"t of {operator.kind} as it is stated")
        if known.otherwise is None:
            return Estimate.unknown(f"nobody says what a {operator.kind} takes")
        return t_of(known.otherwise, operator, side, growth)
    if isinstance(known, Calibration):
        return known.t_of(operator, side, growth)
    return known.t_of(operator)
