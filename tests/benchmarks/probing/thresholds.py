"""Savings of efficiency thresholds: unit-hours of a mix of scalable tasks against "all units", at equal finish time.

A centre has 32 units; 120 tasks of eight types wait from the start. In virtual time the task scheduler's own decider
(controller.scheduling.tasks) plans them by two of its profiles: `measured`, which gives a task no more units than
its type's threshold, found by probes on 1 to 32 units whose run times scatter by 3 %; and `all-units`, which gives each
all of them. Real run times scatter by 3 %, too, and differ from the curve by up to 3 % per type. A search then finds
the smallest centre on which `measured` ends no later than `all-units` does on 32: its units times that time, including
the cost of probes, against 32 times the same time gives the savings; "all units" pays for no probe. Types: Amdahl's law
with serial shares of 0.5 to 10 %, the universal scalability law (which goes down again), a limit at 12 units, and
perfect scaling. The same is done with curves measured here, of real programs on units of a quarter of a core
(scaling.py: root, a quiet machine of two cores).

    .venv/bin/python -m tests.benchmarks.probing.thresholds    # --quick: one seed, nothing measured here
"""

from __future__ import annotations

import argparse
import heapq
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from controller.apiserver.resources import Metadata, ProbeResult
from controller.apiserver.resources.probe_result import ProbeResultSpec, ProbeResultStatus, ProbeRun
from controller.probing.values import Implementation, KernelUse, Library, ProbeTask
from controller.scheduling.tasks.estimating import Evidence, KnownType, options_of, threshold_in
from controller.scheduling.tasks.planning import Plan, order_of
from controller.scheduling.tasks.profiles import ALL_UNITS, MEASURED, TaskProfile
from controller.scheduling.tasks.slots import Slots
from controller.scheduling.tasks.values import CentreState, CentresView, Offer, Options, PendingTask
from dataplane.topology.values import DeviceKind
from tests.benchmarks.probing import scaling

NAMES: Final = ("unit_hours_saved",)
UNITS: Final = 32
TASKS: Final = 120
RATIO: Final = 1000
REPETITIONS: Final = 5
SCATTER: Final = 0.03
START_S: Final = 0.3
"""A probe's process, each run."""
SEEDS: Final = 5
_KERNEL: Final = "dgemm"
_CODE: Final = Implementation(DeviceKind.CPU, Library.NUMPY, "m:f")
_NS: Final = 1_000_000_000

Curve = Callable[[int], float]
"""Seconds on this many units of work that takes a second on one."""


def amdahl(serial: float) -> Curve:
    """Return Amdahl's law for a serial share."""
    return lambda units: serial + (1 - serial) / units


def universal(contention: float, coherence: float) -> Curve:
    """Return the universal scalability law (Gunther)."""
    return lambda units: (1 + contention * (units - 1) + coherence * units * (units - 1)) / units


def limited(most: int) -> Curve:
    """Return a curve that scales up to this many units."""
    return lambda units: 1 / min(units, most)


