"""Value of a learning scheduler on four inputs, against rules, a fully connected network and an oracle.

- For cloudphysics (cloudPhysicsIO, 100 times as fast), bursty (drawn by seeds), spotri (hetero_spotri) and lublin
  (lublin_256, exact estimates), three seeds each: NAME_best_heuristic_over_ours (mean response), NAME_oracle_share,
  NAME_transformer_over_dense, NAME_preset_specification (mean response of the preset `specification`, which departs by
  nothing, over ours) and, of cloudphysics and lublin, NAME_own_rule_over_ours: beside the rule of our own that
  agents decide beside (scheduling/comparison.py; what agents learn by is in scheduling/cases.py).
- NAME_shift_over_best_rule, NAME_shift_unguarded: mean response of the best rule over ours on arrivals that our agent
  was not trained for, with a guard and without; the worse of twice the load and another family (scheduling/shift.py).
- transformer_over_dense, preset_specification and shift_over_best_rule: geometric means of the inputs that were
  measured.
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
from collections.abc import Mapping, Sequence
from typing import Final

from tests.benchmarks.parts import Part, run

INPUTS: Final = ("cloudphysics", "bursty", "spotri", "lublin")
TOGETHER: Final = ("transformer_over_dense", "preset_specification", "shift_over_best_rule")
OWN_RULES: Final = ("cloudphysics", "lublin")
PARTS: Final = (
    {
        name: Part(
            "scheduling.comparison",
            (
                f"{name}_best_heuristic_over_ours",
                f"{name}_oracle_share",
                f"{name}_transformer_over_dense",
                f"{name}_preset_specification",
                *([f"{name}_own_rule_over_ours"] if name in OWN_RULES else []),
            ),
            of=name,
        )
        for name in INPUTS
    }
    | {
        f"shift-{name}": Part("scheduling.shift", (f"{name}_shift_over_best_rule", f"{name}_shift_unguarded"), of=name)
        for name in INPUTS
    }
    | {
        "congestion": Part("scheduling.congestion", ("network_gain",)),
        "latency": Part(
            "scheduling.latency", ("decision_p50_us", "decision_p99_us", "p99_ratio_training", "flat_p50_us")
        ),
        "stepping": Part("scheduling.stepping", ("env_decisions_per_s",)),
    }
)


def together(figures: Mapping[str, float | None]) -> dict[str, float | None]:
    """Return what all inputs that were measured say together."""
    return {key: _mean([figures[f"{name}_{key}"] for name in INPUTS]) for key in TOGETHER}


def _mean(ratios: Sequence[float | None]) -> float | None:
    measured = [math.log(ratio) for ratio in ratios if ratio]
    return math.exp(sum(measured) / len(measured)) if measured else None


if __name__ == "__main__":
    sys.exit(run(__doc__, PARTS, "one seed, few tasks: to see that it works", together))
