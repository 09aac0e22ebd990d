"""Traffic engineering against shortest paths, ECMP and the optimum, and how its rounds converge.

Shortest path is one path of least propagation delay for each pair of routers (what the base routes do); ECMP splits
evenly over all paths of least cost, a link's cost being 100 Gbit/s over its rate, rounded up, as OSPF has it (with
delays as costs these backbones have no equal paths). The optimum is the whole linear program's; its second row is what
is left of it in weights of at most 32 in all. TE is what a round comes to that is not interrupted, in such weights; the
last row applies an hour's weights to the matrix of the next hour. The mean delay is propagation plus an M/M/1 queue on
each link (packets of 1000 bytes).

Abilene's matrices (cornell-netlab/yates) are read from ../shared/data and load the backbone to 0.1 % as they are, so
all are multiplied by one factor that brings shortest paths to 90 % in the worst hour. GEANT's demands are a gravity
model: in proportion to the product of the rates that the two routers' links add up to, scaled alike.

The second table steps an engineer with default settings until two rounds in a row change nothing, on GEANT, on a fat
tree (edge to edge), on random wide area networks of 100 and, with `--large`, of 300 switches, all loaded to 90 % by
shortest paths; times are this process's CPU time. The optimum of 300 switches is a bound within a hundredth. A gap is
the share by which the result, in weights, is above the optimum, or above `enough` where the optimum is below; "gap, 0"
is that with `enough: 0`. JSON has the worst of all seeds.

With `--scale` there are only rounds of an engineer without time limit (`enough` and `min_gain` 0) on networks of up to
1,000 switches and 100,000 demands: the first from base routes, then one each after every demand changed by up to 1, 5
and 20 % at random. The time is CPU time of the whole round, on one core. te_gap is the share by which the first
round's weights on the largest wide area network may at most be above the optimum, by the bound that link prices prove;
fat trees and a leaf-spine fabric begin at ECMP, which is the best. POP is rebuilt on 100 switches, where the whole
program can be solved too.

Usage: python tests/benchmarks/engineering.py [--matrices N] [--seeds N] [--large] [--scale [--quick]]
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

import numpy as np
from rich.console import Console
from rich.table import Table

from controller.network.paths.engineering.search import Problem, Search
from controller.network.paths.engineering.settings import EngineeringSettings
from controller.network.paths.engineering.splits import by_flows, ecmp, shortest
from controller.network.paths.engineering.values import FloatArray, Splits, SwitchGraph
from controller.network.paths.engineering.weights import rounded
from dataplane.topology.demands import gravity, load_yates
from dataplane.topology.families import fat_tree, leaf_spine
from dataplane.topology.file import load_topology
from dataplane.topology.values import Topology
from tests.benchmarks.routing import engineering_scale
from tests.benchmarks.routing.convergence import Convergence, Optimum, both, bounded_optimum, gap, whole_optimum
from tests.reference.utilisations import Figures, figures
from tests.reference.whole_program import solve
from tests.reference.wide_area import wide_area_network

MATRICES = Path(__file__).parents[3] / "shared" / "data" / "yates_abilene_hourly.txt"
WORST_SHORTEST_PATH = 0.9
REFERENCE_BPS = 100e9
NS_PER_MS = 1e6

Routing = Callable[[FloatArray], Splits]


@dataclass(frozen=True, slots=True)
class Row:
    """One way of routing over all matrices of a topology."""

    mean_max_utilisation: float
    worst_max_utilisation: float
    mean_delay_ms: float


def abilene_matrices(graph: SwitchGraph, limit: int | None) -> list[FloatArray]:
    """Return the hourly matrices in bit/s by (source, destination), none where the file is absent."""
    if not MATRICES.exists():
        return []
    matrices = load_yates(MATRICES, graph.switches, limit=limit)
    return [graph.demand_matrix({(src, dst): rate for src, dst, rate in matrix.pairs()}) for matrix in matrices]


def scaled(graph: SwitchGraph, matrices: Sequence[FloatArray]) -> list[FloatArray]:
    """Return the matrices times the factor that brings shortest paths to 90 % in the worst of them."""
    paths = shortest(graph, graph.delay_ns)
    factor = WORST_SHORTEST_PATH / max(figures(paths, matrix).max_utilisation for matrix in matrices)
    return [matrix * factor for matrix in matrices]


def optimal(graph: SwitchGraph, demand: FloatArray) -> Splits:
    """Return the whole linear program's splits."""
    splits = solve(graph, demand, range(len(graph.switches)))
    return by_flows(graph, splits.flows_bps, splits.destinations, shortest(graph, graph.delay_ns))


def engineered(graph: SwitchGraph, demand: FloatArray) -> Splits:
    """Return what a round comes to that is not interrupted."""
    search = Search(Problem.of(graph, demand, np.zeros(len(graph.links))), ecmp(graph, graph.delay_ns))
    for _ in search:
        pass
    return search.result()