MIX: Final[Mapping[str, Curve]] = {
    "amdahl 0.5 %": amdahl(0.005),
    "amdahl 2 %": amdahl(0.02),
    "amdahl 5 %": amdahl(0.05),
    "amdahl 10 %": amdahl(0.1),
    "universal 1 %, 0.02 %": universal(0.01, 0.0002),
    "universal 3 %, 0.1 %": universal(0.03, 0.001),
    "limit at 12": limited(12),
    "perfect": limited(UNITS),
}
COUNTS: Final = (1, 2, 4, 8, 12, 16, 24, 32)


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of tasks: seconds on one unit, and its curve."""

    name: str
    seconds: float
    curve: Curve


@dataclass
class Known:
    """Results of probes for a type, and their cost."""

    known: KnownType
    evidence: Evidence
    unit_s: float
    took_s: float


@dataclass
class Outcome:
    """Result of a mix: the end of the last task, and the unit-seconds held by tasks."""

    finish_s: float
    held_unit_s: float
    units_of: dict[str, list[int]] = field(default_factory=dict)


def probed(kind: Kind, counts: tuple[int, ...], random: np.random.Generator) -> Known:
    """Return what a probe of 1000:1 measures of a type, on each number of units, five times."""
    name = kind.name.replace(" ", "-").replace("%", "percent").replace(",", "")
    use = KernelUse("use", _KERNEL, 1, (), 1, RATIO, _CODE, 1e-6)
    probe = ProbeTask(name, "hpc", (use,), task_type=name, ratio=RATIO, share_matched=1.0)
    runs = []
    for units in counts:
        mean_s = kind.seconds * kind.curve(units) / RATIO
        times = tuple(float(mean_s * np.exp(SCATTER * random.standard_normal())) for _ in range(REPETITIONS))
        runs.append(ProbeRun(units=units, run_times_s=times, kernels_s={"use": times}, kernel_accuracies={"use": 0.0}))
    spec = ProbeResultSpec(probe=name, centre="c", unit="u")
    result = ProbeResult(
        metadata=Metadata(name=name, created_ns=1), spec=spec, status=ProbeResultStatus(runs=tuple(runs))
    )
    taken = [(run.units, START_S + sum(run.run_times_s)) for run in runs]
    known_type = KnownType(name, (probe,), counts)
    unit_s, took_s = sum(units * seconds for units, seconds in taken), sum(seconds for _, seconds in taken)
    return Known(known_type, Evidence({name: (result,)}), unit_s, took_s)


def simulate(
    profile: TaskProfile, tasks: list[Kind], known: Mapping[str, Known], units: int, random: np.random.Generator
) -> Outcome:
    """Run tasks on a centre with this many units in virtual time, as the decider decides."""
    offer = Offer("c", "u", units, frozenset({_KERNEL}))
    options = {
        name: Options.of(options_of(known_type.known, offer, known_type.evidence, 2, 1e9), {offer.key: 0})
        for name, known_type in known.items()
    }
    waiting = {f"t{number:04}": kind for number, kind in enumerate(tasks)}
    pending = [PendingTask(name, known[kind.name].known.name, since_ns=int(name[1:])) for name, kind in waiting.items()]
    wobble = {name: 1 + SCATTER * float(random.uniform(-1, 1)) for name in known}
    running: list[tuple[float, int, float]] = []
    now_s, outcome = 0.0, Outcome(0.0, 0.0)
    pending = order_of(pending)
    while pending or running:
        held = [(some, max(1e-3, until_s - now_s)) for _, some, until_s in running]
        slots = Slots(units, held)
        view = CentresView(1, (offer,), {"c": CentreState("c", is_probed=True)}, (slots,))
        plan, left = Plan(view), []
        for index, task in enumerate(pending):
            if not slots.free:
                left += pending[index:]
                break
            kind = waiting[task.name]
            verdict = plan.decide(profile, task, options[kind.name])
            if verdict.option is None or verdict.start_s > 0:
                left.append(task)
                continue
            some = verdict.option.units
            took_s = (
                kind.seconds * kind.curve(some) * wobble[kind.name] * float(np.exp(SCATTER * random.standard_normal()))
            )
            heapq.heappush(running, (now_s + took_s, some, now_s + verdict.option.estimate.times[2]))
            outcome.held_unit_s += some * took_s
            outcome.units_of.setdefault(kind.name, []).append(some)
        if len(left) == len(pending) and not running:
            raise RuntimeError(f"no task can begin on {units} units")
        pending = left
        now_s, *_ = heapq.heappop(running)
    outcome.finish_s = now_s
    return outcome


@dataclass(frozen=True, slots=True)
class Saved:
    """Savings for one mix: the share of unit-hours at equal finish time, and the runs behind it."""

    share: float
    units: int
    all_units: Outcome
    measured: Outcome
    """On as many units as `all_units` had."""
    smaller: Outcome
    probes_unit_s: float
    thresholds: Mapping[str, int | None]


def saved(mix: Mapping[str, Curve], counts: tuple[int, ...], seed: int, *, tasks: int = TASKS) -> Saved:
    """Run one mix both ways, and by thresholds on the smallest centre that ends no later."""
    random, most = np.random.default_rng(seed), max(counts)
    kinds = [Kind(name, float(np.exp(random.normal(8.0, 0.5))), curve) for name, curve in mix.items()]
    types = {kind.name: probed(kind, counts, random) for kind in kinds}
    drawn = [kinds[int(number)] for number in random.integers(len(kinds), size=tasks)]
    by_all, by_measure = TaskProfile.of(ALL_UNITS), TaskProfile.of(MEASURED)
    took_s, unit_s = (
        sum(known_type.took_s for known_type in types.values()),
        sum(known_type.unit_s for known_type in types.values()),
    )

    def run(profile: TaskProfile, units: int) -> Outcome:
        return simulate(profile, drawn, types, units, np.random.default_rng(seed + 1000))

    everything, same = run(by_all, most), run(by_measure, most)
    low, high, smaller = 1, most, same
    while low < high:
        units = (low + high) // 2
        tried = run(by_measure, units)
        if tried.finish_s + took_s <= everything.finish_s:
            high, smaller = units, tried
        else:
            low = units + 1
    # Where not even all units would do it is counted as it is: more unit-hours, or a later end.
    used = high * (smaller.finish_s + took_s)
    thresholds = {
        name: (threshold.units if (threshold := threshold_in(known_type.known, known_type.evidence)) else None)
        for name, known_type in types.items()
    }
    return Saved(1 - used / (most * everything.finish_s), high, everything, same, smaller, unit_s, thresholds)


def show(title: str, savings: list[Saved], most: int, console: Console) -> None:
    """Print what a mix saves, a line a seed, and the thresholds of the first."""
    table = Table(
        "seed",
        "saved",
        "units",
        "all units, h",
        "thresholds, h",
        "same units: earlier",
        "held less",
        "probes",
        title=title,
    )
    for number, saving in enumerate(savings):
        held = (saving.measured.held_unit_s + saving.probes_unit_s) / saving.all_units.held_unit_s
        table.add_row(
            str(number),
            f"{saving.share:.1%}",
            f"{saving.units} of {most}",
            f"{saving.all_units.finish_s / 3600:.2f}",
            f"{saving.smaller.finish_s / 3600:.2f}",
            f"{1 - saving.measured.finish_s / saving.all_units.finish_s:.1%}",
            f"{1 - held:.1%}",
            f"{saving.probes_unit_s / saving.all_units.held_unit_s:.3%}",
        )
    console.print(table)
    thresholds = ", ".join(f"{name}: {units or 'none'}" for name, units in savings[0].thresholds.items())
    console.print(f"thresholds (seed 0): {thresholds}\n")


def measured_mix(repetitions: int) -> dict[str, Curve]:
    """Return curves of real programs, measured here; raise OSError where no control group can be made."""
    measured = scaling.measured(repetitions)
    means = {name: {units: fmean(times) for units, times in by_units.items()} for name, by_units in measured.items()}

    def curve(of: dict[int, float]) -> Curve:
        counts = sorted(of)
        return lambda units: float(np.interp(units, counts, [of[count] for count in counts])) / of[counts[0]]

    return {name: curve(of) for name, of in means.items()}


def show_measured(console: Console) -> None:
    """Measure real programs, and print what thresholds save on a mix of their curves; or why that cannot be."""
    try:
        mix = measured_mix(3)
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        console.print(f"curves of real programs are not measured here: {error}")
        return
    for name, curve in mix.items():
        console.print(f"{name}: " + ", ".join(f"{units}: {curve(units):.2f}" for units in scaling.COUNTS))
    savings = [saved(mix, scaling.COUNTS, seed) for seed in range(SEEDS)]
    show("curves measured here", savings, scaling.COUNTS[-1], console)


def measure(*, quick: bool = False) -> dict[str, float | None]:
    """Return what thresholds save on the mix; `quick` takes one seed and measures no program."""
    console = Console(width=120)
    savings = [saved(MIX, COUNTS, seed) for seed in range(1 if quick else SEEDS)]
    show(f"{TASKS} tasks of {len(MIX)} types on {UNITS} units", savings, UNITS, console)
    if not quick:
        show_measured(console)
    return {NAMES[0]: fmean(saving.share for saving in savings)}


def main(argv: list[str]) -> None:
    """Measure, print tables, and the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, no real programs")
    options = parser.parse_args(argv)
    print(json.dumps({name: value and round(value, 4) for name, value in measure(quick=options.quick).items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
