"""A synthetic family of GPU duty cycles: how much work comes, minute by minute, as a share of what can be done.

Without a file of recorded duty cycles (recorded.py), they are drawn. A level of 1 is what a device does with
the share of units that it starts with and no lever moved, whichever of bus or cores limits it. Five patterns, each with
its reason:

| pattern | level | why |
| --- | --- | --- |
| light | 0.5, noise of 5 % | the worked example's light load; half of an interactive device's time is idle |
| heavy | 2, pauses of 1 to 2 minutes each half hour | its full load: work always waits; evaluation and checkpoints |
| steps | jobs of a median of 10 minutes at full load, 35 % of them idle | training jobs run as fast as they may |
| bursty | 2 for 4 minutes, then 0.3 for 6, both exponential | requests in batches, data loading between epochs |
| diurnal | 1 + 0.7 sin, noise of 10 %, any phase | services; a day of 4 hours: six times as quick, so harder |

Idle shares and pauses within jobs are those of the Philly trace (ATC'19), where utilisation is recorded by the minute:
devices of training jobs are idle for 25 to 51 % of minutes, by the jobs' length, most of it inside jobs. Clusters with
idle devices while jobs wait, so levels above 1, are what the Alibaba 2023 trace shows (ATC'23). A recorded cycle
cannot say how far above 1 the demand is: 2 stands for work that always waits, as more than 1.65 is never served.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

LIGHT, FULL, PAUSED = 0.5, 2.0, 0.02
DAY_MINUTES: Final = 240


class Pattern(StrEnum):
    """Load pattern of a device."""

    LIGHT = "light"
    HEAVY = "heavy"
    STEPS = "steps"
    BURSTY = "bursty"
    DIURNAL = "diurnal"
    RECORDED = "recorded"
    """No pattern of ours: what a file has (recorded.py)."""


SYNTHETIC: Final = (Pattern.LIGHT, Pattern.HEAVY, Pattern.STEPS, Pattern.BURSTY, Pattern.DIURNAL)
STEADY: Final = (Pattern.LIGHT, Pattern.HEAVY)
"""Patterns whose load does not change but for noise and pauses."""


def light(minutes: int, rng: np.random.Generator) -> Floats:
    """Return half of what can be done, with noise that lasts some minutes."""
    return _noisy(np.full(minutes, LIGHT), 0.05, rng)


def heavy(minutes: int, rng: np.random.Generator) -> Floats:
    """Return work that always waits, with a pause about each half hour."""
    levels = np.full(minutes, FULL)
    at = int(rng.integers(5, 35))
    while at < minutes:
        levels[at : at + int(rng.integers(1, 3))] = PAUSED
        at += int(rng.integers(25, 36))
    return levels


def steps(minutes: int, rng: np.random.Generator) -> Floats:
    """Return consecutive jobs with pauses between them."""
    parts: list[Floats] = []
    length = 0
    while length < minutes:
        job = int(np.clip(rng.lognormal(np.log(10.0), 0.9), 2, 90))
        level = rng.choice((PAUSED, FULL), p=(0.35, 0.65))
        parts.append(np.full(job, level))
        length += job
    return _noisy(np.concatenate(parts)[:minutes], 0.03, rng)


def bursty(minutes: int, rng: np.random.Generator) -> Floats:
    """Return bursts of work that waits, and little between them."""
    levels, at, is_burst = np.full(minutes, 0.3), 0, bool(rng.random() < 0.4)
    while at < minutes:
        length = max(1, round(rng.exponential(4.0 if is_burst else 6.0)))
        if is_burst:
            levels[at : at + length] = FULL
        at, is_burst = at + length, not is_burst
    return levels


def diurnal(minutes: int, rng: np.random.Generator) -> Floats:
    """Return days of any phase."""
    phase = 2 * np.pi * (np.arange(minutes) / DAY_MINUTES + rng.random())
    return _noisy(1.0 + 0.7 * np.sin(phase), 0.1, rng)


DRAWN: Final[Mapping[Pattern, Callable[[int, np.random.Generator], Floats]]] = {
    Pattern.LIGHT: light,
    Pattern.HEAVY: heavy,
    Pattern.STEPS: steps,
    Pattern.BURSTY: bursty,
    Pattern.DIURNAL: diurnal,
}


def levels(pattern: Pattern, minutes: int, seed: int, device: int) -> Floats:
    """Return a device's level for each minute, of a synthetic pattern; the same for the same seed."""
    rng = np.random.default_rng((seed, list(Pattern).index(pattern), device))
    return DRAWN[pattern](minutes, rng)


def _noisy(levels: Floats, spread: float, rng: np.random.Generator) -> Floats:
    """Return levels times noise that is correlated from one minute to the next (0.7)."""
    noise, last = np.empty(len(levels)), 0.0
    for minute, drawn in enumerate(rng.standard_normal(len(levels))):
        last = 0.7 * last + np.sqrt(1 - 0.7**2) * drawn
        noise[minute] = last
    return np.maximum(levels * (1.0 + spread * noise), 0.0)
