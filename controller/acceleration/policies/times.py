"""CPU times of operators as tasks and pods carry them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from controller.acceleration.calibration import Calibration, Side
from controller.acceleration.model import Works, times
from controller.acceleration.plans import plan_of
from controller.acceleration.values import Machines, Network, Work
from controller.apiserver.resources.operator_graphs import graph_of_operators
from controller.apiserver.resources.task import OperatorCount
from controller.cluster.estimates import Basis, Estimate
from controller.cluster.operators import Operator

_ALONE: Final = Machines(Network(math.inf), 1)


class MeasuredTimes:
    """CPU times of a task's operators, measured by a trace at submission; else those of a calibration."""

    def __init__(self, counts: Sequence[OperatorCount], otherwise: Calibration | None = None) -> None:
        self.graph = graph_of_operators("task", counts)
        self._otherwise = otherwise
        works = plan_of(self.graph, 1, _OneSecond()).works
        self._growth = {work.name: work.growth for work in works}
        self._t = _measured(works, {one.name: one.seconds for one in counts})

    def t_of(self, operator: Operator, /) -> Estimate:
        """Return t, CPU seconds for 100 MB of an operator's input; unknown with the reason."""
        if (found := self._t.get(operator.name)) is not None:
            return Estimate.exactly(found, Basis.HISTORY, "as measured where the task was submitted")
        if self._otherwise is not None:
            return self._otherwise.t_of(operator, Side.BOTH, self._growth[operator.name])
        return Estimate.unknown(f"{operator.name}: nobody has measured what {operator.kind} takes")


def _measured(works: tuple[Work, ...], seconds: Mapping[str, float | None]) -> dict[str, float]:
    """Return t for which the operator's class reproduces the measured seconds; `works` take a second on one machine."""
    unit_s = times(Works.of(works), _ALONE).compute_s.tolist()
    found = ((work.name, seconds[work.name], unit) for work, unit in zip(works, unit_s, strict=True))
    return {name: measured / unit for name, measured, unit in found if measured is not None and unit > 0}


class _OneSecond:
    """Each operator takes a second for 100 MB."""

    def t_of(self, operator: Operator, /) -> Estimate:  # noqa: ARG002 - the same for all
        return Estimate.exactly(1.0, Basis.MODELLED)
