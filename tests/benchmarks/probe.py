"""What probes say of real tasks: predicted run times beside real ones, at three centres that are limited differently.

Six real tasks (tests/benchmarks/probing/targets.py) are traced over few steps, their probe tasks built at 1000:1. Three
centres (`millrace centre serve`, local engine), one after the other, run each task's probe once and then the task, on
one unit of one core; what a unit has of it, memory and link differ. A prediction is the estimate of
controller.probing.prediction from that one probe run; the error is its distance from the real run over that.
Overhead are the seconds that units were held by probes over those by tasks, starts of processes and all. Pairs of
centres are ranked by predictions and by a fixed benchmark (one dgemm, STREAM); what is a tie is said in ranking.py.
Once for each task, not for each centre, comes what tracing and building take; it is shown apart.

Forecasts of run times and links, and what efficiency thresholds save, are measured by probing/forecasts.py and
probing/thresholds.py.

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
    "thresholds": Part("probing.thresholds", ("unit_hours_saved",)),
}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, "a fifth of the steps: figures of starts, not of tasks"))
