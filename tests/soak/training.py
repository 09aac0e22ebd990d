"""Trainings by a switch in which at random frames are lost, workers are killed and come back, the switch is killed.

    sudo .venv/bin/python tests/soak/training.py --rounds 20 --seed 1

Prints what happened in each round, and exits 1 where a worker's bits or losses are not those of the others and gloo's.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from controller.apps.demo.training.fabric import Answers, TrainingFabric

WORKERS, RATE_BPS, STEPS = 4, 200_000_000, 40
LOSING = "tests.integration.training_workers"
WITHIN = 1e-5


def one_round(fabric: TrainingFabric, name: str, chance: random.Random) -> tuple[str, Answers, int]:
    """Return what happened, what all found, and how many steps all four trained without a break."""
    loss = chance.choice([0.0, 0.01, 0.05])
    what = chance.choice(["nothing", "worker", "switch", "both"])
    victim, away_s = chance.randrange(1, WORKERS), chance.uniform(0.0, 6.0)  # rank 0 has the group's store
    if what == "both":
        fabric.begin(name, loss=loss, dies=victim)
        assert fabric.hear() == {"rank": victim, "ended": -9}
        fabric.restart_switch(after_s=away_s)
        results = fabric.results(WORKERS - 1)
        fabric.restart_workers()
        return f"{loss:.0%} lost, worker {victim} killed, then the switch for {away_s:.1f} s", results, STEPS // 2 + 1
    if what == "worker":
        fabric.begin(name, loss=loss, dies=victim, joins=10)
        assert fabric.hear() == {"rank": victim, "ended": -9}
        fabric.fork(victim)
        fabric.begin(name, loss=loss, joins=10, ranks=[victim])
        results = fabric.results(WORKERS)
        fabric.restart_workers()
        return f"{loss:.0%} lost, worker {victim} killed and back", results, STEPS // 2 + 1
    fabric.begin(name, loss=loss, tells=what == "switch")
    if what == "switch":
        assert "middle" in fabric.hear()
        fabric.restart_switch(after_s=away_s)
        return f"{loss:.0%} lost, switch killed for {away_s:.1f} s", fabric.results(WORKERS), STEPS
    return f"{loss:.0%} lost", fabric.results(WORKERS), STEPS


def problems(answers: Answers, by_gloo: Answers, steps: int) -> list[str]:
    """Return the problems."""
    wrong = [] if len({answer["parameters"] for answer in answers.values()}) == 1 else ["parameters differ"]
    for rank, answer in answers.items():
        losses = np.array(answer["losses"][:steps])
        if losses.size == steps and np.abs(losses - by_gloo[rank]["losses"][:steps]).max() > WITHIN:
            wrong.append(f"losses of worker {rank} are not gloo's")
    return wrong


def main() -> int:
    """Train in rounds; return the exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance, wrong = random.Random(options.seed), 0
    with TrainingFabric(WORKERS, RATE_BPS, dead_after_s=5.0, module=LOSING, steps=STEPS) as fabric:
        fabric.patience_s = 200.0  # where two die at once, workers wait for one result, and then for each other
        fabric.begin("gloo", by_gloo=True)
        by_gloo = fabric.results(WORKERS)
        for number in range(options.rounds):
            what, answers, steps = one_round(fabric, f"round-{number}", chance)
            bad = problems(answers, by_gloo, steps)
            ways = "".join("R" if answer["by_ring"] else "S" for _, answer in sorted(answers.items()))
            print(f"round {number}: {what}; by {ways}; {', '.join(bad) or 'right'}", flush=True)
            wrong += bool(bad)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
