"""CPU or GPU for the tasks of hetero_spotri, decided from a noisy history: the regret against the per-task best.

The history is drawn: each of the 630 tasks that have both times ran twice on each device, each run at its true time
times exp(s z), z standard normal and s = 0.5: two thirds of runs are within -39 and +65 % of the truth.
Tasks whose GPU time is -1 have none: the CPU. What is decided costs the true times; regret is their sum over the sum of
the shorter ones, less 1, the mean over 20 histories drawn by fixed seeds. Beside it: always the GPU, always the CPU,
the mean of a task's own runs, and other levels of noise and numbers of runs; with a twentieth of runs five times as
long (stragglers, which the model of the noise does not have); and with the GPU runs of a tenth of tasks missing.

    .venv/bin/python -m tests.benchmarks.accelerating.spotri    # --data FOLDER
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from controller.acceleration.calibration.history import decide
from controller.cluster.workloads.files import spotri_graph
from dataplane.topology.values import DeviceKind

DATA: Final = Path(__file__).parents[4] / "shared" / "data"
FILE: Final = "hetero_spotri_spotri-320-10.txt"
NAMES: Final = ("regret", "regret_always_gpu", "regret_always_cpu")
CPU, GPU = DeviceKind.CPU, DeviceKind.GPU
NOISE: Final = 0.5
RUNS: Final = 2
HISTORIES: Final = 20

Times = Mapping[str, Mapping[DeviceKind, float]]
History = dict[DeviceKind, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of the history: the standard deviation of a run's logarithm, runs, and the shares that go wrong."""

    deviation: float = NOISE
    runs: int = RUNS
    stragglers: float = 0.0
    missing: float = 0.0


def times_of(data: Path) -> Times | None:
    """Return the seconds of each task by device; None where the file is not there."""
    if not (data / FILE).exists():
        return None
    tasks = spotri_graph(data / FILE).tasks
    return {task.name: {kind: ns / 1e9 for kind, ns in (task.duration_ns or {}).items()} for task in tasks}


def drawn(times: Times, noise: Noise, seed: int) -> History:
    """Return runs of all tasks on the devices that can run them."""
    generator = np.random.default_rng(seed)
    history: History = {CPU: {}, GPU: {}}
    for task, of_task in times.items():
        for device, seconds in of_task.items():
            errors = noise.deviation * generator.standard_normal(noise.runs)
            slow = np.where(generator.random(noise.runs) < noise.stragglers, 5.0, 1.0)
            is_missing = device is GPU and generator.random() < noise.missing
            history[device][task] = [] if is_missing else list(seconds * np.exp(errors) * slow)
    return history


def regret(times: Times, chosen: Mapping[str, DeviceKind]) -> float:
    """Return by how much the chosen devices take longer than the best of each task, over tasks that have both times."""
    both = {task: of_task for task, of_task in times.items() if len(of_task) == 2}
    return sum(of_task[chosen[task]] for task, of_task in both.items()) / sum(map(_best, both.values())) - 1


def _best(of_task: Mapping[DeviceKind, float]) -> float:
    return min(of_task.values())


def by_own_mean(history: History) -> dict[str, DeviceKind]:
    """Decide by the mean of a task's own runs; the GPU where it never ran there, as nearly all are faster."""
    on_gpu = history[GPU]
    return {
        task: GPU if task in on_gpu and (not on_gpu[task] or fmean(on_gpu[task]) < fmean(runs)) else CPU
        for task, runs in history[CPU].items()
    }


def regrets(times: Times, noise: Noise, histories: int) -> tuple[list[float], list[float]]:
    """Return the regrets of ours and of the own means, over histories drawn by their numbers."""
    ours, own = [], []
    # One run does not show the spread of runs, so it is passed in.
    told = noise.deviation if noise.runs == 1 else None
    for seed in range(histories):
        history = drawn(times, noise, seed)
        chosen = decide(history[CPU], history[GPU], told)
        assert all(chosen[task] is CPU for task, of_task in times.items() if GPU not in of_task)
        ours.append(regret(times, chosen))
        own.append(regret(times, by_own_mean(history)))
    return ours, own


def sweep() -> tuple[tuple[str, Noise], ...]:
    """Return the additional noise levels to show."""
    levels = [(f"{deviation:g}, {runs} runs", Noise(deviation, runs)) for runs in (1, 2, 3, 5) for deviation in LEVELS]
    odd = [
        ("0.3, 3 runs, 5 % stragglers", Noise(0.3, 3, stragglers=0.05)),
        ("0.3, 3 runs, 10 % never ran on the GPU", Noise(0.3, 3, missing=0.1)),
    ]
    return (*levels, *odd)


LEVELS: Final = (0.1, 0.2, 0.3, 0.5, 0.8)


def measure(*, quick: bool = False, data: Path = DATA) -> dict[str, float | None]:
    """Return regrets; None where the data is not there. `quick` leaves other levels of noise out."""
    console = Console(width=110)
    times = times_of(data)
    if times is None:
        console.print(f"{FILE}: not in {data}")
        return dict.fromkeys(NAMES)
    table = Table("noise", "regret", "worst history", "by own means", title="regret from noisy history, %")
    for name, noise in (("0.5, 2 runs (counts)", Noise()), *(() if quick else sweep())):
        ours, own = regrets(times, noise, HISTORIES)
        table.add_row(name, *(f"{100 * error:.2f}" for error in (fmean(ours), max(ours), fmean(own))))
    console.print(table)
    both = sum(len(devices) == 2 for devices in times.values())
    console.print(f"{both} tasks with both times, {len(times) - both} that only the CPU can run")
    counted = fmean(regrets(times, Noise(), HISTORIES)[0])
    always = [regret(times, dict.fromkeys(times, device)) for device in (GPU, CPU)]
    return dict(zip(NAMES, (counted, *always), strict=True))


def main(argv: list[str]) -> None:
    """Measure, print a table, and the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without other levels of noise")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of published traces")
    options = parser.parse_args(argv)
    figures = measure(quick=options.quick, data=options.data)
    print(json.dumps({name: None if value is None else round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
