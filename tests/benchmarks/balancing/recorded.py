"""Recorded GPU duty cycles in place of the synthetic family, if a file of them is next to the checkout.

The file has a line for each minute of each device: `device,minute,duty`, the duty 0 to 1 (what a card calls its
utilisation). A duty is taken as the share of what the device does with no lever moved. A minute that was busy
throughout does not say how much more waited: it counts as work that always waits. There is no column for the bus; the
plant's model derives its occupancy from the work, as for the synthetic family.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np

from dataplane.errors import MillraceError
from tests.benchmarks.balancing.family import FULL, Floats

DATA: Final = Path(__file__).parents[4] / "shared" / "data"
FILE: Final = "gpu_duty_cycles.csv"
BUSY_THROUGHOUT: Final = 0.98


class RecordedError(MillraceError):
    """A file of duty cycles cannot be used; the text names file and line."""


@cache
def duty_cycles(file: Path = DATA / FILE) -> dict[str, Floats] | None:
    """Return the duty of each device for each minute; None where the file is not there.

    Minutes that a device has no line for are idle. Raises RecordedError.
    """
    if not file.exists():
        return None
    cycles: dict[str, dict[int, float]] = {}
    with file.open(newline="") as lines:
        for number, line in enumerate(csv.DictReader(lines), 2):
            try:
                device, minute, duty = line["device"], int(line["minute"]), float(line["duty"])
            except (KeyError, TypeError, ValueError) as error:
                raise RecordedError(f"{file}, line {number}: no device, minute and duty: {error}") from error
            if minute < 0 or not 0.0 <= duty <= 1.0:
                raise RecordedError(f"{file}, line {number}: minute {minute} or duty {duty:g} is out of range")
            cycles.setdefault(device, {})[minute] = duty
    if not cycles:
        raise RecordedError(f"{file}: no lines")
    return {device: _of(minutes) for device, minutes in sorted(cycles.items())}


def levels_of(cycles: dict[str, Floats], minutes: int, seed: int, device: int) -> Floats:
    """Return minutes of one recorded device as levels, from a start drawn by the seed, wrapping around."""
    rng = np.random.default_rng((seed, 1_000, device))
    chosen = list(cycles.values())[int(rng.integers(len(cycles)))]
    duty = np.take(chosen, np.arange(minutes) + int(rng.integers(len(chosen))), mode="wrap")
    return np.where(duty >= BUSY_THROUGHOUT, FULL, duty)


def _of(minutes: dict[int, float]) -> Floats:
    duty = np.zeros(max(minutes) + 1)
    duty[list(minutes)] = list(minutes.values())
    return duty
