"""The chain that runs: sender, `millrace collector`, `paths serve` and `controller`, and switches, as processes.

All daemons have default settings; only topology, ports, addresses and folders are set. Reports are Telemetry Reports
v2.0 with INT-MD stacks of seven words a hop, a new random delay per hop, one report a datagram over loopback. An event
is a congestion: a link's queue is full (400 frames, 99 % load) from one report on, for four seconds. Its reaction is
the time until a route set that takes a flow off that link reaches a client of the path server; later than four seconds
is never. A fabric does at once as route sets say, so flows that were moved are reported from their new path.

- reaction: cases of 20 (leaf-spine) and 180 switches (fat tree), 1,000, 4,096 and 20,000 flows, 1,000 to 50,000
  reports/s; status of all daemons is asked for five times a second all the while.
- controller: time to fill 180 switches (tests/benchmarks/chaining/convergence.py).
- pods: pods bound a second through API server and scheduler (tests/benchmarks/chaining/pods.py).
- engineering: what traffic engineering misses of the optimum on 100 nodes (tests/benchmarks/engineering.py).

Usage: python tests/benchmarks/chain.py [--only PART] [--switches N ...] [--flows N ...] [--rates N ...]
           [--mix uniform|heavy] [--seconds N] [--no-controller] [--precedence] [--quick]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from rich.console import Console

from tests.benchmarks.chaining import cases
from tests.benchmarks.chaining.cases import CASES, GOAL_10K, GOAL_50K, MANY_FLOWS, Case
from tests.benchmarks.chaining.chain import TOPOLOGIES
from tests.benchmarks.chaining.flows import Mix
from tests.benchmarks.chaining.processes import ROOT, precede_others

SECONDS, QUICK_SECONDS = 60.0, 10.0


@dataclass(frozen=True, slots=True)
class Other:
    """A benchmark of its own, which prints its figures as JSON in its last line, and the one that is asked for."""

    module: str
    name: str
    arguments: tuple[str, ...]
    quick: tuple[str, ...]

    def run(self, *, quick: bool) -> dict[str, float | None]:
        """Run a part and show its output; no figure where it is missing, failed, or did not measure it."""
        module = f"tests.benchmarks.{self.module}"
        if importlib.util.find_spec(module) is None:
            sys.stderr.write(f"{module} is not here\n")
            return {self.name: None}
        command = [sys.executable, "-m", module, *(self.quick if quick else self.arguments)]
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        sys.stdout.write(ended.stdout)
        if ended.returncode:
            sys.stderr.write(f"{module} ended with status {ended.returncode}\n")
            return {self.name: None}
        return {self.name: json.loads(ended.stdout.splitlines()[-1]).get(self.name)}


OTHERS = {
    "controller": Other("chaining.convergence", "controller_180_s", (), ("fat-tree:k=4",)),
    "pods": Other("chaining.pods", "pods_bound_per_s", (), ("--nodes", "100", "--pods", "100")),
    "engineering": Other("engineering", "te_gap_wan100", (), ("--matrices", "2")),
}
PARTS = ("reaction", *OTHERS)


def chosen(options: argparse.Namespace) -> list[Case]:
    """Return the cases that the command line names: a list of ours, or all combinations of its arguments."""
    if options.switches or options.flows or options.rates or options.mix:
        mix = Mix(options.mix or Mix.UNIFORM)
        return [
            Case(switches, flows, rate, mix)
            for switches in options.switches or (20,)
            for flows in options.flows or (4096,)
            for rate in options.rates or (10_000,)
        ]
    return [GOAL_10K, GOAL_50K, MANY_FLOWS] if options.quick else list(CASES)


def reaction(console: Console, options: argparse.Namespace) -> dict[str, float | None]:
    """Run the cases; print a table, and return the figures."""
    seconds = options.seconds or (QUICK_SECONDS if options.quick else SECONDS)
    outcomes: dict[Case, cases.Outcome] = {}
    for case in chosen(options):
        outcomes[case] = cases.run(case, seconds, controller=options.controller, precedes=options.precedence)
        cases.tell(console, case, outcomes[case])
    console.print(cases.table_of(outcomes))
    return cases.figures(outcomes)


def parsed() -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="some parts")
    parser.add_argument("--switches", type=int, nargs="+", choices=list(TOPOLOGIES))
    parser.add_argument("--flows", type=int, nargs="+")
    parser.add_argument("--rates", type=int, nargs="+", help="reports a second")
    parser.add_argument("--mix", choices=list(Mix))
    parser.add_argument("--seconds", type=float, help=f"of events in each case, default {SECONDS:g}")
    parser.add_argument("--no-controller", dest="controller", action="store_false", help="without sinks and controller")
    parser.add_argument("--precedence", action="store_true", help="before other sessions of the machine (root)")
    parser.add_argument("--quick", action="store_true", help="three cases, two events each; smaller other parts")
    return parser.parse_args()


def main() -> None:
    """Measure, print tables, and a JSON object as the last line."""
    options = parsed()
    if options.precedence:
        precede_others()
    console = Console(file=sys.stdout, width=200)
    result: dict[str, float | None] = dict.fromkeys(cases.NAMES)
    result |= {other.name: None for other in OTHERS.values()}
    begun_s = time.monotonic()
    for name in options.only or PARTS:
        if name == "reaction":
            result |= reaction(console, options)
        else:
            result |= OTHERS[name].run(quick=options.quick)
    sys.stdout.write(f"took {time.monotonic() - begun_s:.0f} s\n{json.dumps(result)}\n")


if __name__ == "__main__":
    main()
