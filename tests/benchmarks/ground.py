"""Foundations of the schedulers: the cost map of 1,000 hosts and its views, storage, and the simulation.

The cost map covers a fat tree of 1,024 hosts and 320 switches, with telemetry of every link that a switch sends on, as
delivered by the feed, 1,000 weighted routes and four explicit ones. The baseline is the plain twin from the tests (in
fractions, path by path), on some pairs drawn by a seed: `cost_map_ratio` is the twin's time for a pair over ours.
ground_simulation.py measures the simulation, ground_storage.py storage and API server.

    .venv/bin/python -m tests.benchmarks.ground     # --quick: 128 hosts, fewer tasks; --only cost_map
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console
from rich.table import Table

from collectors.feed import feed_pb2
from collectors.feed.snapshots import snapshot_message, snapshot_of
from collectors.values import LinkState, Snapshot
from controller.cluster.alto.service import AltoService
from controller.cluster.cost_map import CostMap, CostModel
from controller.cluster.cost_map.live import CostMapKeeper
from controller.network.intents import RouteSet
from dataplane.rpc.messages import parse
from dataplane.topology.families import from_text
from tests.benchmarks import ground_simulation, ground_storage
from tests.controller.cluster.cost_map.fabrics import link_state, route_set
from tests.reference.pair_figures import pair_figures

NAMES: Final = (
    "cost_map_ms_1000_hosts",
    "cost_map_ratio",
    "cost_change_ms",
    "cost_follow_ms",
    "alto_map_ms",
    "writes_per_s",
    "watch_p99_ms",
    "api_creates_per_s",
    "api_watch_p99_ms",
    "sim_tasks_per_s",
    "sim_error",
)
_ROUNDS: Final = 7
_TWIN_PAIRS: Final = 24
_WEIGHTED: Final = 1000


@dataclass(frozen=True, slots=True)
class Measured:
    """A fabric with two snapshots, as a feed brings them one after the other, in columns."""

    model: CostModel
    snapshots: tuple[bytes, bytes]
    routes: RouteSet

    @classmethod
    def of(cls, fabric: str) -> Measured:
        """Return a fabric with all links from switches measured."""
        rng, model = random.Random(1), CostModel(from_text(fabric))
        topology = model.topology
        leaving = [key for key in topology.directed_links if key.src in topology.switch]
        snapshots = []
        for second in range(2):
            links = {key: replace(link_state(topology, key, rng), age_ns=rng.randrange(10**9)) for key in leaving}
            snapshots.append(snapshot_message(Snapshot(second * 10**9, links, {}, {})).SerializeToString())
        routes = route_set(topology, rng)
        weighted = tuple(rng.sample(routes.weighted, min(len(routes.weighted), _WEIGHTED)))
        return cls(model, (snapshots[0], snapshots[1]), replace(routes, weighted=weighted))

    def snapshot(self, number: int) -> Snapshot:
        """Return a snapshot as the feed's client makes it."""
        return snapshot_of(parse(feed_pb2.Snapshot, self.snapshots[number]))


def best_ms(run: Callable[[int], object], rounds: int = _ROUNDS) -> float:
    """Return the quickest of some runs."""
    times = []
    for number in range(rounds):
        start_s = time.perf_counter()
        run(number)
        times.append(time.perf_counter() - start_s)
    return 1000 * min(times)


def cost_map(fabric: str) -> dict[str, float]:
    """Return what the cost map costs: all of it with its arrays, a change, one snapshot of a feed, a view of it."""
    measured = Measured.of(fabric)
    model, routes, snapshot = measured.model, measured.routes, measured.snapshot(0)
    costs = CostMap.of(model, snapshot, routes)
    whole_ms = best_ms(lambda _: CostMap.of(model, snapshot, routes).pairs)
    return {
        "cost_map_ms_1000_hosts": whole_ms,
        "cost_map_ratio": twin_ms(costs) * len(model.hosts) ** 2 / whole_ms,
        "cost_change_ms": change_ms(costs, snapshot),
        "cost_follow_ms": follow_ms(measured),
        "alto_map_ms": alto_ms(measured),
    }


def twin_ms(costs: CostMap) -> float:
    """Return what one pair costs the plain twin."""
    rng, hosts = random.Random(2), len(costs.hosts)
    pairs = [rng.sample(range(hosts), 2) for _ in range(_TWIN_PAIRS)]
    return best_ms(lambda _: [pair_figures(costs.routing, costs.links, *pair) for pair in pairs], 1) / _TWIN_PAIRS


def change_ms(costs: CostMap, snapshot: Snapshot) -> float:
    """Return the time from one link's new figures to a pair's costs by them: the mean over links between switches."""
    rng = random.Random(3)
    states = [snapshot.links[key] for key in rng.sample(costs.model.table.links, 50)]
    changed: list[LinkState] = [replace(state, delay_mean_ns=state.delay_mean_ns + 1) for state in states]
    src, dst = costs.hosts[0], costs.hosts[-1]
    return best_ms(lambda _: [costs.with_links([state]).cost(src, dst) for state in changed]) / len(changed)


def follow_ms(measured: Measured) -> float:
    """Return the cost of each snapshot to a feed's subscriber: from its bytes to the map, without host arrays."""
    keeper = CostMapKeeper(measured.model, wants_routes=True)
    keeper.take_routes(measured.routes)
    return best_ms(lambda number: keeper.observe(measured.snapshot(number % 2), number))


def alto_ms(measured: Measured) -> float:
    """Return the time from a new map to the body of an ALTO cost map of all hosts."""
    keeper = CostMapKeeper(measured.model, wants_routes=False)

    class Source:
        current = staticmethod(lambda: keeper.current(0))

    service = AltoService(measured.model, Source(), lambda: 0, base="", most_pairs=2_000_000)

    def run(number: int) -> object:
        keeper.observe(measured.snapshot(number % 2), 0)
        return service.cost_map("hosts", "delay-ow-mean-num")

    return best_ms(run, 3)


def main(argv: list[str]) -> None:
    """Print a table and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="128 hosts, fewer tasks")
    parser.add_argument("--only", choices=("cost_map", "storage", "simulation"), help="one part alone")
    arguments = parser.parse_args(argv)
    quick = arguments.quick
    parts: dict[str, Callable[[], Mapping[str, float]]] = {
        "cost_map": lambda: cost_map("fat-tree:k=8" if quick else "fat-tree:k=16"),
        "storage": lambda: ground_storage.figures(2_000 if quick else ground_storage.WRITES),
        "simulation": lambda: ground_simulation.figures(5_000 if quick else ground_simulation.TASKS),
    }
    results: dict[str, float] = {}
    for name, run in parts.items():
        if arguments.only in (None, name):
            results |= run()
    figures = {name: round(results[name], 5) if name in results else None for name in NAMES}
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, "" if value is None else f"{value:,.3f}")
    Console(width=100).print(table)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
