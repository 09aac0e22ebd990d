"""Decision speed of the path server in a large fabric, and the gains of traffic engineering.

The fabric is random regular: 1,000 switches, 10,000 cables (20,000 directed links) of 1 to 20 us, nearly idle, with one
flow between every two switches in each direction: 999,000 flows on the shortest paths. Then, one link at a time, it
becomes slower by a factor of 2 to 20, faster again, goes down, and up again. A change is timed from the link's new
state until the decisions are there (`Decider.observe_some` and `step`): beliefs, trees towards all 1,000 destinations,
the affected flows, their possible gains, and the first two moves with all their candidates and reasons: two off a dead
link, too, where up to 32 flows move per round by default (`relief_moves`). Moves take effect before the next change.
Every wish counts at once (`confirm_rounds` 1).

A decider without memory would first compute all trees from scratch; so do networkx (timed on some destinations and
scaled up) and scipy (csgraph.dijkstra of all pairs), and the ratios of a change are relative to that. Queries about one
pair use random pairs; networkx answers them by Dijkstra searches, and by shortest_simple_paths for the k shortest; both
sides must find the same. All use one thread; ratios are the other's time over ours, so above 1 ours is faster.

All of this calls the decider directly. The process handles 4,096 flows by default and takes whole snapshots: its rounds
are measured as well, with that many flows in the same fabric, all measured, and default settings.

The last table is tests/benchmarks/engineering.py.

Usage: python tests/benchmarks/paths.py [--quick]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

import numpy as np
from rich.console import Console
from rich.table import Table

from controller.network.algorithms.link_table import LinkTable
from controller.network.paths.deciding.decider import Decider
from controller.network.paths.deciding.graph import Network
from controller.network.paths.settings import DecideSettings
from tests.benchmarks import engineering
from tests.benchmarks.routing.answers import K, Networkx, Ours
from tests.benchmarks.routing.opponents import networkx_graph, networkx_tree, scipy_trees
from tests.benchmarks.routing.rounds import FLOWS, Rounds, measure_rounds
from tests.benchmarks.routing.scale import Change, all_pairs, changes, idle_states, random_fabric, snapshot

SWITCHES, DEGREE = 1000, 20
QUICK_SWITCHES = 200
FLOW_BPS = 1_000_000
SETTINGS = DecideSettings(confirm_rounds=1, min_gain_ns=1_000, hold_down_ns=0, settle_ns=0, relief_moves=2)
QUESTIONS = {
    "least delay": "least",
    f"{K} shortest": "kth",
    "widest within a delay": "widest_within",
    "disjoint backup": "backup",
}
NOW_NS = 1
_MS, _MIB = 1e3, 1 << 20


@dataclass(frozen=True, slots=True)
class Scale:
    """Measurements on the large fabric; times in ms by kind of change, flows that wanted to move, memory."""

    changes_ms: Mapping[str, list[float]]
    wishes: Mapping[str, list[int]]
    whole_snapshot_ms: float
    jitter_ms: float
    grow_ms: float
    scipy_ms: float
    networkx_ms: float
    flows: int
    bytes_per_flow: float
    bytes_per_pair: float
    resident_mib: float


def timed_ms(call: Callable[[], object], rounds: int = 1) -> float:
    """Return the median time of a call."""
    times_ms = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times_ms.append(time.perf_counter() - start)
    return float(np.median(times_ms)) * _MS


def prepared(switches: int) -> Decider:
    """Return a decider of an idle fabric with all flows on their shortest paths."""
    topology = random_fabric(switches, DEGREE, seed=1)
    decider = Decider(Network(topology), SETTINGS)
    decider.observe(snapshot(idle_states(topology)))
    decider.locate_all(all_pairs(decider.trees, FLOW_BPS))
    return decider


def apply(decider: Decider, change: Change) -> tuple[float, int]:
    """Return how long it took to decide after a change, in ms, and how many flows wanted to move; let moves happen."""
    start = time.perf_counter()
    decider.observe_some([change.state])
    decisions = decider.step(NOW_NS)
    took_ms = (time.perf_counter() - start) * _MS
    wanted = decider.wishing
    for decision in decisions:
        decider.moved(decision)
    return took_ms, wanted


def measure_scale(switches: int, rounds: int) -> Scale:
    """Measure a fabric with this many switches."""
    decider = prepared(switches)
    gc.collect()
    took: dict[str, list[float]] = {}
    wishes: dict[str, list[int]] = {}
    for change in changes(decider.network.topology, rounds, seed=2):
        took_ms, wanted = apply(decider, change)
        took.setdefault(change.kind, []).append(took_ms)
        wishes.setdefault(change.kind, []).append(wanted)
    trees, table = decider.trees, decider.beliefs.table
    states = snapshot(idle_states(decider.network.topology))
    graph = networkx_graph(table, trees.costs)
    some = range(0, switches, max(1, switches // 20))
    return Scale(
        took,
        wishes,
        whole_snapshot_ms=timed_ms(lambda: decider.observe(states), 5),
        jitter_ms=_jitter_ms(decider),
        grow_ms=timed_ms(trees.regrow, 3),
        scipy_ms=timed_ms(lambda: scipy_trees(table, trees.costs), 3),
        networkx_ms=timed_ms(lambda: [networkx_tree(graph, dst) for dst in some]) * switches / len(some),
        flows=len(decider.flows),
        bytes_per_flow=decider.flows.nbytes / len(decider.flows),
        bytes_per_pair=trees.distance.nbytes / switches**2,
        resident_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MIB,
    )


def _jitter_ms(decider: Decider) -> float:
    """Return what a round takes after the delay of every link has changed by up to 5 %."""
    chance, took = random.Random(4), []
    for _ in range(3):
        taken = snapshot(idle_states(decider.network.topology, lambda: chance.uniform(0.95, 1.05)))
        start = time.perf_counter()
        decider.observe(taken)
        decider.step(NOW_NS)
        took.append((time.perf_counter() - start) * _MS)
    return float(np.median(took))


@dataclass(frozen=True, slots=True)
class Question:
    """A question about two switches: what ours and networkx take, ms."""

    name: str
    ours_ms: float
    networkx_ms: float


def ask(switches: int, pairs: int) -> list[Question]:
    """Ask questions about random pairs, ours and networkx in turn; both must find the same."""
    table = LinkTable.of(random_fabric(switches, DEGREE, seed=1))
    chance, costs = random.Random(3), table.costs()
    width_bps = np.array([chance.randrange(1, 100) for _ in table.links])
    sides = Ours(table, costs, width_bps), Networkx(table, costs, width_bps)
    ends = [chance.sample(range(switches), 2) for _ in range(pairs)]
    questions = []
    for name, question in QUESTIONS.items():
        times: tuple[list[float], list[float]] = ([], [])
        for src, dst in ends:
            answers = []
            for side, took in zip(sides, times, strict=True):
                start = time.perf_counter()
                answers.append(getattr(side, question)(src, dst))
                took.append((time.perf_counter() - start) * _MS)
            assert answers[0] == answers[1], f"{name}, {src} to {dst}: {answers}"
        questions.append(Question(name, *(float(np.median(took)) for took in times)))
    return questions


def show(scale: Scale, questions: Sequence[Question], switches: int) -> list[Table]:
    """Return what people read."""
    rows = Table("a link becomes", "decided, ms: median", "p99", "most", "wish to move: mean", "most")
    for kind, took in scale.changes_ms.items():
        wishes = scale.wishes[kind]
        times = (f"{value:.2f}" for value in (np.median(took), np.quantile(took, 0.99), max(took)))
        rows.add_row(kind, *times, f"{np.mean(wishes):.0f}", str(max(wishes)))
    whole = Table(f"{switches} switches, {scale.flows} flows", "")
    for text, value in (
        ("a snapshot of all links in which nothing changed, ms", scale.whole_snapshot_ms),
        ("a round after every delay has changed by up to 5 %, ms", scale.jitter_ms),
        ("all trees from nothing, ms", scale.grow_ms),
        ("the same by scipy, ms", scale.scipy_ms),
        ("the same by networkx, ms (of some destinations, scaled up)", scale.networkx_ms),
        ("bytes a pair of switches (trees)", scale.bytes_per_pair),
        ("bytes a flow (paths and indices)", scale.bytes_per_flow),
        ("the whole process, MiB", scale.resident_mib),
    ):
        whole.add_row(text, f"{value:,.1f}")
    single = Table("one pair", "ours, ms", "networkx, ms", "ratio")
    for question in questions:
        ratio = question.networkx_ms / question.ours_ms
        single.add_row(question.name, f"{question.ours_ms:.2f}", f"{question.networkx_ms:.2f}", f"{ratio:.1f}")
    return [rows, whole, single]


def show_rounds(rounds: Rounds) -> Table:
    """Return what people read of the process's rounds."""
    table = Table(f"a round of the path server, {FLOWS} flows", "ms")
    table.add_row("nothing has changed", f"{rounds.calm_ms:.0f}")
    table.add_row("one link has changed", f"{rounds.change_ms:.0f}")
    return table


