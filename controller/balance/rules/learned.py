"""An interval table learned from history: the effect of each lever's moves on the error, and steps sized accordingly.

Whatever limits the flow of work, P_p / P_d is the speed of the cores over that of the bus, independent of the load. So
y = log(P_p / P_d) is fitted by levers, over windows of some samples:

    y' - y = a_n log(n' / n) + a_f log(f' / f) + a_p (p - p'),  p: place of the precision, lower is faster

by least squares, for each possible delay of the samples; the shortest delay with an equally good fit is taken. Cores
that scale with their clock and share their work have a_n = a_f = 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt

from controller.balance.errors import RuleError
from controller.balance.rules.history import Record, in_order
from controller.balance.rules.intervals import TABLE, Interval, IntervalTable, Row
from controller.balance.values import STEPS, Change, LeverKind, Precision, UnitState
from dataplane.config import Strict

Floats = npt.NDArray[np.float64]
_CONFIDENT: Final = 1.96
_ALIKE: Final = 4.0
"""Twice the difference of log-likelihoods up to which two fits are equally good."""
_MOST_PART: Final = math.log(4)
"""Maximum worth of a lever's step: four times the speed, or a quarter."""
_LEAST_SHARE: Final = 0.02
"""Minimum occupancy and load; below it their ratio is noise."""
_PLACES: Final[Mapping[Precision, float]] = {
    **{step: float(index) for index, step in enumerate(STEPS)},
    Precision.BF16: STEPS.index(Precision.INT32) + 0.5,
    Precision.TF32: STEPS.index(Precision.FP16) + 0.5,
}

LEARNED: Final = (LeverKind.SUB_UNITS, LeverKind.FREQUENCY, LeverKind.PRECISION)
"""Levers of the table, unless others are asked for."""

Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Learning(Strict, frozen=True):
    """Settings for learning a table."""

    levers: tuple[LeverKind, ...] = LEARNED
    """Levers for the table to move, each correcting an equal part of a row's error."""
    share: Share = 0.5
    """Share of an error, the smallest of its row, that a step corrects; less if samples are late."""
    window: Count = 5
    """Number of samples over which a change is measured."""
    most_delay: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 10
    """Maximum delay of reports, in samples."""
    least_moves: Count = 8
    """Minimum number of windows with a move of a lever, before its effect is judged."""
    frequency_step_mhz: Annotated[float, msgspec.Meta(gt=0)] = 5.0
    """Clock steps are whole multiples of this."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Effect of a lever on log(P_p / P_d) per unit (log of sub-units or clock, a step of precision)."""

    value: float
    error: float
    """Standard error."""
    moves: int

    @property
    def is_sure(self) -> bool:
        """Return whether it has the expected effect beyond doubt."""
        return self.value - _CONFIDENT * self.error > 0

    def __str__(self) -> str:
        return f"{self.value:.3g} +- {_CONFIDENT * self.error:.2g} ({self.moves} moves)"


@dataclass(frozen=True, slots=True)
class Learned:
    """Result of learning: effects of levers, reasons for missing effects, the delay, and typical lever positions."""

    effects: Mapping[LeverKind, Effect]
    unknown: Mapping[LeverKind, str]
    delay: int
    typical: UnitState
    windows: int
    settings: Learning = field(default_factory=Learning)

    def table(self, template: IntervalTable = TABLE) -> IntervalTable:
        """Return the template's intervals with steps of the levers with known effects, at their typical positions."""
        return IntervalTable(rows=tuple(self._row(row) for row in template.rows))

    def _row(self, row: Row) -> Row:
        interval = Interval.parse(row.interval)
        inner = float(min(abs(interval.low), abs(interval.high)))
        if 0 in interval or not inner:
            return Row(interval=row.interval)
        # The minimum for this error, with a bus or cores at 100 %; it is larger under lighter loads.
        off = -math.log1p(-min(inner, 0.99)) * self.settings.share
        way = -1 if interval.low >= 0 else 1
        change = self._change(off / len(self.effects), way)
        return Row(
            interval=row.interval,
            precision_steps=change.precision_steps,
            frequency_mhz=change.frequency_mhz,
            sub_units=change.sub_units,
            concurrency=change.concurrency,
            power_w=change.power_w,
        )

    def _change(self, off: float, way: int) -> Change:
        """Return steps of all known levers, each correcting this much; `way` 1 is faster."""
        steps, mhz, units, concurrency, power_w = 0, 0.0, 0, 0, 0.0
        for kind, effect in self.effects.items():
            part = abs(math.expm1(way * min(off / effect.value, _MOST_PART)))
            match kind:
                case LeverKind.SUB_UNITS:
                    units = way * max(round(self.typical.sub_units * part), 1)
                case LeverKind.CONCURRENCY:
                    concurrency = way * max(round(self.typical.concurrency * part), 1)
                case LeverKind.FREQUENCY:
                    grain = self.settings.frequency_step_mhz
                    mhz = way * grain * round(self.typical.frequency_mhz * part / grain)
                case LeverKind.POWER:
                    power_w = float(way * round(self.typical.power_w * part))
                case LeverKind.PRECISION:
                    steps = -way * min(int(off / effect.value), len(STEPS) - 1)
        return Change(steps, mhz, units, concurrency, power_w)


