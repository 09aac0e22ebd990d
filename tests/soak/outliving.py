"""A training of four workers in which any part is killed at random moments: worker, controller, switch.

    sudo .venv/bin/python tests/soak/outliving.py --minutes 10 --kills 50 --seed 1

Prints each kill, and exits 1 unless the training outlives them all: the parameters of all workers are the same bits
after each step, the loss is that of the same training without kills, within a bound, no worker gets an error, and the
log of some part has a line within five seconds of each longer pause.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import time
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from controller.apps.demo.training.fabric import SWITCH
from controller.network.aggregation.settings import AggregationSettings
from tests.integration.job_fabric import MS, JobFabric, WorkerProcess, until
from tests.soak.outliving_worker import NOISE, RATE, SIZE, gradient

HOSTS = ("h1", "h2", "h3", "h4")
AGGREGATION = AggregationSettings(report_every=1, dead_after_ns=60_000 * MS, deadline_ns=30_000 * MS)
QUIET_S, POLL_S = 5.0, 1.0
"""Time without a step after which a line is due, and how late it may be on a busy machine."""
SMOOTHED = 25
"""Steps over which losses are averaged."""
BOUND = 1.5
"""A loss may be this many times the reference's, whose gradients are of other points."""


class Soak:
    """The fabric, its workers, and what went wrong."""

    def __init__(self, fabric: JobFabric, chance: random.Random) -> None:
        self.fabric, self.chance = fabric, chance
        self.present: dict[str, WorkerProcess] = {}
        self.everybody: list[WorkerProcess] = []
        self.kills: list[tuple[float, str]] = []
        self.is_controlled = True

    def start(self, host: str) -> None:
        worker = self.fabric.start_worker(host, len(HOSTS))
        self.present[host] = worker
        self.everybody.append(worker)

    def steps(self) -> int:
        """Return the number of steps so far."""
        return max(
            (line["step"] for worker in self.present.values() for line in worker.lines[-1:] if "step" in line),
            default=-1,
        )

    def kill(self) -> None:
        """Kill something, and start it again after a while."""
        what = self.chance.choice(["worker", "controller", "switch", "worker and controller"])
        away_s = self.chance.uniform(0.0, 4.0)
        host = self.chance.choice(HOSTS)
        told = what.replace("worker", host)
        self.kills.append((time.time(), f"{told}, for {away_s:.1f} s"))
        print(f"step {self.steps()}: kill {self.kills[-1][1]}", flush=True)
        if "controller" in what:
            self.fabric.kill_controller()
        if "worker" in what:
            self.present.pop(host).kill()
        if what == "switch":
            self.fabric.fabric.stop_switch(SWITCH, kill=True)
        time.sleep(away_s)
        if what == "switch":
            self.fabric.fabric.start_switch(SWITCH)
        if "controller" in what:
            self.fabric.start_controller()
        if "worker" in what:
            self.start(host)

    def until_all_work(self) -> None:
        """Wait until all four workers have got on by some steps."""
        before = self.steps()
        until(
            lambda: all(_last_step(worker) > before + 2 for worker in self.present.values()), f"steps beyond {before}"
        )


def _last_step(worker: WorkerProcess) -> int:
    return max((line["step"] for line in worker.lines[-2:] if "step" in line), default=-1)


def reference(steps: int) -> list[float]:
    """Return the losses of the same training without kills."""
    chances = [np.random.default_rng(1000 + rank) for rank in range(len(HOSTS))]
    parameters, losses = np.zeros(SIZE, np.float32), list[float]()
    for _ in range(steps):
        each = [gradient(parameters, chance) for chance in chances]
        parameters = parameters - np.float32(RATE) * np.mean([own for own, _ in each], axis=0, dtype=np.float32)
        losses.append(float(np.mean([loss for _, loss in each])))
    return losses


def problems_of(soak: Soak) -> list[str]:
    """Return what a training that outlives everything would not show."""
    found, digests, losses = list[str](), dict[int, str](), dict[int, float]()
    for worker in soak.everybody:
        if worker.error is not None:
            found.append(f"{worker.out.name}: {worker.error}")
        for line in worker.lines:
            if "step" in line and digests.setdefault(line["step"], line["digest"]) != line["digest"]:
                found.append(f"{worker.out.name}: other parameters after step {line['step']}")
                break
            if "step" in line:
                losses[line["step"]] = line["loss"]
    if sorted(losses) != list(range(len(losses))):
        found.append("steps are missing")
        return found
    curve, ideal = (_smoothed(values) for values in ([losses[step] for step in sorted(losses)], reference(len(losses))))
    beyond = [step for step, loss in enumerate(curve) if loss > BOUND * ideal[step] + NOISE**2]
    if beyond:
        found.append(f"loss beyond its bound from step {beyond[0]} on: {curve[beyond[0]]:.3g}, {ideal[beyond[0]]:.3g}")
    print(f"{len(losses)} steps, loss {curve[0]:.3g} to {curve[-1]:.3g}, without kills {ideal[-1]:.3g}")
    return found + silences(soak)


def _smoothed(values: list[float]) -> list[float]:
    return [float(np.mean(values[max(0, at - SMOOTHED) : at + 1])) for at in range(len(values))]


def silences(soak: Soak) -> list[str]:
    """Return the longer pauses of the training that no log tells of in time."""
    folder = soak.fabric.fabric.run_dir
    ends = sorted({line["at_s"] for worker in soak.everybody for line in worker.lines if "at_s" in line})
    said = sorted(
        moment
        for path in folder.glob("*.log")
        for text in path.read_text("utf-8").splitlines()
        for moment in _when(text)
    )
    longest, found = 0.0, list[str]()
    for begin, end in pairwise(ends):
        longest = max(longest, end - begin)
        if end - begin <= QUIET_S:
            continue
        first_s = next((moment - begin for moment in said if begin < moment < end), end - begin)
        if first_s > QUIET_S + POLL_S:
            found.append(f"no step for {end - begin:.1f} s, and the first line in a log after {first_s:.1f} s")
    print(f"longest time without a step: {longest:.1f} s")
    return found


def _when(text: str) -> list[float]:
    """Return the time of a line of a worker's log, or of a daemon's."""
    worker = re.match(r"(\d{9,}\.\d+) ", text)
    if worker is not None:
        return [float(worker[1])]
    daemon = re.match(r"\d{4}-\d\d-\d\dT\S+Z", text)
    return [] if daemon is None else [datetime.fromisoformat(daemon[0]).timestamp()]


def soak(seconds: float, kills: int, seed: int) -> list[str]:
    """Return the problems of a training with so many kills."""
    with JobFabric(len(HOSTS), aggregation=AGGREGATION, worker="tests.soak.outliving_worker") as fabric:
        run = Soak(fabric, random.Random(seed))
        for host in HOSTS:
            run.start(host)
        run.until_all_work()
        began = time.monotonic()
        for number in range(1, kills + 1):
            time.sleep(
                max(0.0, began + seconds * number / (kills + 1) * run.chance.uniform(0.8, 1.0) - time.monotonic())
            )
            run.kill()
            run.until_all_work()
        (fabric.fabric.run_dir / "stop").touch()
        until(lambda: all(not _is_alive(worker.pid) for worker in run.present.values()), "an end")
        return problems_of(run)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("needs root")
    wrong = soak(60 * arguments.minutes, arguments.kills, arguments.seed)
    print("\n".join(wrong) or "the training has outlived everything")
    sys.exit(1 if wrong else 0)
