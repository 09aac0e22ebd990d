"""What probes say of real tasks: predicted run times beside real ones, at three centres that are limited differently.

Six real tasks (tests/benchmarks/probing/targets.py) are traced over few steps, their probe tasks built at 1000:1. Three
centres (`millrace centre serve`, local engine), one after the other, run each task's probe once and then the task, on
one unit of one core; what a unit has of it, memory and link differ. A prediction is the estimate of
controller.schedulers.probe.prediction from that one probe run; the error is its distance from the real run over that.
Overhead are the seconds that units were held by probes over those by tasks, starts of processes and all. Pairs of
centres are ranked by predictions and by a fixed benchmark (one dgemm, STREAM); what is a tie is said in ranking.py.
Once for each task, not for each centre, comes what tracing and building take; it is shown apart.

Forecasts of run times and links, and what efficiency thresholds save, are measured by probing/forecasts.py and
probing/thresholds.py.

    sudo .venv/bin/python -m tests.benchmarks.probe     # --quick: a fifth of the steps; --only NAME; --skip real
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Final

from rich.console import Console
from rich.table import Table

from dataplane.errors import MillraceError
from tests.benchmarks.probing.measuring import Measuring, Outcome
from tests.benchmarks.probing.places import CENTRES, Places
from tests.benchmarks.probing.probes import RATIO, TARGETS, Target, built

REAL: Final = ("mean_error", "overhead", "pairs_right", "fixed_benchmark_pairs_right")
FORECASTS: Final = ("forecast_ratio_runs", "forecast_ratio_links")
THRESHOLDS: Final = ("unit_hours_saved",)
NAMES: Final = (*REAL, *FORECASTS, *THRESHOLDS)


def measure(targets: tuple[Target, ...], *, quick: bool) -> Outcome:
    """Trace, build, probe and run some targets; needs root."""
    steps = {target: target.quick_steps if quick else target.steps for target in targets}
    with tempfile.TemporaryDirectory(prefix="millrace-probe-") as folder:
        found = {target: built(target, steps[target], Path(folder)) for target in targets}
        with Places(Path(folder)) as places:
            return Measuring(places, found, steps).run()


def results_table(outcome: Outcome) -> Table:
    """Return a line for each target at each centre."""
    columns = ("task", "centre", "real, s", "predicted, s", "error", "basis", "matched", "probe, s", "overhead", "runs")
    table = Table(*columns, title=f"Predicted from probes of {RATIO}:1")
    for one in outcome.measured:
        for centre, times in one.real.items():
            estimate, share = one.estimate(centre), one.built.probe.share_matched
            low, seconds, high = estimate.times
            probe_s = one.probe[centre].run_time_s
            table.add_row(
                one.target.title,
                centre,
                f"{fmean(times):.2f}",
                f"{seconds:.2f} ({low:.1f} to {high:.1f})",
                f"{seconds / fmean(times) - 1:+.1%}",
                estimate.basis.value,
                "?" if share is None else f"{share:.1%}",
                f"{probe_s:.2f}",
                f"{probe_s / times[0]:.2%}",
                str(len(times)),
            )
    return table


def summary_lines(outcome: Outcome) -> list[str]:
    """Return what the table does not say."""
    pairs, fixed = outcome.pairs, outcome.fixed_pairs
    building_s = math.fsum(one.built.took_s for one in outcome.measured)
    ranked = (
        f"pairs of centres: {pairs.right} of {pairs.decided} right by probes, {fixed.right} of {fixed.decided} by the"
        f" fixed benchmark, {pairs.tied} ties left out"
    )
    return [
        *(f"{limits.name}: {limits.line}" for limits in CENTRES),
        ranked,
        *(f"left out: {line}" for line in outcome.left_out),
        f"by probes at the centres alone: mean error {outcome.mean_plain_error:.1%}",
        f"knowing the real time at {CENTRES[0].name}: mean error {outcome.mean_error_from_first:.1%} at the others",
        f"tracing and building: {building_s:.1f} s, once for all centres, not in the overhead",
    ]


def figures(outcome: Outcome) -> dict[str, float | None]:
    """Return the figures of real tasks."""
    found = (outcome.mean_error, outcome.overhead, outcome.pairs.share, outcome.fixed_pairs.share)
    return dict(zip(REAL, found, strict=True))


def other_figures(module: str, names: tuple[str, ...], *, quick: bool) -> Mapping[str, float | None]:
    """Return the figures of another part of the benchmark; None for each where that part, or its data, is not here."""
    if importlib.util.find_spec(module) is None:
        return dict.fromkeys(names)
    found: Mapping[str, float | None] = importlib.import_module(module).measure(quick=quick)
    return {name: found.get(name) for name in names}


def main() -> int:
    """Measure, print a table for people and one line of JSON; return 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps: figures of starts, not of tasks")
    parser.add_argument("--only", action="append", choices=[target.name for target in TARGETS], help="some tasks")
    parser.add_argument("--skip", action="append", default=[], choices=["real", "forecasts", "thresholds"])
    options = parser.parse_args()
    console, began_s = Console(width=140), time.monotonic()
    result: dict[str, float | None] = dict.fromkeys(NAMES)
    failed = False
    if "real" not in options.skip:
        try:
            chosen = tuple(target for target in TARGETS if not options.only or target.name in options.only)
            outcome = measure(chosen, quick=options.quick)
            console.print(results_table(outcome), *summary_lines(outcome), sep="\n")
            result |= figures(outcome)
            failed = bool(outcome.left_out)
        except MillraceError as error:
            failed = True
            sys.stderr.write(f"probe.py: {error}\n")
    for part, names in (("forecasts", FORECASTS), ("thresholds", THRESHOLDS)):
        if part not in options.skip:
            result |= other_figures(f"tests.benchmarks.probing.{part}", names, quick=options.quick)
    console.print(f"took {time.monotonic() - began_s:.0f} s")
    sys.stdout.write(json.dumps(result) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
