"""Online adaptation of gains: start gains plus dKp, dKi, dKd from fuzzy inference on the error and its change."""

from __future__ import annotations

from functools import lru_cache
from typing import Annotated

import msgspec

from controller.balance.control.fuzzy.inference import Method, infer
from controller.balance.control.fuzzy.tables import Rules, Tables, rules_of
from controller.balance.values import Gains
from dataplane.config import Strict

Range = Annotated[float, msgspec.Meta(gt=0.0, le=2.0)]
Share = Annotated[float, msgspec.Meta(ge=0.0, le=1.0)]


class FuzzySettings(Strict, frozen=True):
    """Settings of the adaptation of gains to the error and its change."""

    method: Method = Method.SUGENO
    """mamdani: centre of area; sugeno: weighted mean, ten times as fast and without corners."""
    error_range: Range = 0.9
    """The error that counts as big."""
    change_range: Range = 0.3
    """The change per sample that counts as big."""
    kp_share: Share = 0.3
    """Maximum change of kp, as a share of the largest start gain."""
    ki_share: Share = 0.5
    """As `kp_share`, for ki."""
    kd_share: Share = 0.5
    """As `kp_share`, for kd."""
    rules: Tables = Tables()
    """The rules, seven lines of seven words for each gain."""


def adapted(settings: FuzzySettings, start: Gains, largest: Gains, error: float, change: float) -> Gains:
    """Return start gains plus the rules' changes for an error and its change per sample; none falls below 0.

    `largest` are the largest start gains, the base of the shares: a start gain of 0 can grow, too.
    """
    found = infer(
        settings.method, _parsed(settings.rules), error / settings.error_range, change / settings.change_range
    )
    return Gains(
        max(start.kp + settings.kp_share * largest.kp * found[0], 0.0),
        max(start.ki + settings.ki_share * largest.ki * found[1], 0.0),
        max(start.kd + settings.kd_share * largest.kd * found[2], 0.0),
    )


@lru_cache(maxsize=64)
def _parsed(tables: Tables) -> tuple[Rules, Rules, Rules]:
    return rules_of("kp", tables.kp), rules_of("ki", tables.ki), rules_of("kd", tables.kd)
