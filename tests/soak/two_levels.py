"""A job over two levels of switches in namespaces, which moves between them, and whose workers are killed at random.

    sudo .venv/bin/python tests/soak/two_levels.py --rounds 20 --seed 1

Prints what happened in each round, and exits 1 where a sum is not that of its members, or two workers' sums differ.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from controller.network.aggregation.settings import AggregationSettings, MoveSettings
from controller.network.tables.telemetry.int_watch import Watch
from dataplane.topology.families import leaf_spine
from tests.integration.job_fabric import MS, JobFabric, WorkerProcess

MOVING = MoveSettings(gain=0.01, confirm_rounds=1, hold_down_ns=1500 * MS)
AGGREGATION = AggregationSettings(interval_ns=300 * MS, moving=MOVING)
TRAFFIC = """
import itertools, socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in itertools.count():
    for address in sys.argv[1:]:
        out.sendto(bytes(200), (address, 7000 + number % 50))
    time.sleep(0.002)
"""
"""Program whose traffic keeps links measured, with slightly varying results."""
HOSTS = ("h1", "h2", "h3", "h4", "h5", "h6")
ADDS = {host: 2 << index for index, host in enumerate(HOSTS)}


def soak(rounds: int, seed: int) -> list[str]:
    """Return the problems."""
    chance, problems = random.Random(seed), []
    topology = leaf_spine(2, 3, 2)
    with JobFabric(len(HOSTS), topology=topology, aggregation=AGGREGATION, watches=(Watch(),)) as fabric:
        for host, other in zip(HOSTS, (*HOSTS[2:], *HOSTS[:2]), strict=True):
            fabric.fabric.run_in(host, [sys.executable, "-c", TRAFFIC, str(topology.host[other].ipv4)])
        workers = {host: fabric.start_worker(host, len(HOSTS)) for host in HOSTS}
        everybody = sum(ADDS.values())
        last = _all_have(workers, everybody, -1)
        for number in range(1, rounds + 1):
            time.sleep(chance.uniform(0, 4))
            last = max(last, *(max(worker.sums) for worker in workers.values()))
            victim = chance.choice(HOSTS)
            gone = workers.pop(victim)
            gone.kill()
            last = _all_have(workers, everybody - ADDS[victim], last)
            workers[victim] = fabric.start_worker(victim, len(HOSTS))
            last = _all_have(workers, everybody, last)
            problems += _differences([*workers.values(), gone], everybody)
            log = (fabric.fabric.run_dir / "controller.log").read_text(encoding="utf-8")
            moves = len(set(re.findall(r"job (\d+), epoch", log))) - 1
            print(f"round {number}: without {victim}, and with it; {last} all-reduces, {moves} moves")
    return problems


def _all_have(workers: dict[str, WorkerProcess], total: int, after: int) -> int:
    """Wait until all workers have a sum after an all-reduce, and return the greatest number of its first."""
    return max(worker.wait_for_sum(total, after) for worker in workers.values())


def _differences(workers: list[WorkerProcess], everybody: int) -> list[str]:
    sums: dict[int, int] = {}
    right = {everybody, *(everybody - number for number in ADDS.values())}
    problems = []
    for worker in workers:
        for count, total in worker.sums.items():
            if total not in right or sums.setdefault(count, total) != total:
                problems.append(f"{worker.out.name}: all-reduce {count} is {total}, elsewhere {sums.get(count)}")
    return problems


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    wrong = soak(arguments.rounds, arguments.seed)
    print("\n".join(wrong) or "every sum is that of its members, the same at all")
    sys.exit(1 if wrong else 0)
