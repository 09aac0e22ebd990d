"""Balancing transfer and compute load: what feedback control is worth, against the open loop and the optimum.

- gain_over_open_loop, share_of_optimum, energy_ratio, changes_per_minute: PID with fuzzy gains over a synthetic family
  of GPU duty cycles on two synthetic clusters, in virtual time (balancing/comparison.py): work over the open loop's,
  less 1, work over the optimum's, energy per unit of work over the open loop's, and changes of levers a minute of
  the device that has most of them in steady load. Idle units are freed up to a load of 0.8. Shown beside it: open loop,
  a threshold autoscaler, each form without that, by pattern.
- settle_s: until the error of one unit stays within 0.1 after its load jumps from light to full, PID with fuzzy gains
  (balancing/responses.py); shown beside it are all forms on step, ramp, burst and noisy loads.
- real_loop_error: a real worker under a CPU quota, fed over a real link whose rate is halved and restored: the mean |e|
  once it has settled (balancing/real.py); needs root.

A part whose module or data is not here, and one that is skipped, has null.

    sudo .venv/bin/python -m tests.benchmarks.balance     # --quick; --only family; --skip real
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
    "family": ("comparison", ("gain_over_open_loop", "share_of_optimum", "energy_ratio", "changes_per_minute")),
    "responses": ("responses", ("settle_s",)),
    "real": ("real", ("real_loop_error",)),
}
"""Modules of balancing/ with the figures that each gives."""
NAMES: Final = tuple(name for _, names in PARTS.values() for name in names)


def figures_of(part: str, *, quick: bool) -> dict[str, float | None]:
    """Return a part's figures; None for each where the part is not here."""
    module, names = PARTS[part]
    where = f"tests.benchmarks.balancing.{module}"
    if importlib.util.find_spec(where) is None:
        sys.stderr.write(f"{part}: {where} is not here\n")
        return dict.fromkeys(names)
    if part == "real" and os.geteuid() != 0:
        sys.stderr.write(f"{part}: a shaped link between network namespaces needs root\n")
        return dict.fromkeys(names)
    found: Mapping[str, float | None] = importlib.import_module(where).measure(quick=quick)
    return {name: found.get(name) for name in names}


def main() -> int:
    """Measure, print tables for people and one line of JSON; return 1 if a part failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, shorter runs: to see that it works")
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
            sys.stderr.write(f"balance.py: {part}: {error}\n")
    sys.stdout.write(f"took {time.monotonic() - began_s:.0f} s\n{json.dumps(result)}\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
