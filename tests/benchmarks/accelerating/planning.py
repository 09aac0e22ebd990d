"""Time to explain a query: the 22 statements of TPC-H at scale 0.1 and 1, on declared tables and on data.

The measured time covers what `millrace accel explain` does for a statement once its tables are known: DuckDB's
planning, the graph of its plan, works from the calibration, times, a device for each operator, and what would flip
each. DuckDB's own part (EXPLAIN) is reported separately. Each statement is explained `REPEATS` times; the figure is the
median.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from controller.acceleration.calibration import DEFAULT
from controller.acceleration.plans import explain, plan_of
from controller.acceleration.values import Accelerator, Compression, Machines, Network
from controller.cluster.operators.sql import SqlPlanner
from dataplane.topology.values import DeviceKind
from tests.benchmarks.accelerating.tpch.data import generated
from tests.benchmarks.accelerating.tpch.schema import STATEMENTS, tables

SCALES: Final = (0.1, 1.0)
SOURCES: Final = {"declared tables": "plan_ms_declared", "generated data": "plan_ms_data"}
REPEATS: Final = 15
GOAL_MS: Final = 5.0
MACHINES: Final = Machines(Network(10.0), 8)
GPU: Final = Accelerator(DeviceKind.GPU, 64, memory_gb=80, compression=Compression(0.3, 10.0))
NPU: Final = Accelerator(DeviceKind.NPU, 16, memory_gb=16)


@dataclass(frozen=True, slots=True)
class Planned:
    """Medians of a statement in milliseconds: all of it, DuckDB's part, and CPU time, which others' work is not in."""

    name: str
    total_ms: float
    duckdb_ms: float
    cpu_ms: float
    operators: int

    @property
    def own_ms(self) -> float:
        """Time excluding DuckDB."""
        return self.total_ms - self.duckdb_ms


def measure(*, quick: bool) -> Mapping[str, float | None]:
    """Return `plan_ms`, the slowest of all statements, and the slowest over data and of declared tables."""
    console, slowest = Console(width=140), dict.fromkeys(SOURCES, 0.0)
    for scale in SCALES:
        with tempfile.TemporaryDirectory(prefix="millrace-tpch-") as folder, generated(Path(folder), scale) as data:
            sources = {"declared tables": SqlPlanner(None, tables(scale)), "generated data": SqlPlanner(data)}
            for source, planner in sources.items():
                with planner:
                    planned = [timed(planner, name, 3 if quick else REPEATS) for name in STATEMENTS]
                show(console, f"scale {scale:g}, {source}", planned)
                slowest[source] = max(slowest[source], *(statement.total_ms for statement in planned))
    figures: dict[str, float | None] = {"plan_ms": round(max(slowest.values()), 3)}
    return figures | {name: round(slowest[source], 3) for source, name in SOURCES.items()}


def timed(planner: SqlPlanner, name: str, repeats: int) -> Planned:
    """Explain a statement this many times, after one warm-up."""
    totals, of_duckdb, of_cpu, operators = [], [], [], 0
    for at in range(repeats + 1):
        began_s, cpu_s = time.perf_counter(), time.process_time()
        planned = planner.plan(STATEMENTS[name], name=name)
        plan = plan_of(planned.graph, MACHINES.count, DEFAULT)
        explained = explain(plan, MACHINES, (GPU, NPU), preset=1.2)
        took_s, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_s
        operators = len(explained.operators)
        if at:
            totals.append(1e3 * took_s)
            of_cpu.append(1e3 * cpu_s)
            of_duckdb.append(1e3 * planned.duckdb_s)
    total_ms, duckdb_ms, cpu_ms = (statistics.median(times) for times in (totals, of_duckdb, of_cpu))
    return Planned(name, total_ms, duckdb_ms, cpu_ms, operators)


def show(console: Console, title: str, planned: list[Planned]) -> None:
    """Print a line for each statement, and what a reader asks first."""
    table = Table("statement", "operators", "explained, ms", "of it DuckDB, ms", "the rest, ms", "CPU, ms", title=title)
    for statement in planned:
        table.add_row(
            statement.name,
            str(statement.operators),
            f"{statement.total_ms:.2f}",
            f"{statement.duckdb_ms:.2f}",
            f"{statement.own_ms:.2f}",
            f"{statement.cpu_ms:.2f}",
        )
    console.print(table)
    under = sum(statement.total_ms < GOAL_MS for statement in planned)
    names = ("total_ms", "own_ms", "cpu_ms")
    total, own, cpu = (statistics.fmean(getattr(statement, name) for statement in planned) for name in names)
    means = f"mean {total:.2f} ms, {own:.2f} ms without DuckDB's part, {cpu:.2f} ms of CPU time"
    console.print(f"{title}: {under} of {len(planned)} under {GOAL_MS:g} ms; {means}")