def compare(graph: SwitchGraph, matrices: Sequence[FloatArray]) -> tuple[dict[str, Row], float]:
    """Return a row for each way of routing, and how many seconds one matrix takes to solve."""
    fixed = {
        "shortest path": shortest(graph, graph.delay_ns),
        "ECMP": ecmp(graph, np.ceil(REFERENCE_BPS / graph.rate_bps)),
    }
    optima = [optimal(graph, matrix) for matrix in matrices]
    start_s = time.process_time()
    weighted = [engineered(graph, matrix) for matrix in matrices]
    solve_s = (time.process_time() - start_s) / len(matrices)
    results: dict[str, list[Figures]] = {
        name: [figures(splits, matrix) for matrix in matrices] for name, splits in fixed.items()
    }
    results["optimum"] = [figures(*pair) for pair in zip(optima, matrices, strict=True)]
    results["optimum, rounded"] = [
        figures(rounded(splits), matrix) for splits, matrix in zip(optima, matrices, strict=True)
    ]
    results["TE"] = [figures(*pair) for pair in zip(weighted, matrices, strict=True)]
    if len(matrices) > 1:
        results["TE, an hour old"] = [figures(*pair) for pair in zip(weighted[:-1], matrices[1:], strict=True)]
    return {name: _row(each) for name, each in results.items()}, solve_s


def _row(each: Sequence[Figures]) -> Row:
    utilisation = [figures.max_utilisation for figures in each]
    delay_ns = float(np.mean([figures.mean_delay_ns for figures in each]))
    return Row(float(np.mean(utilisation)), max(utilisation), delay_ns / NS_PER_MS)


def measure(limit: int | None = None) -> tuple[Table, dict[str, float | None]]:
    """Return the table and its figures by the names that the JSON line has."""
    table = Table("", "matrices", "maximum utilisation, mean", "worst", "mean delay ms", "CPU ms")
    keys: dict[str, float | None] = {}
    for name in ("abilene", "geant"):
        topology = load_topology(name)
        graph = SwitchGraph.of(topology)
        demands = abilene_matrices(graph, limit) if name == "abilene" else [graph.demand_matrix(gravity(topology))]
        if not demands:
            table.add_row(f"abilene: {MATRICES} is absent")
            continue
        rows, solve_s = compare(graph, scaled(graph, demands))
        for way, row in rows.items():
            cells = (row.mean_max_utilisation, row.worst_max_utilisation, row.mean_delay_ms)
            solved = f"{1000 * solve_s:.1f}" if way == "TE" else ""
            table.add_row(f"{name}: {way}", str(len(demands)), *(f"{cell:.3f}" for cell in cells), solved)
        keys |= _keys(rows, "" if name == "abilene" else f"_{name}")
    return table, keys


def _keys(rows: Mapping[str, Row], suffix: str) -> dict[str, float | None]:
    spf, even, best = rows["shortest path"], rows["ECMP"], rows["TE"]
    return {
        f"max_util_spf{suffix}": round(spf.mean_max_utilisation, 4),
        f"max_util_ecmp{suffix}": round(even.mean_max_utilisation, 4),
        f"max_util_te{suffix}": round(best.mean_max_utilisation, 4),
        f"mean_delay_spf{suffix}_ms": _finite(spf.mean_delay_ms),
        f"mean_delay_ecmp{suffix}_ms": _finite(even.mean_delay_ms),
        f"mean_delay_te{suffix}_ms": _finite(best.mean_delay_ms),
    }


def _finite(delay_ms: float) -> float | None:
    """Return a delay for JSON, None where a link is overloaded."""
    return round(delay_ms, 4) if math.isfinite(delay_ms) else None


def edges_only(topology: Topology) -> dict[tuple[str, str], float]:
    """Return equal demands between all edge switches of a fat tree, or all leaves."""
    edges = [node.name for node in topology.switches if node.name.startswith(("edge", "leaf"))]
    return {(src, dst): 1e9 for src in edges for dst in edges if src != dst}


def converging(seeds: int, *, large: bool) -> tuple[Table, dict[str, float | None]]:
    """Return the table of rounds, and the worst figures of each kind of network for JSON."""
    columns = (
        "optimum",
        "rounded",
        "TE",
        "gap",
        "gap, 0",
        "rounds",
        "CPU s",
        "longest step s",
        "quiet round s",
        "dests",
    )
    table = Table("", *columns)
    keys: dict[str, float | None] = {}
    wans = [("wan100", 100, whole_optimum), *([("wan300", 300, bounded_optimum)] if large else [])]
    cases = [("geant", load_topology("geant"), whole_optimum), ("fat_tree80", fat_tree(8), whole_optimum)]
    cases += [
        (kind, wide_area_network(size, seed, rates), optimum)
        for kind, size, optimum in wans
        for seed in range(seeds)
        for rates in ((100,), (10, 40, 100))
    ]
    for kind, topology, optimum_of in cases:
        graph = SwitchGraph.of(topology)
        given = edges_only(topology) if kind.startswith("fat") else gravity(topology)
        (demand,) = scaled(graph, [graph.demand_matrix(given)])
        optimum, usual, pressed = both(topology, demand, optimum_of)
        table.add_row(f"{kind}: {topology.name}", *_cells(optimum, usual, pressed))
        _worsen(keys, kind, optimum, usual, pressed)
    return table, keys


