"""Noise: loads that come and go but fit on average, so nothing should move.

Every pair of hosts of the demand matrix sends bursts, each a flow of its own with Poisson arrivals, between pauses; all
of them at once would fill the busiest link to `peak` (in a Clos, where hashes put flows on links, to twice that at
worst). Queues come and go with the bursts, so delays jitter. A stretch of random arrivals may still fill a link for a
moment; the decider, which answers surges within two tenths of a second, then moves flows. How often depends on the
draw.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import msgspec

from controller.apps.demo.outcome import Move
from controller.apps.demo.prepare import prepare
from controller.apps.demo.scenario import PlannedFlow, Scenario, ScenarioSettings
from controller.apps.demo.settings import DemoSettings
from controller.network.paths.balancing.values import Rebalance
from dataplane.clock import NS_PER_S
from dataplane.fabric.hosts import MAX_FLOWS
from dataplane.topology.file import topologies_folder
from tests.benchmarks.reacting.surges import run


@dataclass(frozen=True, slots=True)
class Noise:
    """One kind of it: times of bursts and pauses are drawn between half and one and a half times their mean."""

    name: str
    topology: str
    burst_s: float
    pause_s: float
    peak: float = 0.6
    hops_per_s: float = 3000.0


KINDS = (
    Noise("short bursts", "abilene", 0.3, 0.6),
    Noise("long bursts", "abilene", 3.0, 3.0),
    Noise("bursts on a Clos", "leaf-spine", 0.5, 0.5, peak=0.3),
    Noise("steady Poisson", "leaf-spine", 1e6, 1e-3, peak=0.3),
)


SPAN_S = 300.0
"""Longer noise is made of equal spans, each on a network of its own: bursts are flows, which have numbers."""


def moves_of(noise: Noise, seconds: float, seed: int) -> tuple[Move | Rebalance, ...]:
    """Return what moved, flows and weights, in so much network time of noise."""
    spans = max(1, math.ceil(seconds / SPAN_S))
    return tuple(move for span in range(spans) for move in _moves_of_span(noise, seconds / spans, seed * 1000 + span))


def _moves_of_span(noise: Noise, seconds: float, seed: int) -> tuple[Move | Rebalance, ...]:
    scenario = ScenarioSettings(
        peak_utilisation=noise.peak,
        hops_per_s=noise.hops_per_s,
        warm_up_s=1.0,
        before_s=1.0,
        during_s=1.0,
        after_s=max(seconds - 3.0, 1.0),
    )
    demands = topologies_folder() / "abilene-demands.csv" if noise.topology == "abilene" else None
    plan = prepare(noise.topology, demands, scenario)
    bursts = tuple(_bursts(plan.scenario, noise, random.Random(seed)))
    if len(bursts) > MAX_FLOWS:
        raise ValueError(f"{noise.name}: {len(bursts)} bursts, more than {MAX_FLOWS} flows")
    plan = replace(plan, scenario=replace(plan.scenario, flows=bursts))
    outcome, _ = run(plan, msgspec.structs.replace(DemoSettings(), scenario=scenario), seed)
    return *outcome.moves, *outcome.rebalances


def _bursts(scenario: Scenario, noise: Noise, chance: random.Random) -> Iterator[PlannedFlow]:
    number = 0
    for planned in scenario.flows:
        start_ns = 0 if planned.surge else round(chance.random() * noise.pause_s * NS_PER_S)
        while not planned.surge and start_ns < scenario.end_ns:
            stop_ns = start_ns + _about(noise.burst_s, chance)
            yield replace(planned, number=number, start_ns=start_ns, stop_ns=min(stop_ns, scenario.end_ns))
            number += 1
            start_ns = stop_ns + _about(noise.pause_s, chance)


def _about(seconds: float, chance: random.Random) -> int:
    return round(seconds * chance.uniform(0.5, 1.5) * NS_PER_S)
