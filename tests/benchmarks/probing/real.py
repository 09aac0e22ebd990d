"""Six real tasks, and their probes, at three centres: tests/benchmarks/probe.py says how; this runs some of the tasks.

sudo .venv/bin/python -m tests.benchmarks.probing.real     # --quick; --only NAME
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks.parts import IncompleteError
from tests.benchmarks.probing.measuring import Measuring, Outcome
from tests.benchmarks.probing.places import CENTRES, Places
from tests.benchmarks.probing.probes import RATIO, TARGETS, Target, built

NAMES: Final = ("mean_error", "overhead", "pairs_right", "fixed_benchmark_pairs_right")


def measured(targets: tuple[Target, ...], *, quick: bool) -> Outcome:
    """Trace, build, probe and run some targets; needs root."""
    steps = {target: target.quick_steps if quick else target.steps for target in targets}
    with tempfile.TemporaryDirectory(prefix="millrace-probe-") as folder:
        probes = {target: built(target, steps[target], Path(folder)) for target in targets}
        with Places(Path(folder)) as places:
            return Measuring(places, probes, steps).run()


def results_table(outcome: Outcome) -> Table:
    """Return a line for each target at each centre."""
    columns = ("task", "centre", "real, s", "predicted, s", "error", "basis", "matched", "probe, s", "overhead", "runs")
    table = Table(*columns, title=f"Predicted from probes of {RATIO}:1")
    for measured in outcome.measured:
        for centre, times in measured.real.items():
            estimate, share = measured.estimate(centre), measured.built.probe.share_matched
            low, seconds, high = estimate.times
            probe_s = measured.probe[centre].run_time_s
            table.add_row(
                measured.target.title,
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
    building_s = math.fsum(measured.built.took_s for measured in outcome.measured)
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


def measure(*, quick: bool = False, targets: tuple[Target, ...] = TARGETS) -> dict[str, float | None]:
    """Run, show what came of it, and return the figures; raise IncompleteError with them where tasks were left out."""
    outcome = measured(targets, quick=quick)
    Console(width=140).print(results_table(outcome), *summary_lines(outcome), sep="\n")
    values = (outcome.mean_error, outcome.overhead, outcome.pairs.share, outcome.fixed_pairs.share)
    figures = dict(zip(NAMES, values, strict=True))
    if outcome.left_out:
        raise IncompleteError(f"{len(outcome.left_out)} were left out", figures)
    return figures


def main() -> int:
    """Measure some tasks, and print their figures as one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the steps: figures of starts, not of tasks")
    parser.add_argument("--only", action="append", choices=[target.name for target in TARGETS], help="some tasks")
    options = parser.parse_args()
    chosen = tuple(target for target in TARGETS if not options.only or target.name in options.only)
    sys.stdout.write(json.dumps(measure(quick=options.quick, targets=chosen)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