def summary(scale: Scale, questions: Sequence[Question], switches: int = SWITCHES) -> dict[str, float]:
    """Return the figures of the last line."""
    every = [took for times in scale.changes_ms.values() for took in times]
    change_ms = float(np.median(every))
    figures = {
        f"change_ms_{switches}_switches": change_ms,
        f"change_p99_ms_{switches}_switches": float(np.quantile(every, 0.99)),
        "change_ratio_scipy": scale.scipy_ms / change_ms,
        "change_ratio_networkx": scale.networkx_ms / change_ms,
        "grow_ms": scale.grow_ms,
        "grow_ratio_scipy": scale.scipy_ms / scale.grow_ms,
        "snapshot_ms": scale.whole_snapshot_ms,
        "jitter_ms": scale.jitter_ms,
        "bytes_per_flow": scale.bytes_per_flow,
        "resident_mib": scale.resident_mib,
    }
    for question in questions:
        figures[f"ratio_{question.name.replace(' ', '_')}"] = question.networkx_ms / question.ours_ms
    return {name: round(value, 3) for name, value in figures.items()}


def main(argv: list[str]) -> None:
    """Print tables and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="200 switches, few changes and matrices")
    quick = parser.parse_args(argv).quick
    switches, console = (QUICK_SWITCHES if quick else SWITCHES), Console(width=120)
    scale, questions = measure_scale(switches, 10 if quick else 100), ask(switches, 5 if quick else 20)
    for table in show(scale, questions, switches):
        console.print(table)
    rounds = measure_rounds(switches, DEGREE, 3 if quick else 10)
    console.print(show_rounds(rounds))
    table, keys = engineering.measure(5 if quick else None)
    console.print(table)
    of_rounds = {
        f"round_ms_{FLOWS}_flows": round(rounds.calm_ms, 1),
        f"round_change_ms_{FLOWS}_flows": round(rounds.change_ms, 1),
    }
    print(json.dumps(summary(scale, questions, switches) | of_rounds | keys))


if __name__ == "__main__":
    main(sys.argv[1:])
