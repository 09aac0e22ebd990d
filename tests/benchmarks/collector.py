"""Reports per second that a collector takes: memory to state on one core, and over a veth pair without loss.

Reports are Telemetry Reports v2.0 of UDP/IPv4 packets with an INT-MD stack of 7 words a hop (node id, interfaces, hop
latency, queue, ingress time stamp, TX utilisation), 172 bytes with 4 hops; the last hop's words stand in the report.
Every value varies from report to report, flows are drawn at random, sequence numbers have no gaps.

- Memory: batches of 4,096 payloads to `Collector.receive_many`; decoding, sequence accounts, flows with rate and path,
  windows of every link and of the way. Reports over the thread's own CPU time, the median of the passes after a first
  one. The other side of the ratio is `Core.REFERENCE`, plain Python, on the same reports in the same run.
- Modes: reports of one hop each, of packets of four hops, joined to packets and paths (queues' need no joining); the
  other side is `Core.REFERENCE` again. Reports of items that a switch has added up belong to no packet.
- veth: a sender on another thread offers rates step by step; a collector of its own for each trial receives through
  `ReportReceiver`, with a kernel buffer of 32 MiB. What counts is the highest rate without loss, as it was
  sent, the median of the rounds. Reports that the kernel did not take from the sender were never sent.

Usage: python tests/benchmarks/collector.py [--rounds N] [--quick] [--no-devices]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from rich.console import Console
from rich.table import Table

from collectors.settings import Core
from tests.benchmarks.collecting.memory import MemoryCase, bytes_per_flow, native_rate, reference_rate
from tests.benchmarks.collecting.modes import MODES, item_rate, mode_rate
from tests.benchmarks.collecting.veth import SIDES, Side, Trial, bench

CASE = MemoryCase(hops=4, flows=1000)
"""Case of the last line."""
HOPS = (1, 2, 4, 8, 16)
FLOWS = (1, 100, 10_000, 100_000, 1_000_000)
MANY_FLOWS = 1_000_000
RATES = (200_000, 400_000, 600_000, 800_000, 1_000_000, 1_500_000, 2_000_000, 3_000_000)
GOAL = 1_000_000
_TRIAL_S, _QUICK_TRIAL_S = 0.5, 0.2


def memory(console: Console, passes: int, *, quick: bool) -> dict[MemoryCase, float]:
    """Measure memory to state; return reports a second by case."""
    flows = FLOWS[:3] if quick else FLOWS
    cases = [*(MemoryCase(hops, CASE.flows) for hops in HOPS), *(MemoryCase(CASE.hops, count) for count in flows)]
    rates = {case: median(native_rate(case, passes)) for case in cases}
    table = Table("hops", "flows", "M reports/s", "ns a report", "M hops/s", title="Memory to state, one core")
    for case, rate in rates.items():
        table.add_row(
            f"{case.hops}", f"{case.flows:,}", f"{rate / 1e6:.2f}", f"{1e9 / rate:.0f}", f"{rate * case.hops / 1e6:.1f}"
        )
    console.print(table)
    return rates


def modes(console: Console) -> None:
    """Measure the modes in which each hop reports by itself."""
    table = Table("mode", "M reports/s", "the reference, reports/s", title="Reports of one hop, joined, one core")
    for mode in MODES:
        table.add_row(mode, f"{mode_rate(mode) / 1e6:.2f}", f"{mode_rate(mode, Core.REFERENCE):,.0f}")
    table.add_row("items of a job", f"{item_rate() / 1e6:.2f}", f"{item_rate(Core.REFERENCE):,.0f}")
    console.print(table)


def over_veth(console: Console, rounds: int, trial_s: float) -> dict[Side, dict[int, list[Trial]]]:
    """Measure every side at every rate up to the one that the sender cannot reach; return the trials."""
    by_side: dict[Side, dict[int, list[Trial]]] = {side: {} for side in SIDES}
    with bench() as made:
        for _ in range(rounds):
            for side in SIDES:
                for rate in RATES:
                    trial = made.run(side, rate, trial_s)
                    by_side[side].setdefault(rate, []).append(trial)
                    if trial.rate < 0.7 * rate:
                        break
    table = Table("source", "offered", "sent, reports/s", "lost", title="Over a veth pair")
    for side, rates in by_side.items():
        for rate, trials in rates.items():
            sent = median(trial.rate for trial in trials)
            table.add_row(side.name, f"{rate:,}", f"{sent:,.0f}", f"{share_lost(trials):.3%}")
    console.print(table)
    return by_side


def share_lost(trials: Sequence[Trial]) -> float:
    """Return the share of the reports sent that no collector took."""
    return sum(trial.lost for trial in trials) / sum(trial.sent for trial in trials)


def best_without_loss(rates: Mapping[int, Sequence[Trial]]) -> float:
    """Return the highest sent rate without loss; 0 if there is none."""
    return max((median(t.rate for t in trials) for trials in rates.values() if share_lost(trials) == 0), default=0.0)


def summary(
    memory_rates: Mapping[MemoryCase, float],
    reference: float | None,
    flow_bytes: float | None,
    veth: Mapping[Side, Mapping[int, Sequence[Trial]]],
) -> dict[str, float | None]:
    """Return the figures of the last line; None if not measured."""
    ours = memory_rates.get(CASE)
    best = {side: best_without_loss(rates) for side, rates in veth.items()}
    side = max(best, key=lambda candidate: best[candidate], default=None)
    # At the goal, or as near to it as the sender came.
    at_goal = [] if side is None else veth[side][min(veth[side], key=lambda rate: abs(rate - GOAL))]
    return {
        "mpps_memory": None if ours is None else round(ours / 1e6, 2),
        "mpps_veth": None if side is None else round(best[side] / 1e6, 3),
        "loss_veth": share_lost(at_goal) if at_goal else None,
        "ratio_reference": None if ours is None or reference is None else round(ours / reference, 1),
        "bytes_per_flow": None if flow_bytes is None else round(flow_bytes, 1),
    }


def main() -> None:
    """Measure, print tables, and a JSON object as the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="fewer flows, shorter trials")
    parser.add_argument("--no-devices", action="store_true", help="memory to state only; needs no root")
    arguments = parser.parse_args()
    console = Console(file=sys.stdout, width=120)
    rates = memory(console, 2 * arguments.rounds + 1, quick=arguments.quick)
    modes(console)
    reference = median(reference_rate(CASE) for _ in range(arguments.rounds))
    console.print(f"reference: {reference:,.0f} reports/s of {CASE.hops} hops, {1e6 / reference:.0f} us each")
    flow_bytes = None if arguments.quick else bytes_per_flow(MANY_FLOWS)
    if flow_bytes is not None:
        console.print(f"{flow_bytes:.0f} bytes of memory for each of {MANY_FLOWS:,} flows")
    veth: dict[Side, dict[int, list[Trial]]] = {}
    if not arguments.no_devices and os.geteuid() == 0:
        veth = over_veth(console, arguments.rounds, _QUICK_TRIAL_S if arguments.quick else _TRIAL_S)
    sys.stdout.write(json.dumps(summary(rates, reference, flow_bytes, veth)) + "\n")


if __name__ == "__main__":
    main()
