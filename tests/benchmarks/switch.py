"""Forwarding speed of the switch against bmv2: packet rate and latency over veth pairs, and in memory.

Over veth (root): tests/dataplane/programs/forwarding.p4 with a hundred routes, 128-byte frames of a thousand flows, the
same entries, devices and frames for ours (over kernel rings, and over AF_XDP) and for bmv2's simple_switch_grpc, one
after the other in each round; figures are medians over the rounds. The knee is the highest rate, found by bisection, at
which every frame arrives; latency is from the frame's hand-over to the kernel to the kernel's stamp at the exit, at a
rate that all carry easily, and at four fifths of each one's knee. Generator and sink share the machine.

Memory to memory: the same program and frames, without devices; tables of growing size and pipelines of growing length
with tests/benchmarks/programs/sweep.p4. Compile times are fabric.p4's, in fresh processes.

Usage: python tests/benchmarks/switch.py [--rounds N] [--no-devices] [--quick]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from rich.console import Console
from rich.table import Table

from dataplane.program.loader import load_program
from dataplane.program.model import Program
from dataplane.program.objects import ActionCall
from dataplane.switch.tables import ForwardingState, Group, GroupMember, TableEntry
from tests.benchmarks.traffic import forwarding, sweep
from tests.benchmarks.traffic.cables import Cables, cables
from tests.benchmarks.traffic.memory import CompiledMemory, measure_interpreter
from tests.benchmarks.traffic.targets import BMV2, COMPILED, COMPILED_XDP, bmv2_build, is_available, running
from tests.benchmarks.traffic.trials import SATURATED_PPS, Tester, Trial, find_knee, tester

LOW_PPS = 5_000
TRIAL_S, KNEE_STEPS, WRITES, BATCH = 0.5, 6, 20_000, 1_000
BUILD = Path(__file__).parents[2] / "p4" / "build"
COMPILE = """
import sys, time
from pathlib import Path
from dataplane.program.loader import load_program
from dataplane.switch.compiled.program import Purpose, compile_program
began = time.perf_counter()
program = load_program(Path(sys.argv[1]), Path(sys.argv[2]))
compile_program(program, Purpose.FORWARDING)
print(time.perf_counter() - began)
"""


@dataclass(slots=True)
class Result:
    """A switch's figures of every round."""

    knee_pps: list[float] = field(default_factory=list)
    offered_pps: list[float] = field(default_factory=list)
    saturated_pps: list[float] = field(default_factory=list)
    low_p50_us: list[float] = field(default_factory=list)
    low_p99_us: list[float] = field(default_factory=list)
    high_p50_us: list[float] = field(default_factory=list)
    high_p99_us: list[float] = field(default_factory=list)
    low_cpu: list[float] = field(default_factory=list)
    full_cpu: list[float] = field(default_factory=list)


def measure_round(target: str, net: Cables, traffic: Tester, result: Result) -> None:
    """Start a switch on the cables and measure it once."""
    with running(target, net) as switch:
        forwarding.install(switch.client)

        def run(rate_pps: float) -> Trial:
            return traffic.run(rate_pps, TRIAL_S, switch.pid)

        run(LOW_PPS)
        low, full = run(LOW_PPS), run(SATURATED_PPS)
        knee = find_knee(run, 1.5 * full.received_pps, KNEE_STEPS)
        high = run(max(1.0, 0.8 * knee))
    result.offered_pps.append(full.sent_pps)
    result.saturated_pps.append(full.received_pps)
    result.knee_pps.append(knee)
    result.low_cpu.append(low.cpu)
    result.full_cpu.append(full.cpu)
    for trial, p50, p99 in (
        (low, result.low_p50_us, result.low_p99_us),
        (high, result.high_p50_us, result.high_p99_us),
    ):
        p50.append(trial.p50_us)
        p99.append(trial.p99_us)


def measure_devices(rounds: int) -> dict[str, Result]:
    """Return the figures over veth of each switch that can run here."""
    results = {target: Result() for target in (COMPILED, COMPILED_XDP, BMV2) if is_available(target)}
    with cables() as net, tester(net, forwarding.make_frames(), forwarding.STAMP_OFFSET) as traffic:
        for _ in range(rounds):
            for target, figures in results.items():
                measure_round(target, net, traffic, figures)
    return results


def forwarding_state(program: Program) -> ForwardingState:
    """Return the state that `forwarding.install` makes over P4Runtime."""
    state = ForwardingState(program)
    profile = state.profiles["Inbound.ecmp"]
    for member in range(1, 5):
        profile.insert_member(member, ActionCall("Inbound.forward", (2,)))
    profile.insert_group(Group(1, tuple(GroupMember(member) for member in range(1, 5))))
    for number in range(forwarding.ROUTES):
        state.tables["Inbound.routes"].insert(TableEntry(((forwarding.network(number), 24),), group=1))
    return state


