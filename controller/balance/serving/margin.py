"""Stability of a pool's controller: the table moves units, and the error responds; pure."""

from __future__ import annotations

from typing import Final

from controller.apiserver.resources.unit_pool import ControlRule, PoolControl
from controller.balance.control.controller import ControlSettings, worst_margin
from controller.balance.control.stability import Margin
from controller.balance.errors import PlantError
from controller.balance.plants import Plant
from controller.balance.plants.linear import linearised
from controller.balance.rules import IntervalRule
from controller.balance.serving.wanting import controller_of
from controller.balance.values import LeverKind, Precision, UnitState

_OVERLOAD_TOPS: Final = 1e9
"""More than any unit can do: then the error responds most to an additional unit."""


def margin_for(control: PoolControl, units: int) -> Margin | None:
    """Return the margin of the loop of a holder with this many units, None for a rule whose steps no gain scales.

    Raise GainsError if gains that the controller may reach are unstable there.
    """
    if control.rule is not ControlRule.TABLE or units < 1:
        return None
    state = UnitState(Precision.INT8, Plant().reference_mhz, units)
    try:
        plant = linearised(Plant(), state, _OVERLOAD_TOPS, IntervalRule(levers=(LeverKind.SUB_UNITS,)))
    except PlantError:
        return None
    settings = controller_of(control).settings
    return worst_margin(ControlSettings(pid=settings.pid, scheme=settings.scheme, plant=plant))
