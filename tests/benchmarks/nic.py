"""Cost of receiving: plain sockets against our queues, on veth pairs; CPU, wake-ups, latency, loss, packet rate.

Sides, one after the other in each round, on the same devices, with the same frames, generator and loads:
- "socket": AF_PACKET raw sockets, one frame a blocking recv(2), read by native code: the strict opponent, without any
  cost of Python. "socket, Python" reads them with socket.recv. Ratios, those of the last line too, are over the first.
- ours with a consumer that is a native loop on a thread of its own: "hybrid" (`NicSettings.balanced()`),
  "low latency" and "throughput" (the presets of those names), "waiting", and hybrid over AF_XDP and, where it is
  installed, DPDK.
- "hybrid, Python" has a consumer in Python, which takes bursts (`Consumer.receive_into`) and uses numpy on them.
- "function", and all that poll: each frame goes to a native function on the driver's thread instead. A socket's reader
  needs no second thread either, and one that polls leaves no time for another one on its CPU.

Counted in the same way for all sides:
- CPU covers all receiving threads, drivers and consumers, from their own clocks (CLOCK_THREAD_CPUTIME_ID: user and
  system). What a veth pair does in softirq context is charged to the sender, for every side; a timer's interrupt to
  whatever it interrupts.
- Sleeps are the voluntary context switches of the same threads (ru_nvcsw). Wake-ups are what our drivers' statistics
  count: interrupts (waits that the device ended), other waits, and the pauses between two polls, which a clock ends.
- Latency is from just before the generator hands a frame to the kernel until the consumer's code sees it; one frame in
  eight carries a time (CLOCK_MONOTONIC); median, p99 and p99.9 of each trial.
- Frames lost are those that the kernel took from the generator and no consumer saw. All receive buffers are 8 MiB.
Generator and receiver have a processor each, if there are two; the generator spins, so that frames are evenly spaced. A
trial in which it fell short of its rate, because of other work on the machine, is repeated, twice at most.

The ceiling is the arrival rate when the generator sends all it can; "at 4/5" is a trial at 80 % of the side's own
ceiling. Figures are medians over the rounds, losses are sums. The last line covers 64-byte frames and one queue: ratios
and latencies at 200,000 packets per second, wake-ups and loss of the hybrid with a consumer at 4/5 of its ceiling.

Usage: python tests/benchmarks/nic.py [--rounds N] [--quick] [--sides "socket;hybrid"]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from rich.console import Console
from rich.table import Table

from tests.benchmarks.nics.cable import cable
from tests.benchmarks.nics.generator import Generator, generator
from tests.benchmarks.nics.ours import available_sides
from tests.benchmarks.nics.raw_sockets import native_sockets, python_sockets
from tests.benchmarks.nics.receivers import Open, Receiver
from tests.benchmarks.nics.trials import Trial, idle_cpu_share, run_saturated, run_steadily, run_trial

LOADS_PPS = (100_000, 200_000, 400_000)
LOAD_PPS = 200_000
"""Rate for ratios and latencies in the last line."""
SOCKET, SOCKET_PYTHON = "socket", "socket, Python"
HYBRID, POLLING, THROUGHPUT = "hybrid", "polling", "throughput"
TRIAL_S, QUICK_TRIAL_S = 0.4, 0.25
_WARM_UP_S, _IDLE_S = 0.05, 5.0


@dataclass(frozen=True, slots=True)
class Case:
    """Frames, without FCS, and queues of the device."""

    frame_bytes: int
    queues: int


CASES = (Case(64, 1), Case(512, 1), Case(1500, 1), Case(64, 2), Case(64, 3), Case(64, 4))
CASE = CASES[0]
"""Case of the last line."""


@dataclass(slots=True)
class Result:
    """A side's trials in one case, of every round."""

    loads: dict[int, list[Trial]] = field(default_factory=lambda: {load: [] for load in LOADS_PPS})
    saturated: list[Trial] = field(default_factory=list)
    at_80_percent: list[Trial] = field(default_factory=list)
    idle_cpu_shares: list[float] = field(default_factory=list)

    def figure(self, trials: Sequence[Trial], of: Callable[[Trial], float | None]) -> float | None:
        """Return the median of a figure, None where it was not measured."""
        values = [value for value in map(of, trials) if value is not None]
        return median(values) if values else None


Results = Mapping[Case, Mapping[str, Result]]


def measure_side(receiver: Receiver, traffic: Generator, trial_s: float, result: Result) -> None:
    """Run all trials with one receiver."""
    run_trial(receiver, traffic, LOAD_PPS, _WARM_UP_S)
    for load, trials in result.loads.items():
        trials.append(run_steadily(receiver, traffic, load, trial_s))
    full = run_saturated(receiver, traffic, trial_s)
    result.saturated.append(full)
    result.at_80_percent.append(run_steadily(receiver, traffic, 0.8 * full.received_pps, 2 * trial_s))


def measure_case(case: Case, sides: Mapping[str, Open], rounds: int, trial_s: float) -> dict[str, Result]:
    """Return the trials of all sides on one cable, every side once in each round."""
    results = {name: Result() for name in sides}
    with cable(case.queues) as net, generator(net, case.frame_bytes) as traffic:
        for number in range(rounds):
            for name, open_side in sides.items():
                with open_side(net, case.queues, traffic) as receiver:
                    if case == CASE and number == 0:
                        results[name].idle_cpu_shares.append(idle_cpu_share(receiver, _IDLE_S))
                    measure_side(receiver, traffic, trial_s, results[name])
    return results


