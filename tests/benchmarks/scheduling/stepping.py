"""Decisions per second of the environment alone, at 16 nodes, with observations and all figures of each step.

The decisions replay a run of random choices. The bursty family evicts nearly nothing at first, then in most decisions.
"""

from __future__ import annotations

import time
from statistics import median

from rich.console import Console

from controller.learning.environment.pool import Pool
from controller.learning.heuristics.pool import Random
from controller.learning.inputs.bursty import BurstySettings, bursty_input

ROUNDS = 5


def measure(*, quick: bool = False) -> dict[str, float]:
    """Return the median of some rounds' decisions a second."""
    made = bursty_input(0, BurstySettings(tasks=2_000 if quick else 20_000))
    pool, rule = Pool(made.system, made.workload, made.settings), Random(0)
    seen, actions, evicting = pool.start(0), [], 0
    while True:
        actions.append(rule.choose(seen, pool))
        step = pool.step(actions[-1])
        evicting += step.evicted_bytes > 0
        if step.observation is None:
            break
        seen = step.observation
    rates = []
    for _ in range(ROUNDS):
        pool.start(0)
        began_ns = time.perf_counter_ns()
        for action in actions:
            pool.step(action)
        rates.append(len(actions) * 1e9 / (time.perf_counter_ns() - began_ns))
    Console(width=120).print(
        f"stepping: {median(rates):,.0f} decisions/s ({min(rates):,.0f} to {max(rates):,.0f}),"
        f" evictions in {evicting / len(actions):.0%} of them"
    )
    return {"env_decisions_per_s": median(rates)}
