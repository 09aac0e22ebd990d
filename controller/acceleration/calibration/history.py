"""CPU or GPU from history: the noisy run times of earlier tasks, with a few runs on each device.

Measured times are modelled as true ones times a lognormal error of each run. A few runs of a task say little about it;
the other tasks show the range of times on a device. Both are weighted by their scatter (James and Stein, 1961; Efron
and Morris, 1975): the logarithm of a task's time is shrunk towards the overall mean, the more so the more runs scatter
relative to tasks. The noise is estimated from runs of the same task, not assumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np

from controller.acceleration.calibration.errors import CalibrationError
from controller.acceleration.calibration.fitting import quantile
from controller.cluster.estimates import Basis, Estimate
from dataplane.topology.values import DeviceKind

Runs = Mapping[str, Sequence[float]]
"""Seconds of each run of a task, by the task's name."""


@dataclass(frozen=True, slots=True)
class Prior:
    """Distribution shared by a device's tasks: mean and variance of their log times, and of the noise.

    `noise` is the variance of the logarithm of one run; `degrees` are the degrees of freedom of its estimate, 0 if it
    was given.
    """

    mean: float
    between: float
    noise: float
    degrees: int

    def kept(self, runs: int) -> float:
        """Return the weight of a task's own runs against the mean of all tasks, 0 to 1."""
        error = self.noise / runs
        return 1.0 if error == 0 else self.between / (self.between + error)


def prior_of(runs: Runs, noise: float | None = None) -> Prior:
    """Return the tasks' common prior; `noise` is the standard deviation of a run's logarithm, None: from repeated runs.

    Raise CalibrationError for invalid times, and if no task ran twice and no noise was given.
    """
    logs = {task: [_log(task, run_s) for run_s in seconds] for task, seconds in runs.items() if seconds}
    if not logs:
        raise CalibrationError("history: no task has run")
    degrees = sum(len(task_logs) - 1 for task_logs in logs.values())
    if noise is None:
        if degrees == 0:
            raise CalibrationError("history: no task ran twice, so the scatter of runs is unknown")
        squares = math.fsum((x - fmean(task_logs)) ** 2 for task_logs in logs.values() for x in task_logs)
        variance = squares / degrees
    else:
        variance, degrees = noise**2, 0
    means, errors = (
        [fmean(task_logs) for task_logs in logs.values()],
        [variance / len(task_logs) for task_logs in logs.values()],
    )
    return Prior(*_common(means, errors), variance, degrees)


def estimates_of(runs: Runs, prior: Prior) -> dict[str, Estimate]:
    """Return the expected time of each task's next run between the bounds of its mean; without runs, the prior's."""
    return {task: _estimate(seconds, prior) for task, seconds in runs.items()}


def decide(on_cpu: Runs, on_gpu: Runs, noise: float | None = None) -> dict[str, DeviceKind]:
    """Return the device of each task of `on_cpu`: the one with the shorter expected time.

    Tasks missing from `on_gpu` cannot run there and get the CPU. A task there without runs is assumed to be like the
    others.
    """
    both = {DeviceKind.CPU: on_cpu, DeviceKind.GPU: on_gpu}
    estimates = {device: estimates_of(runs, prior_of(runs, noise)) for device, runs in both.items() if runs}
    return {
        task: _shorter(estimates[DeviceKind.CPU][task], estimates.get(DeviceKind.GPU, {}).get(task)) for task in on_cpu
    }


def _shorter(on_cpu: Estimate, on_gpu: Estimate | None) -> DeviceKind:
    if on_gpu is None or on_gpu.times[1] >= on_cpu.times[1]:
        return DeviceKind.CPU
    return DeviceKind.GPU


def _estimate(seconds: Sequence[float], prior: Prior) -> Estimate:
    """Return exp of the shrunk logarithm; the mean of a lognormal is above its median by half the variance."""
    if not seconds:
        middle, spread, kept = prior.mean, prior.between, 0.0
    else:
        kept = prior.kept(len(seconds))
        middle = prior.mean + kept * (fmean(map(math.log, seconds)) - prior.mean)
        spread = kept * prior.noise / len(seconds)
    off = quantile(max(prior.degrees, 1) if prior.degrees else 10**6) * math.sqrt(spread)
    expected = math.exp(middle + spread / 2)
    reason = f"{len(seconds)} runs, weighted {kept:.0%} against the mean of all tasks"
    low, high = math.exp(middle - off), math.exp(middle + off)
    return Estimate(expected, min(low, expected), max(high, expected), Basis.HISTORY, None, (reason,))


def _common(means: Sequence[float], errors: Sequence[float]) -> tuple[float, float]:
    """Return mean and variance of the values behind means with these variances (DerSimonian and Laird, 1986)."""
    x, variances = np.array(means), np.array(errors)
    if len(means) == 1:
        return float(x[0]), 0.0
    if not variances.all():
        return float(x.mean()), float(x.var(ddof=1))
    weights = 1 / variances
    centre = float(weights @ x / weights.sum())
    excess = float(weights @ (x - centre) ** 2) - (len(means) - 1)
    between = max(excess / float(weights.sum() - (weights**2).sum() / weights.sum()), 0.0)
    weights = 1 / (variances + between)
    return float(weights @ x / weights.sum()), between


def _log(task: str, seconds: float) -> float:
    if not (math.isfinite(seconds) and seconds > 0):
        raise CalibrationError(f"history: {task}: invalid run time of {seconds} s")
    return math.log(seconds)
