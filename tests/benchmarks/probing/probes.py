"""Probe tasks of the real tasks: traced, matched, built at 1000:1, in a process of its own for each.

    python -m tests.benchmarks.probing.probes NAME STEPS OUT.json

A task is traced twice with few steps, on one core; how long all steps would take here goes with the probe task, as
its reference, with what the kernels take here. The join's graph is its plan's, once for each time that it is asked;
that of the all-reduce is declared, as no tracer sees what a socket carries: each worker pulls the other's gradient.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import duckdb

from controller.cluster.operators import Flow, Operator, OperatorGraph
from controller.cluster.operators.sql import graph_of_sql
from controller.cluster.operators.tracing import time_callable, trace_callable
from controller.probing import files
from controller.probing.building import BuildSettings, build
from controller.probing.library import KernelLibrary
from controller.probing.matching import match
from controller.probing.referencing import with_reference
from controller.probing.values import ProbeTask
from dataplane.errors import MillraceError
from dataplane.topology.values import NumberFormat
from tests.benchmarks.probing import targets
from tests.benchmarks.probing.exchange import GRADIENT_BYTES
from tests.benchmarks.probing.extrapolation import Extrapolated, extrapolated

ROOT: Final = Path(__file__).parents[3]
RATIO: Final = 1000
_PATIENCE_S: Final = 120.0
_SINGLE: Final = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


@dataclass(frozen=True, slots=True)
class Target:
    """A real task: how many steps it takes, and how many are traced."""

    name: str
    title: str
    steps: int
    quick_steps: int
    traced: int

    @property
    def entry(self) -> str:
        """As a program of a Task says it."""
        return f"{targets.__name__}:{self.name}"


TARGETS: Final = (
    Target("dense_solve", "dense solve", 24_000, 4_800, 800),
    Target("fft_pipeline", "FFT pipeline", 9_300, 1_860, 300),
    Target("sparse_solve", "sparse solver (CG)", 36_000, 7_200, 900),
    Target("convolution_training", "convolution training", 4_100, 820, 150),
    Target("join_and_filter", "join and filter", 3_000, 600, 60),
    Target("all_reduce_steps", "all-reduce step", 360, 72, 0),
)


@dataclass(frozen=True, slots=True)
class Built:
    """A target's probe task, and how long it took to trace, match and build it."""

    probe: ProbeTask
    took_s: float


def built(target: Target, steps: int, folder: Path) -> Built:
    """Return the probe task of a target with this many steps; raise MillraceError if it cannot be built."""
    out = folder / f"{target.name}.json"
    command = [sys.executable, "-m", __spec__.name, target.name, str(steps), str(out)]
    environment = os.environ | _SINGLE | {"PYTHONPATH": str(ROOT)}
    began_s = time.perf_counter()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=_PATIENCE_S, check=False, cwd=folder
    )
    if done.returncode:
        raise MillraceError(f"probe of {target.name}: {done.stderr.strip().splitlines()[-1:]}")
    return Built(files.load(out), time.perf_counter() - began_s)


def probe_of(target: Target, steps: int) -> ProbeTask:
    """Return a target's probe task, with the share of its time that has kernels where that was measured."""
    traced = _GRAPHS.get(target.name, _traced)(target, steps)
    matches = match(traced.graph, KernelLibrary().kernels())
    name = target.name.replace("_", "-")
    graph, settings = replace(traced.graph, name=name), BuildSettings(ratio=RATIO)
    (probe,) = build(
        graph, matches, settings, task_type=name, seconds=traced.seconds or None, run_time_s=traced.run_time_s or None
    )
    if not traced.seconds:
        probe = replace(probe, share_matched=None)
    if target.name == "all_reduce_steps":  # which mostly waits
        return probe
    return with_reference(probe, partial(_cpu_time_s, target, steps), deadline_s=_PATIENCE_S)


def _traced(target: Target, steps: int) -> Extrapolated:
    function: Callable[[int], float] = getattr(targets, target.name)
    few, more = target.traced, 2 * target.traced
    traces = [trace_callable(function, (count,), name=target.name) for count in (few, more)]
    return extrapolated(traces[0], traces[1], (few, more), steps)


def _planned(target: Target, steps: int) -> Extrapolated:
    with duckdb.connect() as database:
        targets.make_tables(database)
        graph = graph_of_sql(targets.QUERY, database)
    return Extrapolated(_often(graph, steps), {}, 0.0)


def _cpu_time_s(target: Target, steps: int) -> float:
    """Return the CPU time of this many steps, extrapolated from short plain runs; imports count as start-up."""
    function: Callable[[int], float] = getattr(targets, target.name)
    few, more = target.traced // 2, 4 * target.traced
    function(2)
    times = [time_callable(function, (count,), deadline_s=None).cpu_time_s for count in (few, more)]
    return times[1] + (times[1] - times[0]) / (more - few) * (steps - more)


def _declared(target: Target, steps: int) -> Extrapolated:
    side = round((GRADIENT_BYTES / 4) ** 0.5)
    operators = (
        Operator.of("gradient", "gemm", {"m": side, "n": side, "k": side}, NumberFormat.FP32),
        Operator.of("exchange", "network-pull", {"nbytes": GRADIENT_BYTES}),
        Operator.of("descend", "elementwise", {"n": side * side, "operands": 2}, NumberFormat.FP32),
    )
    flows = (Flow("gradient", "exchange"), Flow("exchange", "descend"))
    return Extrapolated(_often(OperatorGraph(target.name, operators, flows, "network"), steps), {}, 0.0)


def _often(graph: OperatorGraph, steps: int) -> OperatorGraph:
    operators: Iterable[Operator] = (
        replace(operator, executions=operator.executions * steps) for operator in graph.operators
    )
    return OperatorGraph(graph.name, tuple(operators), graph.flows, graph.category)


_GRAPHS: Final = {"join_and_filter": _planned, "all_reduce_steps": _declared}


def main() -> None:
    """Write a target's probe task to a file."""
    name, steps, out = sys.argv[1:]
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    target = next(candidate for candidate in TARGETS if candidate.name == name)
    Path(out).write_text(files.dumps(probe_of(target, int(steps)), as_json=True), encoding="utf-8")
    sys.stdout.write(json.dumps({"probe": out}) + "\n")


if __name__ == "__main__":
    main()
