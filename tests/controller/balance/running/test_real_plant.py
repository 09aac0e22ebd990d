"""A closed loop of real parts: a worker under a quota of CPU time, fed over a link whose rate is halved and restored.

The error of some seconds is the mean of their samples: on a loaded machine single ones of a fifth of a second scatter.
"""

from __future__ import annotations

import os
import time
from itertools import islice
from statistics import fmean

import pytest

from controller.balance.control.controller import Controller, ControlSettings
from controller.balance.rules import PlatformRule
from controller.balance.running.board import Board
from controller.balance.running.loop import Loop, Tick
from controller.balance.running.silence import SilenceSettings
from dataplane.cgroups import group_at
from dataplane.clock import MonotonicClock
from tests.benchmarks.balancing.real_plant import RealPlant

WINDOW = 5
"""Samples in which the error must stay there."""
MOST = 60
"""Maximum samples until the error has settled."""


def settled(loop: Loop) -> list[Tick]:
    """Return the samples with the error in the dead band; fail if it is not reached."""
    held: list[Tick] = []
    errors: list[float] = []
    for _ in islice(iter(int, 1), MOST):
        time.sleep(0.2)
        tick = loop.tick()
        if tick.sample is not None:
            held = [*held[1 - WINDOW :], tick]
        errors = [tick.sample.error for tick in held if tick.sample is not None]
        if len(held) == WINDOW and abs(fmean(errors)) < 0.1 and not held[-1].has_moved:
            return held
    raise AssertionError(f"not settled within {MOST} samples, the last errors are {errors}")


@pytest.mark.root
def test_error_settles_under_a_tenth_as_the_link_rate_changes() -> None:
    if os.geteuid() != 0 or "cpu" not in group_at("/").folders:
        pytest.skip("needs root and control groups with a quota of CPU time")
    clock = MonotonicClock()
    with RealPlant(20_000_000, cpu_s_per_megabyte=0.12, sub_units=40) as plant:
        lever = plant.lever()
        board = Board([lever], clock)
        loop = Loop(
            plant.source(), Controller(ControlSettings()), PlatformRule(), board, silence=SilenceSettings(), clock=clock
        )
        units = []
        for rate_bps in (20_000_000, 10_000_000, 20_000_000):
            plant.shape(rate_bps)
            units.append(settled(loop)[-1].state.sub_units)
        assert units[1] < 0.75 * min(units[0], units[2])
        loop.release()
        assert lever.read().value == 40
