"""Value of network features under moving congestion: the same agent with them and without.

Sixteen nodes compute, four hold the data: the hosts of a fabric of four leaves and two spines, five per leaf, one of
them with data. Background demands are redrawn every 4 ms of virtual time: four hosts, different ones each time, each
receive from six hosts and send to six, as much as their links carry. The rate left for a transfer of the pool is
computed flow by flow (`network.under_demands`). Tasks compute little and use one or two extents: a task waits for its
data. A decision is judged by its own response alone (discount 0).

Both arms have the same settings, budget, seeds and inputs; only `network_features` differs. `load_features` are off in
both, because their `fetching` would reveal the network, too.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, Final

import msgspec
from rich.console import Console
from rich.table import Table

from collectors.values import Snapshot
from controller.cluster.cost_map import CostMap
from controller.learning.environment.network import under_demands
from controller.learning.environment.settings import Gain, PoolSettings
from controller.learning.environment.values import Medium, Memory, Network, Node, System
from controller.learning.inputs.bursty import BurstySettings, bursty_input
from controller.learning.inputs.systems import GIB, PoolSystem
from controller.learning.inputs.values import PoolInput
from controller.learning.training.figures import Figures
from controller.learning.training.given import Given, LearningSettings, given_of_pool
from controller.learning.training.trials import evaluate, greedy
from dataplane.topology.demands import DemandMatrix
from dataplane.topology.families import from_text
from tests.benchmarks.scheduling import cases
from tests.benchmarks.scheduling.cases import SEEDS
from tests.benchmarks.scheduling.comparison import spread
from tests.benchmarks.scheduling.trials import in_processes, taught

COMPUTING: Final = 16
HOLDING: Final = 4
FABRIC: Final = "leaf-spine:leaves=4,spines=2,hosts=5"
PERIOD_NS: Final = 4_000_000
HOT: Final = 4
"""Hosts at which others' demands meet."""
PEERS: Final = 6

BURSTY: Final = BurstySettings(
    tasks=6_000, quiet_hz=4_000.0, burst_hz=12_000.0, most_objects=2, zipf=0.6, mean_operations=500_000.0, cpu_only=0.0
)
AGENT: Final = msgspec.structs.replace(
    cases.AGENT, training=msgspec.structs.replace(cases.AGENT.training, discount=0.0, buffer=4096, train_every=128)
)
EPISODES: Final = 2
FALLBACK: Final = "data-local"
POOL: Final = PoolSettings(gain=Gain.LOG_RESPONSE)


def made(seed: int, settings: BurstySettings = BURSTY) -> PoolInput:
    """Return the input of a seed: tasks and demands are drawn by it."""
    inputs = bursty_input(seed, settings)
    periods = int(inputs.workload.submitted_ns[-1]) // PERIOD_NS + 2
    return replace(inputs, system=System(_nodes(), network_of(seed, periods)))


def _nodes() -> tuple[Node, ...]:
    computing = PoolSystem(nodes=COMPUTING).made().nodes
    return (
        *(Node(node.name, node.engines, node.memories[:1]) for node in computing),
        *(Node(f"m{number}", (), (Memory.of(Medium.SCM, GIB),)) for number in range(HOLDING)),
    )


def network_of(seed: int, periods: int) -> Network:
    """Return the fabric between the nodes under demands that a seed draws for each period."""
    costs = CostMap.of(from_text(FABRIC), Snapshot(0, {}, {}, {}))
    leaves = [costs.hosts[first : first + 5] for first in range(0, COMPUTING + HOLDING, 5)]
    hosts = (*(host for leaf in leaves for host in leaf[:4]), *(leaf[4] for leaf in leaves))
    rng = random.Random(f"congestion/{seed}")
    rate_bps = costs.cost(hosts[0], hosts[1]).available_bps
    demands = {number * PERIOD_NS: _demands(rng, hosts, rate_bps) for number in range(periods)}
    return under_demands(hosts, costs, demands)


def _demands(rng: random.Random, hosts: tuple[str, ...], rate_bps: int) -> DemandMatrix:
    rates = [[0] * len(hosts) for _ in hosts]
    for hot in rng.sample(range(len(hosts)), HOT):
        others = [number for number in range(len(hosts)) if number != hot]
        for peer in rng.sample(others, PEERS):
            rates[peer][hot] = rate_bps
        for peer in rng.sample(others, PEERS):
            rates[hot][peer] = rate_bps
    return DemandMatrix(hosts, tuple(map(tuple, rates)))


@dataclass(frozen=True, slots=True)
class Job:
    """An agent that learns and is tried with features of the network or without; rules (None) are tried only."""

    network_features: bool | None
    seed: int
    quick: bool


def run(job: Job) -> tuple[Job, dict[str, Figures]]:
    """Run a job, and return figures by decider."""
    given = given_of(job.seed, quick=job.quick, network_features=bool(job.network_features))
    if job.network_features is None:
        return job, {name: evaluate(given, rule, job.seed) for name, rule in given.rules(job.seed).items()}
    lessons = (
        given_of(1000 * (job.seed + 1) + episode, quick=job.quick, network_features=job.network_features)
        for episode in range(1 if job.quick else EPISODES)
    )
    checkpoint, _ = taught(msgspec.structs.replace(AGENT, seed=job.seed), lessons, job.seed, FALLBACK)
    agent = greedy(given, checkpoint, given.rules(job.seed)[FALLBACK])
    return job, {"with" if job.network_features else "without": evaluate(given, agent, job.seed)}


def given_of(seed: int, *, quick: bool, network_features: bool) -> Given[Any]:
    """Return the input of a seed, ready to be played."""
    inputs = made(seed, msgspec.structs.replace(BURSTY, tasks=1_500) if quick else BURSTY)
    pool = msgspec.structs.replace(POOL, network_features=network_features)
    return given_of_pool(inputs, LearningSettings(pool=pool))


def measure(*, quick: bool = False) -> dict[str, float]:
    """Return which part of the mean response features of the network save."""
    seeds = SEEDS[:1] if quick else SEEDS
    by_arm: dict[str, list[Figures]] = {}
    for _, figures in in_processes(run, [Job(arm, seed, quick) for arm in (True, False, None) for seed in seeds]):
        for name, figure in figures.items():
            by_arm.setdefault(name, []).append(figure)
    with_, without = (fmean(figure.mean_response_ns for figure in by_arm[arm]) for arm in ("with", "without"))
    Console(width=150).print(table_of(by_arm))
    return {"network_gain": 1 - with_ / without}


def table_of(by_arm: Mapping[str, Sequence[Figures]]) -> Table:
    """Return a row for each decider: mean, minimum and maximum over the seeds."""
    columns = ("mean wait, us", "mean response, us", "p99 latency, us")
    table = Table("decider", *columns, title="Where congestion moves: tokens with features of the network and without")
    for name in sorted(by_arm, key=lambda name: fmean(figure.mean_response_ns for figure in by_arm[name])):
        figures = by_arm[name]
        columns_us = (
            [figure.mean_wait_ns / 1e3 for figure in figures],
            [figure.mean_response_ns / 1e3 for figure in figures],
            [figure.p99_latency_ns / 1e3 for figure in figures],
        )
        table.add_row(name, *map(spread, columns_us))
    return table
