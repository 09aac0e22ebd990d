"""A job over two levels of switches in namespaces, whose workers are killed and come back at random.

    sudo .venv/bin/python tests/soak/two_levels.py --rounds 20 --seed 1

Prints what happened in each round, and exits 1 where a sum is not that of its members, or two workers' sums differ.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from dataplane.fabric.families import leaf_spine
from tests.integration.job_fabric import JobFabric, WorkerProcess

HOSTS = ("h1", "h2", "h3", "h4", "h5", "h6")
ADDS = {host: 2 << place for place, host in enumerate(HOSTS)}


def soak(rounds: int, seed: int) -> list[str]:
    """Return what was wrong."""
    chance, problems = random.Random(seed), []
    with JobFabric(len(HOSTS), topology=leaf_spine(1, 3, 2)) as fabric:
        workers = {host: fabric.start_worker(host, len(HOSTS)) for host in HOSTS}
        everybody = sum(ADDS.values())
        last = _all_have(workers, everybody, -1)
        for number in range(1, rounds + 1):
            victim = chance.choice(HOSTS)
            gone = workers.pop(victim)
            gone.kill()
            last = _all_have(workers, everybody - ADDS[victim], last)
            workers[victim] = fabric.start_worker(victim, len(HOSTS))
            last = _all_have(workers, everybody, last)
            problems += _differences([*workers.values(), gone], everybody)
            print(f"round {number}: without {victim}, and with it, {last} all-reduces")
    return problems


def _all_have(workers: dict[str, WorkerProcess], total: int, after: int) -> int:
    """Wait until all workers have a sum after an all-reduce, and return the greatest number of its first."""
    return max(worker.wait_for_sum(total, after) for worker in workers.values())


def _differences(workers: list[WorkerProcess], everybody: int) -> list[str]:
    found: dict[int, int] = {}
    right = {everybody, *(everybody - one for one in ADDS.values())}
    problems = []
    for worker in workers:
        for count, total in worker.sums.items():
            if total not in right or found.setdefault(count, total) != total:
                problems.append(f"{worker.out.name}: all-reduce {count} is {total}, elsewhere {found.get(count)}")
    return problems


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = soak(arguments.rounds, arguments.seed)
    print("\n".join(wrong) or "every sum is that of its members, the same at all")
    sys.exit(1 if wrong else 0)
