"""CPU times that somebody states, by kind of operator, before those of a calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator
from controller.schedulers.acceleration.errors import AccelerationError
from controller.schedulers.acceleration.plans.works import CpuTimes


@dataclass(frozen=True)
class Stated:
    """`t` are CPU seconds for 100 MB by kind; `otherwise` knows the other kinds, None if nobody does."""

    t: Mapping[str, float] = field(default_factory=dict)
    otherwise: CpuTimes | None = None

    def __post_init__(self) -> None:
        for kind, seconds in self.t.items():
            if not (math.isfinite(seconds) and seconds >= 0):
                raise AccelerationError(f"t of {kind}: {seconds} s for 100 MB is not 0 or more and finite", at=kind)

    def t_of(self, operator: Operator) -> Estimate:
        """Return t as it is stated, else as it is known otherwise; unknown with the reason."""
        if (seconds := self.t.get(operator.kind)) is not None:
            return Estimate.exactly(seconds, Basis.NOMINAL, f"t of {operator.kind} as it is stated")
        if self.otherwise is None:
            return Estimate.unknown(f"nobody says what a {operator.kind} takes")
        return self.otherwise.t_of(operator)
