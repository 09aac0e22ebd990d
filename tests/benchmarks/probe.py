"""Accuracy of probes for real tasks: predicted against real run times, at three centres with different limits.

Six real tasks (tests/benchmarks/probing/targets.py) are traced over a few steps, and their probe tasks built at 1000:1.
Three centres (`millrace centre serve`, local engine), one after the other, run each task's probe once and then the
task, on one unit of one core; a unit's share of the core, memory and link differ. A prediction is the estimate of
controller.probing.prediction from that one probe run; the error is its distance from the real run, relative to it.
Overhead is the time that probes held units over the time that tasks did, process starts included. Pairs of centres are
ranked by predictions and by a fixed benchmark (one dgemm, STREAM); ranking.py defines ties. Tracing and building happen
once per task, not per centre; their cost is shown separately.

probing/forecasts.py measures forecasts of run times and links, probing/waiting.py what waiting for a better network
costs and saves, and probing/thresholds.py the savings of efficiency thresholds.

    sudo .venv/bin/python -m tests.benchmarks.probe     # --quick: a fifth of the steps; --only real; --skip real
"""

from __future__ import annotations

import sys
from typing import Final

from tests.benchmarks.parts import Part, run

PARTS: Final = {
    "real": Part(
        "probing.real",
        ("mean_error", "overhead", "pairs_right", "fixed_benchmark_pairs_right"),
        root="network namespaces and control groups",
    ),
    "forecasts": Part("probing.forecasts", ("forecast_ratio_runs", "forecast_ratio_links")),
    "waiting": Part(
        "probing.waiting",
        ("waiting_over_hindsight", "starting_over_hindsight", "waiting_never_bad_s", "waiting_never_bad_gain"),
    ),
    "thresholds": Part("probing.thresholds", ("unit_hours_saved",)),
}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, "a fifth of the steps: figures of starts, not of tasks"))
