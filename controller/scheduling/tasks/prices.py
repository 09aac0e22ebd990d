"""Task costs: units times seconds times a price that depends on the score measured where the task ran."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

from msgspec import Meta

from dataplane.config import Strict

Amount = Annotated[float, Meta(ge=0, le=1e9)]


class PriceStep(Strict, frozen=True):
    """The price of a second of one unit from this score up to the next step."""

    score: float
    per_unit_s: Amount


class PriceSettings(Strict, frozen=True):
    """Prices by measured score: faster or more exact centres may cost more. The currency is up to the user.

    Below the first step, and without a measurement, a second of one unit costs `unscored_per_unit_s`.
    """

    steps: Annotated[tuple[PriceStep, ...], Meta(max_length=1000)] = (
        PriceStep(score=0.0, per_unit_s=0.5),
        PriceStep(score=25.0, per_unit_s=1.0),
        PriceStep(score=50.0, per_unit_s=2.0),
        PriceStep(score=75.0, per_unit_s=3.0),
    )
    unscored_per_unit_s: Amount = 0.5

    def __post_init__(self) -> None:
        for index, step in enumerate(self.steps):
            if not math.isfinite(step.score):
                raise ValueError(f"steps[{index}].score: {step.score} is not a finite number")
        for index, (step, other) in enumerate(pairwise(self.steps), 1):
            if other.score <= step.score:
                raise ValueError(f"steps[{index}].score: {other.score:g} is not greater than {step.score:g}")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a task and its reason."""

    amount: float
    reason: str


def price_of(settings: PriceSettings, score: float | None) -> float:
    """Return the price of a second of one unit at a place with that probe score, None without a score."""
    prices = [step.per_unit_s for step in settings.steps if score is not None and score >= step.score]
    return prices[-1] if prices else settings.unscored_per_unit_s


def cost_of(settings: PriceSettings, units: int, seconds: float, score: float | None) -> Cost:
    """Return the cost of so many units for so long."""
    price = price_of(settings, score)
    why = "no score was measured there" if score is None else f"score {score:g}"
    return Cost(units * seconds * price, f"{units} units x {seconds:.4g} s x {price:g} ({why})")
