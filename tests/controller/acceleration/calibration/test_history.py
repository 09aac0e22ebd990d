"""CPU or GPU from history: the few runs of a task are shrunk towards all tasks."""

from __future__ import annotations

import math

import numpy as np
import pytest

from controller.acceleration.calibration import CalibrationError
from controller.acceleration.calibration.history import decide, estimates_of, prior_of
from controller.cluster.estimates import Basis
from dataplane.topology.values import DeviceKind

CPU, GPU = DeviceKind.CPU, DeviceKind.GPU


def drawn(noise: float, runs: int, seed: int = 1) -> tuple[dict[str, float], dict[str, list[float]]]:
    generator = np.random.default_rng(seed)
    truth = {str(task): float(seconds) for task, seconds in enumerate(np.exp(generator.normal(0, 0.5, 400)))}
    return truth, {task: list(s * np.exp(noise * generator.standard_normal(runs))) for task, s in truth.items()}


def test_noise_and_scatter_of_tasks_are_found_in_the_runs() -> None:
    prior = prior_of(drawn(0.3, 3)[1])
    assert prior.noise**0.5 == pytest.approx(0.3, rel=0.05)
    assert prior.between**0.5 == pytest.approx(0.5, rel=0.1)
    assert prior.degrees == 800


def test_shrunk_times_are_nearer_to_the_truth_than_means_of_runs() -> None:
    truth, runs = drawn(0.6, 2)
    estimates = estimates_of(runs, prior_of(runs))
    ours = sum((math.log(estimates[task].seconds or 0) - math.log(seconds)) ** 2 for task, seconds in truth.items())
    own = sum((np.log(runs[task]).mean() - math.log(seconds)) ** 2 for task, seconds in truth.items())
    assert ours < 0.75 * own
    held = sum((estimates[task].low or 0) <= seconds <= (estimates[task].high or 0) for task, seconds in truth.items())
    assert 0.92 <= held / 400 <= 0.99
    assert estimates["0"].basis is Basis.HISTORY


def test_without_noise_a_tasks_own_runs_decide() -> None:
    cpu = {"a": [1.0, 1.0], "b": [2.0, 2.0], "c": [3.0, 3.0]}
    gpu = {"a": [2.0, 2.0], "b": [1.0, 1.0]}
    assert decide(cpu, gpu) == {"a": CPU, "b": GPU, "c": CPU}  # c cannot run on a GPU


def test_task_unmeasured_on_the_gpu_is_taken_to_be_like_others() -> None:
    cpu = {name: [2.0, 2.1] for name in "abcd"}
    gpu: dict[str, list[float]] = {name: [0.5, 0.52] for name in "abc"} | {"d": []}
    assert decide(cpu, gpu)["d"] is GPU


def test_one_run_each_needs_a_stated_noise() -> None:
    runs = {"a": [1.0], "b": [2.0]}
    with pytest.raises(CalibrationError, match="no task ran twice"):
        decide(runs, runs)
    assert decide(runs, {"a": [0.1], "b": [9.0]}, noise=0.1) == {"a": GPU, "b": CPU}
    with pytest.raises(CalibrationError, match=r"history: a: invalid run time of -1\.0 s"):
        prior_of({"a": [-1.0]}, 0.1)
