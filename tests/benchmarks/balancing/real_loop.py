"""A closed loop of real parts: a worker under a quota of CPU time, fed over a shaped link, whose rate changes.

The link's rate is halved and restored. Each time the loop is to bring the error under 0.1 (the mean of a window of
samples) and is then watched for a while. `real_loop_error` is the mean |e| of the samples of these whiles.

    sudo .venv/bin/python -m tests.benchmarks.balancing.real_loop [--rule table|platform] [--hold 30]
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from controller.balance.control.controller import Controller, ControlSettings
from controller.balance.rules import IntervalRule, PlatformRule, Rule
from controller.balance.running.board import Board
from controller.balance.running.loop import Loop, Tick
from controller.balance.running.silence import SilenceSettings
from controller.balance.values import LeverKind
from dataplane.clock import MonotonicClock
from tests.benchmarks.balancing.real_plant import RealPlant

RATE_BPS: Final = 20_000_000
CPU_S_PER_MEGABYTE: Final = 0.12
"""At the whole rate 30 sub-units of a hundredth of a CPU keep up with the link, at half of it 15."""
SUB_UNITS: Final = 50
THRESHOLD: Final = 0.1
WINDOW: Final = 5
RULES: Final[dict[str, Rule]] = {
    "table": IntervalRule(levers=(LeverKind.SUB_UNITS,)),
    "platform": PlatformRule(),
}


@dataclass(frozen=True, slots=True)
class Phase:
    """Results of the loop at one rate of the link: settling time, and |e| and moves after it.

    `settle_s` is None if the loop did not settle within the time limit.
    """

    rate_bps: int
    settle_s: float | None
    mean_error: float
    within: float
    """Share of samples with |e| under the threshold."""
    moves_per_minute: float
    sub_units: float


def measure(
    rule: str = "table", *, interval_s: float = 0.25, hold_s: float = 10.0, most_s: float = 40.0
) -> tuple[Phase, ...]:
    """Return what the loop did at the whole rate, at half of it, and at the whole rate again; needs root."""
    clock = MonotonicClock()
    phases = []
    with RealPlant(RATE_BPS, CPU_S_PER_MEGABYTE, SUB_UNITS) as plant:
        loop = Loop(
            plant.source(),
            Controller(ControlSettings()),
            RULES[rule],
            Board([plant.lever()], clock),
            silence=SilenceSettings(),
            clock=clock,
        )
        for rate_bps in (RATE_BPS, RATE_BPS // 2, RATE_BPS):
            plant.shape(rate_bps)
            phases.append(_phase(loop, rate_bps, interval_s, hold_s, most_s))
    return tuple(phases)


def error_of(phases: tuple[Phase, ...]) -> float:
    """Return `real_loop_error`: the mean |e| once settled, over all phases."""
    return fmean(phase.mean_error for phase in phases)


def _phase(loop: Loop, rate_bps: int, interval_s: float, hold_s: float, most_s: float) -> Phase:
    start_s = time.monotonic()
    window: deque[float] = deque(maxlen=WINDOW)
    settle_s: float | None = None
    while settle_s is None and time.monotonic() - start_s < most_s:
        tick = _turn(loop, interval_s)
        if tick.sample is not None:
            window.append(tick.sample.error)
        if len(window) == WINDOW and abs(fmean(window)) < THRESHOLD:
            settle_s = time.monotonic() - start_s
    held = [_turn(loop, interval_s) for _ in range(round(hold_s / interval_s))]
    errors = [abs(tick.sample.error) for tick in held if tick.sample is not None]
    return Phase(
        rate_bps,
        settle_s,
        fmean(errors),
        fmean(error < THRESHOLD for error in errors),
        60 * sum(tick.has_moved for tick in held) / (held[-1].time_s - held[0].time_s),
        fmean(tick.state.sub_units for tick in held),
    )


def _turn(loop: Loop, interval_s: float) -> Tick:
    time.sleep(interval_s)
    return loop.tick()


def main() -> None:
    """Print what the loop did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rule", choices=sorted(RULES), default="table")
    parser.add_argument("--interval", type=float, default=0.25, metavar="S")
    parser.add_argument("--hold", type=float, default=10.0, metavar="S")
    chosen = parser.parse_args()
    phases = measure(chosen.rule, interval_s=chosen.interval, hold_s=chosen.hold)
    for phase in phases:
        settled = "did not settle" if phase.settle_s is None else f"settled in {phase.settle_s:4.1f} s"
        print(
            f"{phase.rate_bps / 1e6:5.1f} Mbit/s: {settled}, then mean |e| {phase.mean_error:.3f}, "
            f"{phase.within:4.0%} of samples under {THRESHOLD}, {phase.moves_per_minute:.0f} moves a minute, "
            f"{phase.sub_units:.1f} sub-units"
        )
    print(f"real_loop_error {error_of(phases):.3f}")


if __name__ == "__main__":
    main()
