"""Value of a learning scheduler on four inputs, against rules, a fully connected network and an oracle.

- For cloudphysics (cloudPhysicsIO, 100 times as fast), bursty (drawn by seeds), spotri (hetero_spotri) and lublin
  (lublin_256, exact estimates), three seeds each: NAME_best_heuristic_over_ours (mean response), NAME_oracle_share,
  NAME_transformer_over_dense, and, of cloudphysics and lublin, NAME_own_rule_over_ours: beside the rule of our own that
  agents decide beside (scheduling/comparison.py; what agents learn by is in scheduling/cases.py).
  transformer_over_dense is the geometric mean of the inputs that were measured.
- network_gain: which part of the mean response features of the network save where congestion moves
  (scheduling/congestion.py).
- decision_p50_us, decision_p99_us, p99_ratio_training, flat_p50_us: how long decisions take while training runs
  (scheduling/latency.py).
- env_decisions_per_s: stepping the environment alone (scheduling/stepping.py).

Above 1 ours is better. A part whose data is not here, and one that is skipped, has null.

    .venv/bin/python -m tests.benchmarks.learning     # --quick; --only bursty; --skip lublin
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Final

from tests.benchmarks.parts import Part, run

INPUTS: Final = ("cloudphysics", "bursty", "spotri", "lublin")
OWN_RULES: Final = ("cloudphysics", "lublin")
PARTS: Final = {
    name: Part(
        "scheduling.comparison",
        (
            f"{name}_best_heuristic_over_ours",
            f"{name}_oracle_share",
            f"{name}_transformer_over_dense",
            *([f"{name}_own_rule_over_ours"] if name in OWN_RULES else []),
        ),
        of=name,
    )
    for name in INPUTS
} | {
    "congestion": Part("scheduling.congestion", ("network_gain",)),
    "latency": Part("scheduling.latency", ("decision_p50_us", "decision_p99_us", "p99_ratio_training", "flat_p50_us")),
    "stepping": Part("scheduling.stepping", ("env_decisions_per_s",)),
}


def together(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return what all inputs that were measured say together."""
    ratios = [ratio for name in INPUTS if (ratio := figures[f"{name}_transformer_over_dense"])]
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
    return {"transformer_over_dense": mean}


if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, "one seed, few tasks: to see that it works", together))
