"""Quality and speed of the container scheduler's placement: each part is a module of tests/benchmarks/placing.

`packing`: the pods of the cluster trace openb on its nodes with GPUs until 130 % of these are requested; GPUs left
unallocated by our policy and by four others. `speed`: decisions per second on all of its nodes. `network`: delays
between peers on a loaded fat tree against scoring without the network, and bandwidth bounds kept, against an exact
solution. `serving`: pods bound, and tasks dispatched, per second by API server and scheduler as processes (modules of
tests/benchmarks/chaining). `starting`: the time added to a start between a script and its container, against podman
alone (root). A part is a function from `quick` and the data folder to figures; it reports missing prerequisites, and
its figures stay null.

    .venv/bin/python -m tests.benchmarks.placement     # --quick: 2 seeds; --only packing; --data FOLDER
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.benchmarks.chaining import pods, tasks
from tests.benchmarks.placing import network, packing, speed, starting

DATA: Final = Path(__file__).parents[2].parent / "shared" / "data"

Part = Callable[[bool, Path], Mapping[str, float]]
PARTS: Final[dict[str, Part]] = {
    "packing": packing.figures,
    "speed": speed.figures,
    "network": network.figures,
    "serving": lambda quick, _: {**pods.measure(quick=quick), **tasks.measure(quick=quick)},
    "starting": starting.figures,
}
SERVING: Final = (*pods.NAMES, "tasks_bound_per_s")
NAMES: Final = (*packing.NAMES, *speed.NAMES, *network.NAMES, *SERVING, *starting.NAMES)


def main(argv: list[str]) -> None:
    """Measure, print a table, and the figures as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer seeds and pods")
    parser.add_argument("--only", choices=tuple(PARTS), help="one part alone")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of published traces")
    arguments = parser.parse_args(argv)
    results: dict[str, float] = {}
    for name, run in PARTS.items():
        if arguments.only in {None, name}:
            results |= run(arguments.quick, arguments.data)
    figures = {name: round(results[name], 5) if name in results else None for name in NAMES}
    table = Table("figure", "value")
    for name, value in figures.items():
        table.add_row(name, "" if value is None else f"{value:,.3f}")
    Console(width=100).print(table)
    print(json.dumps(figures))


if __name__ == "__main__":
    main(sys.argv[1:])
