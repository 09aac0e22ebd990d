"""Rounds of the whole path server, as its process runs them: a snapshot of links and flows in, routes out."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from collectors.values import FlowKey, LinkState, PathState, Snapshot
from controller.network.algorithms.link_table import LinkTable
from controller.network.algorithms.trees import DestinationTrees
from controller.network.paths.core import PathServerCore
from controller.network.paths.settings import DecideSettings
from dataplane.topology.values import LinkKey, Topology
from dataplane.wire.ipv4 import PROTOCOL_UDP
from tests.benchmarks.routing.scale import changes, idle_states, next_links, random_fabric

FLOWS = 4096
"""As many as the process looks after by default."""

_INTERVAL_NS = 100_000_000


@dataclass(frozen=True, slots=True)
class Rounds:
    """Time of a round with every flow measured, ms: without changes, and after a change of one link."""

    calm_ms: float
    change_ms: float


def measured_paths(topology: Topology, count: int) -> dict[FlowKey, PathState]:
    """Return flows between random pairs of hosts, as telemetry shows them on their shortest paths."""
    table, chance, states = LinkTable.of(topology), random.Random(1), dict[FlowKey, PathState]()
    trees = DestinationTrees(table, table.costs())
    following = next_links(trees)
    while len(states) < count:
        src, dst = chance.sample(topology.hosts, 2)
        at, end = (table.switch_number[topology.attachment[host.name].node] for host in (src, dst))
        switches = [table.switches[at]]
        while at != end:
            at = table.head[following[end, at]]
            switches.append(table.switches[at])
        key = FlowKey(src.ipv4, dst.ipv4, PROTOCOL_UDP, 1000, 2000)
        path = PathState(key, tuple(switches), delay_ns=20_000, bottleneck_bps=10_000_000_000, age_ns=0)
        states[key] = replace(path, rate_bps=1_000_000, samples=10, measured_bytes=1_000_000)
    return states


def measure_rounds(switches: int, degree: int, rounds: int) -> Rounds:
    """Return what `PathServerCore.step` takes in the large fabric with as many flows as it looks after by default."""
    topology = random_fabric(switches, degree, seed=1)
    core, paths = PathServerCore(topology, DecideSettings(), max_flows=FLOWS), measured_paths(topology, FLOWS)
    states, now_ns = idle_states(topology), 0

    def step(states: Mapping[LinkKey, LinkState]) -> float:
        nonlocal now_ns
        now_ns += _INTERVAL_NS
        snapshot = Snapshot(now_ns, dict(states), paths, {})
        start = time.perf_counter()
        core.step(snapshot, now_ns)
        return (time.perf_counter() - start) * 1e3

    step(states)  # learns of all flows
    calm = [step(states) for _ in range(rounds)]
    changed = []
    for change in changes(topology, rounds, seed=2):
        states = {**states, change.state.link: change.state}
        changed.append(step(states))
    return Rounds(float(np.median(calm)), float(np.median(changed)))
