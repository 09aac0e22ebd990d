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

import argparse
import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Final

from dataplane.errors import MillraceError

PARTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "plans": ("planning", ("plan_ms", "plan_ms_data", "plan_ms_declared")),
    "spotri": ("spotri", ("regret", "regret_always_gpu")),
    "rapids": ("rapids", ("rank_correlation",)),
    "ratios": ("ratios", ("ratio_mean_error",)),
}
"""Modules of accelerating/ with the figures that each gives."""
NAMES: Final = tuple(name for _, names in PARTS.values() for name in names)


def figures_of(part: str, *, quick: bool) -> dict[str, float | None]:
    """Return a part's figures; None for each where the part is not here."""
    module, names = PARTS[part]
    where = f"tests.benchmarks.accelerating.{module}"
    if importlib.util.find_spec(where) is None:
        sys.stderr.write(f"{part}: {where} is not here\n")
        return dict.fromkeys(names)
    if part == "ratios":
        if os.geteuid() != 0:
            sys.stderr.write(f"{part}: network namespaces need root\n")
            return dict.fromkeys(names)
        found: Mapping[str, float | None] = importlib.import_module(where).measure()
    else:
        found = importlib.import_module(where).measure(quick=quick)
    return {name: found.get(name) for name in names}


def main() -> int:
    """Measure, print tables for people and one line of JSON; return 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, smaller runs: to see that it works")
    parser.add_argument("--only", action="append", choices=list(PARTS), help="some parts")
    parser.add_argument("--skip", action="append", default=[], choices=list(PARTS))
    options = parser.parse_args()
    began_s, failed = time.monotonic(), False
    result: dict[str, float | None] = dict.fromkeys(NAMES)
    for part in options.only or PARTS:
        if part in options.skip:
            continue
        try:
            result |= figures_of(part, quick=options.quick)
        except MillraceError as error:
            failed = True
            sys.stderr.write(f"acceleration.py: {part}: {error}\n")
    sys.stdout.write(f"took {time.monotonic() - began_s:.0f} s\n{json.dumps(result)}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