def learn(records: Sequence[Record], settings: Learning | None = None) -> Learned:
    """Return what a unit's history shows about its levers; raise RuleError if it shows nothing about any requested one.

    Levers that hardly moved, or whose moves show no effect beyond doubt, are in `unknown`, with the reason.
    """
    asked = settings or Learning()
    if len(records) < asked.window + 2:
        raise RuleError(f"a history of {len(records)} samples is too short to learn from")
    levers, off = _columns(in_order(records))
    delays = range(min(asked.most_delay, len(records) - asked.window - 1) + 1)
    fits = {delay: fit for delay in delays if (fit := _fit(levers, off, delay, asked)) is not None}
    if not fits:
        names = " and ".join(asked.levers)
        raise RuleError(f"a history of {len(records)} samples: {names} moved too little to show an effect")
    delay = _least_delay(fits)
    best = fits[delay]
    effects = {kind: effect for kind, effect in best.effects.items() if effect.is_sure}
    unknown = {
        kind: f"its {effect.moves} moves show no effect" for kind, effect in best.effects.items() if kind not in effects
    }
    unknown |= {kind: f"it moved in {count} windows, {asked.least_moves} needed" for kind, count in best.still.items()}
    if not effects:
        raise RuleError(f"a history of {len(records)} samples: {_sentence(unknown)}")
    return Learned(effects, unknown, delay, _typical(records), best.windows, asked)


@dataclass(frozen=True, slots=True)
class _Fit:
    effects: Mapping[LeverKind, Effect]
    still: Mapping[LeverKind, int]
    windows: int
    spread: float


def _least_delay(fits: Mapping[int, _Fit]) -> int:
    """Return the shortest delay with an equally good fit: levers that crept hardly distinguish delays."""
    least = min(fit.spread for fit in fits.values())
    return min(delay for delay, fit in fits.items() if fit.spread <= least * math.exp(_ALIKE / fit.windows))


def _columns(records: Sequence[Record]) -> tuple[dict[LeverKind, Floats], Floats]:
    """Return the levers' positions, in the units of their effects, and log(P_p / P_d), NaN if it is noise."""
    states = [record.state for record in records]
    columns = {
        LeverKind.SUB_UNITS: np.log([float(state.sub_units) for state in states]),
        LeverKind.FREQUENCY: np.log([state.frequency_mhz for state in states]),
        LeverKind.PRECISION: np.array([-_PLACES[state.precision] for state in states]),
        LeverKind.CONCURRENCY: np.log([float(state.concurrency) for state in states]),
        LeverKind.POWER: np.log([state.power_w for state in states]),
    }
    bus = np.array([record.sample.bus for record in records])
    load = np.array([record.sample.load for record in records])
    off = np.full(len(records), np.nan)
    clear = (bus >= _LEAST_SHARE) & (load >= _LEAST_SHARE)
    off[clear] = np.log(bus[clear] / load[clear])
    return columns, off


def _fit(levers: Mapping[LeverKind, Floats], off: Floats, delay: int, settings: Learning) -> _Fit | None:
    """Return the fit for this delay of samples, None if no lever moved enough."""
    ends = np.arange(delay + settings.window, len(off), settings.window)
    starts = ends - settings.window
    answers = off[ends] - off[starts]
    clear = np.isfinite(answers)
    moved = {kind: column[ends - delay] - column[starts - delay] for kind, column in levers.items()}
    counts = {kind: int(np.count_nonzero(moved[kind][clear])) for kind in settings.levers}
    fitted = [kind for kind, count in counts.items() if count >= settings.least_moves]
    still = {kind: count for kind, count in counts.items() if kind not in fitted}
    for kind in moved.keys() - set(fitted):  # its effect is not fitted
        clear &= moved[kind] == 0
    windows = int(np.count_nonzero(clear))
    spare = windows - len(fitted)
    if not fitted or spare < 1:
        return None
    by = np.column_stack([moved[kind][clear] for kind in fitted])
    values, _, rank, _ = np.linalg.lstsq(by, answers[clear], rcond=None)
    if rank < len(fitted):
        raise RuleError(f"{' and '.join(fitted)} always moved together: their effects cannot be told apart")
    left = answers[clear] - by @ values
    spread = float(left @ left) / spare
    errors = _standard_errors(by, left, spread)
    effects = {kind: Effect(float(values[at]), float(errors[at]), counts[kind]) for at, kind in enumerate(fitted)}
    return _Fit(effects, still, windows, spread)


def _standard_errors(by: Floats, left: Floats, spread: float) -> Floats:
    """Return standard errors of a fit to windows that share their ends: residuals of neighbours are correlated.

    The larger of the plain ones and of those that allow for correlated neighbours and for noise that differs between
    windows (the sandwich estimator with one lag, MacKinnon and White's HC0 without any).
    """
    inverse = np.linalg.inv(by.T @ by)
    scores = by * left[:, None]
    neighbours = scores[1:].T @ scores[:-1]
    sandwich = inverse @ (scores.T @ scores + neighbours + neighbours.T) @ inverse
    errors: Floats = np.sqrt(np.maximum(np.diag(sandwich), spread * np.diag(inverse)))
    return errors


def _typical(records: Sequence[Record]) -> UnitState:
    """Return the median lever positions over all samples."""
    states = [record.state for record in records]
    precisions = sorted((state.precision for state in states), key=_PLACES.__getitem__)
    return UnitState(
        precisions[len(precisions) // 2],
        median(state.frequency_mhz for state in states),
        max(round(median(state.sub_units for state in states)), 1),
        max(round(median(state.concurrency for state in states)), 1),
        median(state.power_w for state in states),
    )


def _sentence(unknown: Mapping[LeverKind, str]) -> str:
    return "; ".join(f"{kind}: {reason}" for kind, reason in unknown.items())
