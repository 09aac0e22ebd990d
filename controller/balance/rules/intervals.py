"""The interval table: each lever's action by the interval of the controller's output u; strictly checked settings."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Final

import msgspec

from controller.balance.errors import RuleError
from controller.balance.values import Change
from dataplane.config import Strict

_INTERVAL: Final = re.compile(r"\s*([\[(])\s*([-+]?[\d./]+)\s*,\s*([-+]?[\d./]+)\s*([\])])\s*")
_FURTHEST: Final = 1000
_DIGITS: Final = 12
"""Significant decimals of u: 1 - 0.7 is 0.3, despite binary fractions."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A range of outputs in mathematical notation: [-0.9, -0.7) includes its low end but not its high one."""

    low: Fraction
    high: Fraction
    has_low: bool
    has_high: bool

    @classmethod
    def parse(cls, text: str) -> Interval:
        """Return `[-0.9, -0.7)` as an interval; raise ValueError if it is malformed or empty."""
        match = _INTERVAL.fullmatch(text)
        if match is None:
            raise ValueError(f"invalid interval {text!r}: write it as [-0.9, -0.7)")
        try:
            low, high = Fraction(match[2]), Fraction(match[3])
        except (ValueError, ZeroDivisionError):
            raise ValueError(f"invalid interval {text!r}: its ends must be numbers") from None
        has_low, has_high = match[1] == "[", match[4] == "]"
        if max(abs(low), abs(high)) > _FURTHEST:
            raise ValueError(f"invalid interval {text[:40]!r}: no output lies beyond {_FURTHEST}")
        if low > high or (low == high and not (has_low and has_high)):
            raise ValueError(f"empty interval {text!r}")
        return cls(low, high, has_low, has_high)

    def __contains__(self, u: Fraction | int) -> bool:
        above = self.low <= u if self.has_low else self.low < u
        return above and (u <= self.high if self.has_high else u < self.high)


class Row(Strict, frozen=True):
    """Action of the levers for u in an interval; levers left out keep their positions."""

    interval: str
    """As in `[-0.9, -0.7)`."""
    precision_steps: Annotated[int, msgspec.Meta(ge=-8, le=8)] = 0
    """Steps up in precision; below 0: down."""
    frequency_mhz: Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)] = 0.0
    sub_units: Annotated[int, msgspec.Meta(ge=-1_000_000, le=1_000_000)] = 0
    concurrency: Annotated[int, msgspec.Meta(ge=-100_000, le=100_000)] = 0
    power_w: Annotated[float, msgspec.Meta(ge=-1e6, le=1e6)] = 0.0

    def __post_init__(self) -> None:
        interval = Interval.parse(self.interval)
        faster = (-self.precision_steps, self.frequency_mhz, self.sub_units, self.concurrency, self.power_w)
        names = ("precision_steps", "frequency_mhz", "sub_units", "concurrency", "power_w")
        for name, value in zip(names, faster, strict=True):
            if value > 0 and interval.high > 0:
                raise ValueError(f"{self.interval}: {name} makes cores faster where u is above 0 and cores idle")
            if value < 0 and interval.low < 0:
                raise ValueError(f"{self.interval}: {name} makes cores slower where u is below 0 and cores busy")
            if value and 0 in interval:
                raise ValueError(f"{self.interval}: {name} moves at u = 0, where levers must keep")

    @property
    def change(self) -> Change:
        """The requested change of the row."""
        return Change(self.precision_steps, self.frequency_mhz, self.sub_units, self.concurrency, self.power_w)


class IntervalTable(Strict, frozen=True, dict=True):
    """Rows that cover all outputs between the first and the last without overlap; outputs beyond these are clamped."""

    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValueError("rows: at least one needed")
        spans = [(Interval.parse(row.interval), row.interval) for row in self.rows]
        for (before, first), (after, second) in pairwise(spans):
            if before.high > after.low or (before.high == after.low and before.has_high and after.has_low):
                raise ValueError(f"rows: {first} and {second} overlap or are not in rising order")
            if before.high < after.low or not (before.has_high or after.has_low):
                raise ValueError(f"rows: gap between {first} and {second}")
        if not any(0 in interval for interval, _ in spans):
            raise ValueError("rows: none for u = 0, where levers must keep")

    @cached_property
    def _spans(self) -> tuple[tuple[Interval, Change], ...]:
        return tuple((Interval.parse(row.interval), row.change) for row in self.rows)

    @cached_property
    def _bounds(self) -> tuple[tuple[float, bool, Change], ...]:
        """High ends, whether they belong to their row, and the row's change; the last has no end."""
        ends = [(float(interval.high), interval.has_high, change) for interval, change in self._spans]
        return (*ends[:-1], (float("inf"), True, ends[-1][2]))

    def change_at(self, u: float) -> Change:
        """Return the change for an output, that of the nearest row beyond the ends; raise RuleError for NaN.

        Finds the first row that ends above u: fast, and equivalent to finding the interval that contains it.
        """
        near = round(u, _DIGITS)
        for high, has_high, change in self._bounds:
            if near < high or (has_high and near == high):
                return change
        raise RuleError(f"the controller's output is {u:g}, not a number")

    def row_of(self, u: float) -> Row:
        """Return the row whose interval contains an output, read literally; raise RuleError beyond all rows.

        The readable twin of `change_at`, without its clamp.
        """
        exact = Fraction(str(round(u, _DIGITS)))
        for row in self.rows:
            if exact in Interval.parse(row.interval):
                return row
        raise RuleError(f"no row for an output of {u:g}")

    @property
    def dead_band(self) -> tuple[float, float]:
        """The range around 0 in which levers keep their positions."""
        keeping = [interval for interval, change in self._spans if change.keeps]
        here = next(index for index, interval in enumerate(keeping) if 0 in interval)
        first = last = here
        while first and keeping[first - 1].high == keeping[first].low:
            first -= 1
        while last + 1 < len(keeping) and keeping[last + 1].low == keeping[last].high:
            last += 1
        return float(keeping[first].low), float(keeping[last].high)

    @property
    def most(self) -> Change:
        """The largest step of each lever in any row, up or down."""
        changes = [change for _, change in self._spans]
        return Change(
            max(abs(change.precision_steps) for change in changes),
            max(abs(change.frequency_mhz) for change in changes),
            max(abs(change.sub_units) for change in changes),
            max(abs(change.concurrency) for change in changes),
            max(abs(change.power_w) for change in changes),
        )


TABLE: Final = IntervalTable(
    rows=(
        Row(interval="[-0.9, -0.7)", precision_steps=-2, frequency_mhz=300, sub_units=4),
        Row(interval="[-0.7, -0.5)", precision_steps=-1, frequency_mhz=200, sub_units=3),
        Row(interval="[-0.5, -0.3)", frequency_mhz=100, sub_units=2),
        Row(interval="[-0.3, -0.1)", sub_units=1),
        Row(interval="[-0.1, 0.1]"),
        Row(interval="(0.1, 0.3]", sub_units=-1),
        Row(interval="(0.3, 0.5]", frequency_mhz=-100, sub_units=-2),
        Row(interval="(0.5, 0.7]", precision_steps=1, frequency_mhz=-200, sub_units=-3),
        Row(interval="(0.7, 0.9]", precision_steps=2, frequency_mhz=-300, sub_units=-4),
    )
)
"""The default table: steps by rows of 0.2, and a dead band of 0.1 on either side."""