def measure_memory() -> tuple[float, float]:
    """Return packets a second, compiled and interpreted, memory to memory."""
    program = load_program(forwarding.PROGRAM, forwarding.P4INFO)
    frames = forwarding.make_frames()[: forwarding.FLOWS // 32 * 32]
    state = forwarding_state(program)
    return CompiledMemory(program).measure(state, frames).pps, measure_interpreter(program, state, frames).pps


def compile_times_s() -> tuple[float, float]:
    """Return how long fabric.p4 takes to load and compile in a fresh process: without a cache, and from it."""
    with tempfile.TemporaryDirectory(prefix="bench-cache") as cache:
        root = str(Path(__file__).parents[2])
        environment = {**os.environ, "MILLRACE_CACHE_DIR": cache, "PYTHONPATH": root}
        command = [sys.executable, "-c", COMPILE, str(BUILD / "fabric.json"), str(BUILD / "fabric.p4info.txtpb")]
        times_s = [
            float(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
            for _ in range(2)
        ]
    return times_s[0], times_s[1]


def writes_per_s(target: str) -> float:
    """Return table inserts a second through gRPC, in batches of a thousand."""
    with running(target, None) as switch:
        sweep.commit(switch.client)
        batches = list(sweep.batches(WRITES, BATCH))
        began = time.perf_counter()
        for batch in batches:
            switch.client.write(batch)
        return WRITES / (time.perf_counter() - began)


def main(argv: list[str]) -> None:
    """Print tables and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-devices", action="store_true", help="without veth pairs, root or not")
    parser.add_argument("--quick", action="store_true", help="small tables only")
    options = parser.parse_args(argv)
    console = Console(width=150)
    devices = {} if options.no_devices or os.geteuid() != 0 else measure_devices(options.rounds)
    show_devices(console, devices)
    compiled_pps, interpreted_pps = measure_memory()
    console.print(f"memory to memory: compiled {compiled_pps / 1e6:.2f} Mpps, interpreter {interpreted_pps:,.0f} pps")
    for table in sweep.tables(quick=options.quick):
        console.print(table)
    cold_s, cached_s = compile_times_s()
    writes = {target: writes_per_s(target) for target in (COMPILED, BMV2) if is_available(target)}
    console.print(f"fabric.p4: {cold_s:.2f} s cold, {cached_s:.2f} s from the cache", highlight=False)
    console.print(f"inserts a second: {', '.join(f'{name} {rate:,.0f}' for name, rate in writes.items())}")
    if BMV2 in devices:
        console.print(f"bmv2: {bmv2_build()}", highlight=False)
    print(json.dumps(summary(devices, compiled_pps, interpreted_pps, cold_s, cached_s, writes[COMPILED])))


def show_devices(console: Console, devices: dict[str, Result]) -> None:
    """Print the measurements over veth."""
    low, high = f"at {LOW_PPS:,} pps", "at 4/5 of the knee"
    table = Table(
        "over veth", "knee pps", "saturated: in", "out", f"p50 us {low}", "p99 us", f"p50 us {high}", "p99 us", "CPUs"
    )
    for name, result in devices.items():
        latencies = (result.low_p50_us, result.low_p99_us, result.high_p50_us, result.high_p99_us)
        rates = [f"{median(figures):,.0f}" for figures in (result.knee_pps, result.offered_pps, result.saturated_pps)]
        cpu = f"{median(result.low_cpu):.2f} / {median(result.full_cpu):.2f}"
        table.add_row(name, *rates, *(f"{median(figures):.1f}" for figures in latencies), cpu)
    console.print(table if devices else "over veth: needs root")
    console.print(f"{os.cpu_count()} processors for switch, generator and sink; CPUs: at the low rate / saturated")


def summary(
    devices: dict[str, Result],
    compiled_pps: float,
    interpreted_pps: float,
    cold_s: float,
    cached_s: float,
    writes: float,
) -> dict[str, float | str | None]:
    """Return the figures of the last line; None where a side was not measured.

    Rate and latency are both of the default mode, kernel rings; those of AF_XDP have a name that ends in `_xdp`.
    """
    theirs = devices.get(BMV2)
    return {
        **_mode(devices.get(COMPILED), theirs, ""),
        **_mode(devices.get(COMPILED_XDP), theirs, "_xdp"),
        "pps_bmv2": None if theirs is None else round(median(theirs.knee_pps)),
        "bmv2_build": None if theirs is None else bmv2_build(),
        "pps_interpreter": round(interpreted_pps),
        "mpps_memory": round(compiled_pps / 1e6, 2),
        "compile_cold_s": round(cold_s, 3),
        "compile_cached_s": round(cached_s, 3),
        "table_writes_per_s": round(writes),
    }


def _mode(ours: Result | None, theirs: Result | None, suffix: str) -> dict[str, float | None]:
    """Return the figures of one I/O mode, under names that end in the suffix."""
    both = None if ours is None or theirs is None else (ours, theirs)
    figures = {
        "pps_compiled": None if ours is None else round(median(ours.knee_pps)),
        "ratio_bmv2": None if both is None else _ratio(both[0].knee_pps, both[1].knee_pps),
        "latency_ratio_bmv2": None if both is None else _ratio(both[1].low_p50_us, both[0].low_p50_us),
        "latency_p50_us": None if ours is None else round(median(ours.low_p50_us), 1),
        "latency_p99_us": None if ours is None else round(median(ours.low_p99_us), 1),
    }
    return {name + suffix: figure for name, figure in figures.items()}


def _ratio(over: list[float], under: list[float]) -> float | None:
    return round(median(over) / median(under), 2) if median(under) else None


if __name__ == "__main__":
    main(sys.argv[1:])
