"""Orders of writes, answers and cell changes, too many for the test suite: tests/soak/store_orders.py.

Prints how many worlds each case can reach, and exits 1 if a switch answers wrongly, or never.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

from tests.dataplane.store.exploring import Case, Explorer

MOST_WORLDS = 1_000_000
CASES = (
    Case(writes=1, insertions=1, switches=2),
    Case(writes=1, insertions=1, switches=2, full_acks=True),
    Case(writes=3, insertions=2),
)


def main() -> int:
    """Explore all cases; return the exit status."""
    wrong = 0
    for case in CASES:
        explorer = Explorer(case)
        worlds = explorer.explore(MOST_WORLDS)
        wrong += len(explorer.problems)
        print(
            f"{case}: {worlds} worlds, {explorer.hits} answers of switches, {len(explorer.problems)} wrong", flush=True
        )
        for problem in explorer.problems[:3]:
            print(f"  {problem}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
