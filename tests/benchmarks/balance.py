"""Balancing transfer and compute load: what feedback control is worth, against the open loop and the optimum.

- gain_over_open_loop, share_of_optimum, energy_ratio, changes_per_minute: PID with fuzzy gains over a synthetic family
  of GPU duty cycles on two synthetic clusters, in virtual time (balancing/comparison.py): work over the open loop's,
  less 1, work over the optimum's, energy per unit of work over the open loop's, and changes of levers a minute of
  the device that has most of them in steady load. Idle units are freed up to a load of 0.8. Also shown: open loop,
  a threshold autoscaler, each form without that, by pattern.
- settle_s: until the error of one unit stays within 0.1 after its load jumps from light to full, PID with fuzzy gains
  (balancing/responses.py); also shown are all forms on step, ramp, burst and noisy loads.
- real_loop_error: a real worker under a CPU quota, fed over a real link whose rate is halved and restored: the mean |e|
  once it has settled (balancing/real.py); needs root.

A part whose module or data is not here, and one that is skipped, has null.

    sudo .venv/bin/python -m tests.benchmarks.balance     # --quick; --only family; --skip real
"""

from __future__ import annotations

import sys
from typing import Final

from tests.benchmarks.parts import Part, run

PARTS: Final = {
    "family": Part(
        "balancing.comparison", ("gain_over_open_loop", "share_of_optimum", "energy_ratio", "changes_per_minute")
    ),
    "responses": Part("balancing.responses", ("settle_s",)),
    "real": Part("balancing.real", ("real_loop_error",), root="shaped links between network namespaces"),
}

if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, "one seed, shorter runs: to see that it works"))