def main(argv: list[str]) -> None:
    """Print tables and, last, one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="64-byte frames, one queue, short trials")
    parser.add_argument("--sides", help="only these, by their names, separated by semicolons")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("one round at least")
    if os.geteuid() != 0:
        parser.error("needs root: network namespaces and raw sockets")
    sides = {SOCKET: native_sockets, SOCKET_PYTHON: python_sockets, **available_sides()}
    if options.sides:
        wanted = options.sides.split(";")
        if not sides.keys() >= set(wanted):
            parser.error(f"the sides are {', '.join(sides)}")
        sides = {name: sides[name] for name in wanted}
    console = Console(width=180)
    results = {}
    for case in (CASE,) if options.quick else CASES:
        results[case] = measure_case(case, sides, options.rounds, QUICK_TRIAL_S if options.quick else TRIAL_S)
        console.print(cost_table(case, results[case]))
        console.print(delay_table(case, results[case]))
    console.print(f"{os.cpu_count()} processors; CPU seconds per million packets (the native socket's over them)")
    print(json.dumps(summary(results.get(CASE, {}))))


def cost_table(case: Case, results: Mapping[str, Result]) -> Table:
    """Return CPU seconds per million packets in one case, and in brackets the native socket's over them."""
    loads = [f"at {load // 1000}k" for load in LOADS_PPS]
    table = Table(_title(case), "ceiling pps", *loads, "at 4/5", "idle CPU")
    plain = results.get(SOCKET)
    for name, result in results.items():
        table.add_row(
            name,
            f"{median(trial.received_pps for trial in result.saturated):,.0f}",
            *(_cost(result.loads[load], None if plain is None else plain.loads[load]) for load in LOADS_PPS),
            _cost(result.at_80_percent, None if plain is None else plain.at_80_percent),
            f"{100 * median(result.idle_cpu_shares):.2f} %" if result.idle_cpu_shares else "",
        )
    return table


def delay_table(case: Case, results: Mapping[str, Result]) -> Table:
    """Return latencies, wake-ups and losses of one case."""
    quiet = f"at {LOAD_PPS // 1000}k: p50 us", "p99", "p99.9"
    high = "at 4/5: p50 us", "p99", "p99.9", "interrupts/packet", "wake-ups/packet", "sleeps/packet", "lost"
    table = Table(_title(case), *quiet, *high)
    for name, result in results.items():
        trials = result.at_80_percent
        table.add_row(
            name,
            *(f"{median(trial.latencies_us[index] for trial in result.loads[LOAD_PPS]):,.1f}" for index in range(3)),
            *(f"{median(trial.latencies_us[index] for trial in trials):,.1f}" for index in range(3)),
            _number(result.figure(trials, lambda trial: trial.interrupts_per_packet)),
            _number(result.figure(trials, lambda trial: trial.wakeups_per_packet)),
            _number(result.figure(trials, lambda trial: trial.sleeps_per_packet)),
            f"{sum(trial.lost for trial in trials):,} of {sum(trial.sent for trial in trials):,}",
        )
    return table


def _title(case: Case) -> str:
    return f"{case.frame_bytes} bytes, {case.queues} queue{'s' if case.queues > 1 else ''}"


def _cost(trials: Sequence[Trial], plain: Sequence[Trial] | None) -> str:
    cpu = f"{median(trial.cpu_s_per_million for trial in trials):.3f}"
    return cpu if plain is None else f"{cpu} ({ratio(plain, trials):.1f})"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.5f}"


def ratio(plain: Sequence[Trial], ours: Sequence[Trial]) -> float:
    """Return the socket's CPU seconds per million packets over ours."""
    return median(trial.cpu_s_per_million for trial in plain) / median(trial.cpu_s_per_million for trial in ours)


def summary(results: Mapping[str, Result]) -> dict[str, float | None]:
    """Return the figures of the last line; None where a side was not measured."""
    plain, hybrid = results.get(SOCKET), results.get(HYBRID)

    def cpu_ratio(name: str) -> float | None:
        result = results.get(name)
        return (
            None if plain is None or result is None else round(ratio(plain.loads[LOAD_PPS], result.loads[LOAD_PPS]), 2)
        )

    def p99_us(result: Result | None) -> float | None:
        return None if result is None else round(median(trial.latencies_us[1] for trial in result.loads[LOAD_PPS]), 1)

    high = [] if hybrid is None else hybrid.at_80_percent
    woken = None if hybrid is None else hybrid.figure(high, lambda trial: trial.wakeups_per_packet)
    return {
        "cpu_ratio_hybrid": cpu_ratio(HYBRID),
        "cpu_ratio_polling": cpu_ratio(POLLING),
        "cpu_ratio_throughput": cpu_ratio(THROUGHPUT),
        "wakeups_per_packet": None if woken is None else round(woken, 5),
        "loss_at_80_percent": sum(trial.lost for trial in high) / sum(trial.sent for trial in high) if high else None,
        "latency_p99_us_socket": p99_us(plain),
        "latency_p99_us_hybrid": p99_us(hybrid),
        "idle_cpu_share": None if hybrid is None else round(median(hybrid.idle_cpu_shares), 5),
    }


if __name__ == "__main__":
    main(sys.argv[1:])
