"""Every schedule of jobs that are too large for the test suite: python tests/soak/schedules.py [--most-worlds N].

Prints how many worlds each case can reach, and exits 1 if one is wrong or a dead end. Takes minutes.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from tests.dataplane.allreduce.exploring import Case, Explorer

CASES = (
    Case(racks=((0, 1),), window=2, items=4),
    Case(racks=((0, 1), (2,)), window=1, items=2),
    Case(racks=((0, 1, 2),), window=1, items=2, dies=2),
    Case(racks=((0,), (1, 2)), window=1, items=1, dies=2),
)


def main(argv: list[str]) -> int:
    """Explore all cases; return the exit status."""
    parser = argparse.ArgumentParser(description="Explore every schedule of small all-reduces.")
    parser.add_argument("--most-worlds", type=int, default=1_000_000)
    most = parser.parse_args(argv).most_worlds
    wrong = 0
    for case in CASES:
        explorer = Explorer(case)
        worlds = explorer.explore(most)
        wrong += len(explorer.problems)
        print(f"{case}: {worlds} worlds, {len(explorer.problems)} wrong", flush=True)
        for problem in explorer.problems[:3]:
            print(f"  {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
