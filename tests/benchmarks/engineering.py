"""What traffic engineering gains over shortest paths and ECMP: on Abilene with 200 real hourly matrices, and on GEANT.

Shortest path is one path of least propagation delay for each pair of routers (what the base routes do); ECMP splits
evenly over all paths of least cost, a link's cost being 100 Gbit/s over its rate, rounded up, as OSPF has it (with
delays as costs these backbones have no equal paths). TE is the linear program's optimum for the matrix; its second row
is what the switches' tables hold, weights of at most 32 in all; its third applies an hour's weights to the matrix of
the next hour. The mean delay is propagation plus an M/M/1 queue on each link (packets of 1000 bytes).

Abilene's matrices (cornell-netlab/yates) are read from ../shared/data and load the backbone to 0.1 % as they are, so
all are multiplied by one factor that brings shortest paths to 90 % in the worst hour. GEANT's demands are a gravity
model: in proportion to the product of the rates that the two routers' links add up to, scaled alike.

Usage: python tests/benchmarks/engineering.py [--matrices N]
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

import numpy as np
from rich.console import Console
from rich.table import Table

from controller.paths.engineering.figures import Figures, figures
from controller.paths.engineering.program import solve
from controller.paths.engineering.splits import by_flows, ecmp, shortest
from controller.paths.engineering.values import FloatArray, Splits, SwitchGraph
from controller.paths.engineering.weights import rounded
from dataplane.topology.demands import gravity, load_yates
from dataplane.topology.file import load_topology

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


def engineered(graph: SwitchGraph, demand: FloatArray) -> Splits:
    """Return the linear program's splits."""
    found = solve(graph, demand, range(len(graph.switches)))
    return by_flows(graph, found.flows_bps, found.destinations, shortest(graph, graph.delay_ns))


def compare(graph: SwitchGraph, matrices: Sequence[FloatArray]) -> tuple[dict[str, Row], float]:
    """Return a row for each way of routing, and how many seconds one matrix takes to solve."""
    fixed = {
        "shortest path": shortest(graph, graph.delay_ns),
        "ECMP": ecmp(graph, np.ceil(REFERENCE_BPS / graph.rate_bps)),
    }
    start_s = time.perf_counter()
    optima = [engineered(graph, matrix) for matrix in matrices]
    solve_s = (time.perf_counter() - start_s) / len(matrices)
    weighted = [rounded(splits) for splits in optima]
    found: dict[str, list[Figures]] = {
        name: [figures(splits, matrix) for matrix in matrices] for name, splits in fixed.items()
    }
    found["TE"] = [figures(*pair) for pair in zip(optima, matrices, strict=True)]
    found["TE, weights of 32"] = [figures(*pair) for pair in zip(weighted, matrices, strict=True)]
    if len(matrices) > 1:
        found["TE, an hour old"] = [figures(*pair) for pair in zip(weighted[:-1], matrices[1:], strict=True)]
    return {name: _row(each) for name, each in found.items()}, solve_s


def _row(each: Sequence[Figures]) -> Row:
    utilisation = [found.max_utilisation for found in each]
    delay_ns = float(np.mean([found.mean_delay_ns for found in each]))
    return Row(float(np.mean(utilisation)), max(utilisation), delay_ns / NS_PER_MS)


def measure(limit: int | None = None) -> tuple[Table, dict[str, float | None]]:
    """Return the table and its figures by the names that the JSON line has."""
    table = Table("", "matrices", "maximum utilisation, mean", "worst", "mean delay ms", "solved in ms")
    keys: dict[str, float | None] = {}
    for name in ("abilene", "geant"):
        topology = load_topology(name)
        graph = SwitchGraph.of(topology)
        found = abilene_matrices(graph, limit) if name == "abilene" else [graph.demand_matrix(gravity(topology))]
        if not found:
            table.add_row(f"abilene: {MATRICES} is absent")
            continue
        rows, solve_s = compare(graph, scaled(graph, found))
        for way, row in rows.items():
            cells = (row.mean_max_utilisation, row.worst_max_utilisation, row.mean_delay_ms)
            solved = f"{1000 * solve_s:.1f}" if way == "TE" else ""
            table.add_row(f"{name}: {way}", str(len(found)), *(f"{cell:.3f}" for cell in cells), solved)
        keys |= _keys(rows, "" if name == "abilene" else f"_{name}")
    return table, keys


def _keys(rows: Mapping[str, Row], suffix: str) -> dict[str, float | None]:
    spf, even, best = rows["shortest path"], rows["ECMP"], rows["TE, weights of 32"]
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


def main(argv: list[str]) -> None:
    """Print a table and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--matrices", type=int, help="the first N hours only")
    table, keys = measure(parser.parse_args(argv).matrices)
    Console(width=120).print(table)
    print(json.dumps(keys))


if __name__ == "__main__":
    main(sys.argv[1:])
