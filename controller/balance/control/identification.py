"""A recorded step of the levers, and the first-order model with delay fitted to it."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from controller.balance.control.tuning import FirstOrder
from controller.balance.errors import ResponseError
from dataplane.given import MOST_BYTES, read_given_text

Values = NDArray[np.float64]
COLUMNS: Final = ("time_s", "output", "error")
_LEAST_SAMPLES: Final = 5
"""Samples required after the step; three parameters are fitted."""
_LEAST_CHANGE: Final = 4.0
"""Minimum change of the error, in standard deviations of the noise."""
_UNSETTLED: Final = 0.8
"""Share of the fitted response required by the end, as its size would otherwise be a guess."""


@dataclass(frozen=True, slots=True)
class StepResponse:
    """A recording: at `times_s`, the position of the levers in units of output, and the error."""

    times_s: tuple[float, ...]
    outputs: tuple[float, ...]
    errors: tuple[float, ...]
    file: str = "a step response"

    @property
    def period_s(self) -> float:
        """Return the median time between samples, 1 for fewer than two."""
        return float(np.median(np.diff(self.times_s))) if len(self.times_s) > 1 else 1.0


@dataclass(frozen=True, slots=True)
class Fit:
    """The model of a step response: the step, the error before it, and the model's deviation (root mean square)."""

    plant: FirstOrder
    at_s: float
    step: float
    before: float
    off: float

    def errors_at(self, times_s: Values) -> Values:
        """Return the errors predicted by the model."""
        return _model(self.plant, self.step, self.before, times_s - self.at_s)


def read_response(path: Path) -> StepResponse:
    """Return a recording from CSV with columns time_s, output and error; raise ResponseError naming file and line."""
    try:
        text = read_given_text(path, MOST_BYTES, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ResponseError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    rows = csv.DictReader(text.splitlines())
    try:
        missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
        if missing:
            raise ResponseError(f"{path}:1: no column {missing[0]}; expected: {', '.join(COLUMNS)}")
        samples = [_numbers(path, rows.line_num, row) for row in rows]
    except csv.Error as error:
        raise ResponseError(f"{path}:{rows.line_num + 1}: invalid CSV: {error}") from error
    times_s, outputs, errors = zip(*samples, strict=True) if samples else ((), (), ())
    back = next((index for index in range(1, len(samples)) if times_s[index] <= times_s[index - 1]), None)
    if back is not None:
        raise ResponseError(f"{path}:{back + 2}: time_s: {times_s[back]:g} is not later than {times_s[back - 1]:g}")
    return StepResponse(times_s, outputs, errors, str(path))


def fit_step(response: StepResponse) -> Fit:
    """Return the model that fits a response to one step of the levers, by least squares.

    Raise ResponseError if there is no step or more than one, for too few samples, no response beyond the noise, an
    error that rises with the output, or a response that had not settled.
    """
    times, outputs, errors = (np.asarray(part) for part in (response.times_s, response.outputs, response.errors))
    steps = np.flatnonzero(np.diff(outputs))
    if len(steps) != 1:
        raise ResponseError(f"{response.file}: the output changes {len(steps)} times, not once")
    first = int(steps[0]) + 1
    if len(times) - first < _LEAST_SAMPLES:
        raise ResponseError(
            f"{response.file}: {len(times) - first} samples after the step, at least {_LEAST_SAMPLES} needed"
        )
    at_s, step, before = float(times[first]), float(outputs[first] - outputs[first - 1]), float(np.mean(errors[:first]))
    passed_s, after = times[first:] - at_s, errors[first:]
    _refuse_without_answer(response.file, errors[:first], after, step)
    plant = _fitted(passed_s, after, step, before)
    _refuse_unsettled(response.file, plant, float(passed_s[-1]))
    off = float(np.sqrt(np.mean((_model(plant, step, before, passed_s) - after) ** 2)))
    return Fit(plant, at_s, step, before, off)


def _numbers(path: Path, line: int, row: dict[str, str]) -> tuple[float, float, float]:
    numbers = []
    for column in COLUMNS:
        try:
            value = float(row[column])
        except (TypeError, ValueError):
            value = math.nan
        if not math.isfinite(value):
            raise ResponseError(f"{path}:{line}: {column}: {row[column]!r} is not a finite number")
        numbers.append(value)
    if not -1.0 <= numbers[2] <= 1.0:
        raise ResponseError(f"{path}:{line}: error: {numbers[2]:g} is not between -1 and 1")
    return numbers[0], numbers[1], numbers[2]


def _model(plant: FirstOrder, step: float, before: float, passed_s: Values) -> Values:
    since = np.maximum(passed_s - plant.delay_s, 0.0)
    there = 1.0 - np.exp(-since / plant.lag_s) if plant.lag_s > 0.0 else (passed_s > plant.delay_s).astype(np.float64)
    return np.asarray(before - plant.gain * step * there)


def _fitted(passed_s: Values, after: Values, step: float, before: float) -> FirstOrder:
    """Return gain, lag and delay by least squares, starting from the times of 28 % and 63 % of the response."""
    end = float(np.mean(after[-max(len(after) // 10, 1) :]))
    share = (after - before) / (end - before)
    early, late = (float(passed_s[np.argmax(share >= level)]) for level in (0.283, 0.632))
    lag_s = max(1.5 * (late - early), 1e-3 * float(passed_s[-1]))
    starts = [before - end, lag_s, max(late - lag_s, 0.0)]

    def off(tried: Values) -> Values:
        model = FirstOrder(float(tried[0]) / step, float(tried[1]), float(tried[2]))
        return _model(model, step, before, passed_s) - after

    from scipy.optimize import least_squares  # noqa: PLC0415 - half of a daemon's start, which identifies nothing

    span_s = float(passed_s[-1])
    bounds = ([-np.inf, 1e-6 * span_s, 0.0], [np.inf, 10.0 * span_s, span_s])
    solution = least_squares(off, starts, bounds=bounds, x_scale=[abs(starts[0]), span_s, span_s])
    return FirstOrder(float(solution.x[0]) / step, float(solution.x[1]), float(solution.x[2]))


def _refuse_without_answer(file: str, before: Values, after: Values, step: float) -> None:
    change = float(np.mean(after[-max(len(after) // 10, 1) :]) - np.mean(before))
    noise = float(np.std(before)) if len(before) > 1 else 0.0
    if change == 0.0 or abs(change) < _LEAST_CHANGE * noise:
        raise ResponseError(
            f"{file}: the error changes by {change:.3g} after the step, within its noise of {noise:.3g}"
        )
    if change * step > 0.0:
        raise ResponseError(f"{file}: the error rises with the output: the lever's sign is wrong")


def _refuse_unsettled(file: str, plant: FirstOrder, span_s: float) -> None:
    there = 1.0 - math.exp(-max(span_s - plant.delay_s, 0.0) / plant.lag_s)
    if there < _UNSETTLED:
        raise ResponseError(
            f"{file}: ends at {100 * there:.0f} % of the response (lag {plant.lag_s:.3g} s): record longer"
        )