def _cells(optimum: Optimum, usual: Convergence, pressed: Convergence) -> list[str]:
    whole = "" if optimum.rounded is None else f"{optimum.rounded:.4f}"
    gaps = _gaps(optimum, usual, pressed)
    return [
        f"{optimum.bound:.4f}", whole, f"{usual.max_utilisation:.4f}", *(f"{each:.1%}" for each in gaps),
        f"{usual.rounds}, {pressed.rounds}", f"{usual.cpu_s:.2f}, {pressed.cpu_s:.2f}",
        f"{pressed.longest_step_cpu_s:.2f}", f"{pressed.quiet_round_cpu_s:.2f}", str(usual.destinations),
    ]  # fmt: skip


def _gaps(optimum: Optimum, usual: Convergence, pressed: Convergence) -> tuple[float, float]:
    enough = EngineeringSettings().enough
    return gap(usual.max_utilisation, max(optimum.bound, enough)), gap(pressed.max_utilisation, optimum.bound)


def _worsen(
    keys: dict[str, float | None], kind: str, optimum: Optimum, usual: Convergence, pressed: Convergence
) -> None:
    """Merge one more network into the figures, keeping the worse value of each."""
    usual_gap, pressed_gap = _gaps(optimum, usual, pressed)
    figures = {
        f"te_gap_{kind}": usual_gap,
        f"te_gap_{kind}_pressed": pressed_gap,
        f"te_rounds_{kind}": max(usual.rounds, pressed.rounds),
        f"te_cpu_s_{kind}": max(usual.cpu_s, pressed.cpu_s),
        f"te_longest_step_s_{kind}": max(usual.longest_step_cpu_s, pressed.longest_step_cpu_s),
    }
    if optimum.rounded is not None:
        figures[f"te_gap_rounded_optimum_{kind}"] = gap(optimum.rounded, optimum.bound)
    for key, value in figures.items():
        keys[key] = round(max(value, keys.get(key) or 0.0), 4)


def scaled_up(*, quick: bool) -> tuple[Table, dict[str, float | None]]:
    """Return the table of large networks, and the figures of the largest wide area network for JSON."""
    changes = [f"{change:.0%} changed: s, gap" for change in engineering_scale.CHANGES]
    table = Table("", "switches", "demands", "ECMP", "first round", "CPU s", "gap", *changes)
    sizes = (100,) if quick else (100, 300, 1000)
    keys: dict[str, float | None] = {"te_1000_s": None, "te_gap": None}
    fabrics = [fat_tree(4)] if quick else [fat_tree(8), fat_tree(12), leaf_spine(16, 400)]
    for topology in (*(wide_area_network(size, 0, (10, 40, 100)) for size in sizes), *fabrics):
        graph = SwitchGraph.of(topology)
        is_wide = topology.name.startswith("wan")
        given = engineering_scale.some_pairs(
            graph.demand_matrix(gravity(topology) if is_wide else edges_only(topology))
        )
        (demand,) = scaled(graph, [given])
        first, *others = engineering_scale.rounds(topology, demand)
        table.add_row(
            topology.name, str(len(graph.switches)), str(np.count_nonzero(demand)),
            f"{engineering_scale.even_start(graph, demand):.4f}", f"{first.max_utilisation:.4f}",
            f"{first.cpu_s:.2f}", f"{first.gap:.2%}", *(f"{each.cpu_s:.2f}, {each.gap:.2%}" for each in others),
        )  # fmt: skip
        if is_wide:
            keys |= {"te_gap": round(first.gap, 4)}
        if is_wide and len(graph.switches) == max(sizes) == 1000:
            keys |= {"te_1000_s": round(first.cpu_s, 2)}
        if is_wide and len(graph.switches) == 100:
            whole = whole_optimum(graph, demand)
            table.add_row("linear program", "", "", "", f"{whole.bound:.4f}")
            for parts in (4, 10):
                reached, cpu_s = engineering_scale.pop(graph, demand, parts)
                table.add_row(f"POP, {parts} parts", "", "", "", f"{reached:.4f}", f"{cpu_s:.2f}")
    return table, keys


def main(argv: list[str]) -> None:
    """Print two tables and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrices", type=int, help="the first N hours only")
    parser.add_argument("--seeds", type=int, default=3, help="wide area networks of each size and kind")
    parser.add_argument("--large", action="store_true", help="those of 300 switches, too")
    parser.add_argument("--scale", action="store_true", help="only networks of up to 1,000 switches")
    parser.add_argument("--quick", action="store_true", help="with --scale: up to 100 switches")
    options = parser.parse_args(argv)
    if options.scale:
        largest, figures = scaled_up(quick=options.quick)
        Console(width=160).print(largest)
        print(json.dumps(figures))
        return
    table, keys = measure(options.matrices)
    Console(width=120).print(table)
    rounds, more = converging(options.seeds, large=options.large)
    Console(width=140).print(rounds)
    print(json.dumps(keys | more))


if __name__ == "__main__":
    main(sys.argv[1:])
