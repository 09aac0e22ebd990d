"""All-reduces by the switch against gloo's, over the same cables, shaped to one rate; by 1,024 workers in virtual time.

Workers are processes in network namespaces around the built-in switch with fabric_aggregation. TBF shapes both
directions of every worker's cable to the same rate, for all sides, and the switch knows it as the rate of its ports.
For gloo the switch does nothing but forward. Sides take turns, in the opposite order in every other round: ours; gloo
over TCP CUBIC; gloo over BBR. Where the kernel allows one of the two in no namespace, another that it allows takes its
place, and the output says so. All workers begin at one time of the machine's clock; an all-reduce has taken until the
last of them has its result. Speedups are medians of the rounds' ratios, over the quicker gloo of each round. Bytes are
what a worker's device has sent, from the Ethernet header on and with all repetitions; goodput is 32 bits a value over
time and rate, and "rate used" those bytes over time and rate: near 1 where a side is as quick as its bytes let it.

The rate is low so that the machine is not what is measured: "busy" is the share of all processors' time in which they
did not idle, by any process. Where it nears 1, a case says nothing about the network: take a lower rate.

Usage: python tests/benchmarks/allreduce.py [--rounds N] [--rate MBIT/S] [--quick] [--no-devices]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from rich.console import Console
from rich.table import Table

from dataplane.errors import MillraceError
from tests.benchmarks.returning import return_time_s
from tests.benchmarks.workers import measure
from tests.integration.allreduce_namespaces import AggregationFabric

ENGINE = "engine"
CONGESTION_CONTROLS = ("cubic", "bbr")
WORKERS, MEGABYTES = (2, 4, 8), (1, 8, 64)
RATE_MBPS = 50
LARGE = 64
"""Megabytes of the last line's speedups."""
VIRTUAL_VALUES = 65_536
MANY, FEW = (16, 64), (1, 16)
"""Leaves, and workers on each, of the ratio of times."""
_HEAD_START_S = 0.2
_PATIENCE_S = 300.0


@dataclass(frozen=True, slots=True)
class Case:
    """Workers of an all-reduce and their data size: a megabyte is 2^20 bytes of float32."""

    workers: int
    megabytes: int

    @property
    def values(self) -> int:
        """Return how many numbers each worker has."""
        return (self.megabytes << 20) // 4


@dataclass(frozen=True, slots=True)
class Trial:
    """One all-reduce: its time, what a worker has sent, how busy the machine was; one worker's error, if asked."""

    time_s: float
    sent_bytes: float
    busy: float
    error: float = 0.0


Trials = Mapping[Case, Mapping[str, Sequence[Trial]]]


class Workers:
    """Agents that have joined a job and gloo's groups."""

    def __init__(self, fabric: AggregationFabric, sides: Sequence[str], rings: str | None) -> None:
        self._fabric = fabric
        self._agents = [fabric.start_agent(host, "tests.integration.allreduce_agent") for host in fabric.hosts]
        job = fabric.start_job()
        for agent in self._agents:
            agent.tell(engine={**asdict(fabric.engine_settings(job, agent.host)), "rings": rings})
        self._hear()
        for side in sides:
            if side != ENGINE:
                self._join_gloo(side)

    def prepare(self, case: Case) -> None:
        """Let each worker have its values."""
        for seed, agent in enumerate(self._agents):
            agent.tell(values=case.values, seed=seed)
        self._hear()

    def run(self, side: str, *, check: bool) -> Trial:
        """Reduce once."""
        self._tell(ready=True)
        self._hear()
        before = self._sent_bytes()
        at_ns = time.monotonic_ns() + round(1e9 * _HEAD_START_S)
        self._tell(reduce=side, at_ns=at_ns)
        time.sleep(max(0, at_ns - time.monotonic_ns()) / 1e9)
        began = processor_time()
        end_ns = max(int(answer["end_ns"]) for answer in self._hear())
        ended = processor_time()
        sent = self._sent_bytes() - before
        busy = (ended[0] - began[0]) / max(1, ended[1] - began[1])
        error = self._agents[0].ask(_PATIENCE_S, check=list(range(len(self._agents))))["error"] if check else 0.0
        return Trial((end_ns - at_ns) / 1e9, sent / len(self._agents), busy, error)

    def _join_gloo(self, side: str) -> None:
        self._fabric.set_congestion_control(side.rpartition(" ")[2])
        store = str(self._fabric.fabric.run_dir / "gloo")
        for rank, agent in enumerate(self._agents):
            agent.tell(gloo={"name": side, "store": store, "rank": rank, "workers": len(self._agents)})
        self._hear()

    def _tell(self, **words: Any) -> None:
        for agent in self._agents:
            agent.tell(**words)

    def _hear(self) -> list[dict[str, float]]:
        return [agent.answer(_PATIENCE_S) for agent in self._agents]

    def _sent_bytes(self) -> int:
        return sum(self._fabric.wire(agent.host).sent_bytes for agent in self._agents)


