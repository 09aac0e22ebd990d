"""CPU or GPU before running: how long explaining takes, and how right its decisions are.

- plan_ms: TPC-H's 22 statements at scale 0.1 and 1 explained; the slowest statement (accelerating/planning.py), also
  apart for generated data (plan_ms_data) and for tables that are only declared (plan_ms_declared).
- regret, regret_always_gpu: 630 tasks with both times, decided from noisy history, against each task's best
  (accelerating/spotri.py).
- rank_correlation: operators that were measured on an A100, in the order of their speed-ups (accelerating/rapids.py).
- ratio_mean_error: predicted against measured ratios of real runs, in network namespaces (accelerating/ratios.py).

A part whose module or data is not here, and one that is skipped, has null.

    sudo .venv/bin/python -m tests.benchmarks.acceleration     # --quick; --only plans; --skip ratios
"""

from __future__ import annotations

import sys
from typing import Final

from tests.benchmarks.parts import Part, run

PARTS: Final = {
    "plans": Part("accelerating.planning", ("plan_ms", "plan_ms_data", "plan_ms_declared")),
    "spotri": Part("accelerating.spotri", ("regret", "regret_always_gpu")),
    "rapids": Part("accelerating.rapids", ("rank_correlation",)),
    "ratios": Part("accelerating.ratios", ("ratio_mean_error",), root="network namespaces"),
}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, "fewer repeats, smaller runs: to see that it works"))