def processor_time() -> tuple[int, int]:
    """Return for how long all processors together were not idle, and how long it was, in ticks."""
    words = Path("/proc/stat").read_text(encoding="ascii").splitlines()[0].split()
    ticks = [int(word) for word in words[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def measure_cases(
    workers: int, megabytes: Sequence[int], sides: Sequence[str], rounds: int, rate_bps: int, rings: str | None = None
) -> dict[Case, dict[str, list[Trial]]]:
    """Return the trials of this many workers; a first all-reduce of each side is not counted."""
    trials: dict[Case, dict[str, list[Trial]]] = {}
    with AggregationFabric(workers, rate_bps) as fabric:
        running = Workers(fabric, sides, rings)
        running.prepare(Case(workers, 1))
        for side in sides:
            running.run(side, check=False)
        for size in megabytes:
            case = Case(workers, size)
            trials[case] = {side: [] for side in sides}
            running.prepare(case)
            for number in range(rounds):
                for side in sides[:: -1 if number % 2 else 1]:
                    trials[case][side].append(running.run(side, check=number == 0))
    return trials


def sides_of(allowed: Sequence[str]) -> tuple[tuple[str, ...], str]:
    """Return the sides that a machine allows in namespaces, and a line about wanted ones that it does not, or ''."""
    missing = [control for control in CONGESTION_CONTROLS if control not in allowed]
    others = [control for control in allowed if control not in CONGESTION_CONTROLS]
    controls = [control for control in CONGESTION_CONTROLS if control in allowed] + others[: len(missing)]
    if not missing:
        return (ENGINE, *(f"gloo, {control}" for control in controls)), ""
    note = (
        f"gloo over {' and '.join(controls) or 'nothing'}, not {' and '.join(missing)}: this machine allows "
        f"{' '.join(allowed) or 'nothing'} in namespaces (net.ipv4.tcp_allowed_congestion_control)"
    )
    return (ENGINE, *(f"gloo, {control}" for control in controls)), note


def speedup(trials: Mapping[str, Sequence[Trial]], of: str = "time_s") -> float | None:
    """Return the median of the rounds' ratios of the least of gloo's to ours; None where there is no gloo."""
    gloo = [trials[side] for side in trials if side != ENGINE]
    if not gloo:
        return None
    rounds = zip(trials[ENGINE], *gloo, strict=True)
    ratios: list[float] = [min(getattr(trial, of) for trial in others) / getattr(ours, of) for ours, *others in rounds]
    return median(ratios)


def goodput_share(case: Case, trials: Sequence[Trial], rate_bps: int) -> float:
    """Return the share of a cable's rate that arrives as values."""
    return 32 * case.values / median(trial.time_s for trial in trials) / rate_bps


def results_table(found: Trials, rate_bps: int) -> Table:
    """Return all cases and sides."""
    columns = ("workers", "MB", "side", "time, ms", "goodput", "sent, MB", "rate used", "time/ours", "error", "busy")
    table = Table(*columns, title=f"All cables {rate_bps / 1e6:g} Mbit/s each way")
    for case, sides in found.items():
        ours = median(trial.time_s for trial in sides[ENGINE])
        for side, trials in sides.items():
            time_s = median(trial.time_s for trial in trials)
            table.add_row(
                str(case.workers),
                str(case.megabytes),
                side,
                f"{1e3 * time_s:,.1f}",
                f"{goodput_share(case, trials, rate_bps):.3f}",
                f"{median(trial.sent_bytes for trial in trials) / 1e6:.2f}",
                f"{median(8 * trial.sent_bytes / trial.time_s for trial in trials) / rate_bps:.3f}",
                f"{time_s / ours:.2f}",
                f"{max(trial.error for trial in trials):.1e}",
                f"{median(trial.busy for trial in trials):.2f}",
            )
    return table


def time_ratio(few: tuple[int, int] = FEW, many: tuple[int, int] = MANY, values: int = VIRTUAL_VALUES) -> float:
    """Return how many times as long many workers take as few do, in virtual time; (leaves, workers on each)."""
    return measure(*many, values).time_us / measure(*few, values).time_us


def summary(found: Trials, rate_bps: int, ratio: float | None) -> dict[str, float | None]:
    """Return the figures of the last line; None if not measured."""

    def of(workers: int, what: str = "time_s") -> float | None:
        trials = found.get(Case(workers, LARGE))
        value = None if trials is None else speedup(trials, what)
        return None if value is None else round(value, 3)

    large = [goodput_share(case, sides[ENGINE], rate_bps) for case, sides in found.items() if case.megabytes == LARGE]
    errors = [trial.error for sides in found.values() for trial in sides[ENGINE]]
    return {
        "speedup_4": of(4),
        "speedup_8": of(8),
        "goodput_share": round(min(large), 3) if large else None,
        "wire_bytes_ratio": of(8, "sent_bytes"),
        "time_ratio_1024_to_16_workers": None if ratio is None else round(ratio, 3),
        "max_relative_error": max(errors, default=None),
    }


def main(argv: list[str]) -> int:
    """Measure, print tables, and a JSON object as the last line; one line on stderr and 1 if that cannot be done."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=RATE_MBPS, metavar="MBIT/S")
    parser.add_argument("--workers", type=int, nargs="+", default=WORKERS, metavar="N")
    parser.add_argument("--megabytes", type=int, nargs="+", default=MEGABYTES, metavar="N")
    parser.add_argument("--rings", choices=("PACKET_V2", "PACKET_V3", "XDP"), help="ours by these, not by UDP sockets")
    parser.add_argument("--quick", action="store_true", help="4 workers, 1 MB, no virtual time")
    parser.add_argument("--no-devices", action="store_true", help="virtual time only; needs no root")
    parser.add_argument("--no-virtual", action="store_true", help="no virtual time")
    parser.add_argument("--return", action="store_true", dest="only_return", help="the return from the ring alone")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("one round at least")
    if not options.no_devices and os.geteuid() != 0:
        parser.error("needs root: network namespaces; --no-devices does not")
    try:
        run(options)
    except MillraceError as error:
        print(f"allreduce: {error}", file=sys.stderr)
        return 1
    return 0


def run(options: argparse.Namespace) -> None:
    """Measure what the options say, and print it."""
    if options.only_return:
        print(json.dumps({"return_to_switch_s": round(return_time_s(), 1)}))
        return
    sides: tuple[str, ...] = (ENGINE,)
    note = "" if importlib.util.find_spec("torch") else "no gloo: it needs the extra torch"
    if not options.no_devices and not note:
        sides, note = sides_of(AggregationFabric.allowed_congestion_controls())
    rate_bps = round(options.rate * 1e6)
    trials: dict[Case, dict[str, list[Trial]]] = {}
    if not options.no_devices:
        for workers in (4,) if options.quick else options.workers:
            sizes = (1,) if options.quick else options.megabytes
            cases = measure_cases(workers, sizes, sides, options.rounds, rate_bps, options.rings)
            Console(width=120).print(results_table(cases, rate_bps))
            trials |= cases
    ratio = None if options.quick or options.no_virtual else time_ratio()
    if note:
        print(note)
    has_ring = not (options.quick or options.no_devices) and importlib.util.find_spec("torch") is not None
    back_s = round(return_time_s(), 1) if has_ring else None
    print(json.dumps({**summary(trials, rate_bps, ratio), "return_to_switch_s": back_s, "sides": list(sides)}))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
