"""The order of our model's ratios compared with the RAPIDS qualification tool's speed-ups on an A100.

Of the file only operators that were measured count: *Exec rows whose score is neither the default of 3.0 nor one of the
constants for expressions (4, 1.5) and Python functions (1.2). Six are left. Ours: the model's ratio of each operator by
itself, on one machine, rows of 32 bytes, 100 MB of them a side: T / (1.1 d / bus + T / M). T is the CPU's time by the
built-in calibration (DuckDB, two cores); M is T over a roofline of the A100's data sheet (1,555 GB/s of memory) with
the bytes that each algorithm moves; the bus is 25 GB/s (PCIe 4.0 x16 without headers). A sort-merge join is a hash join
on the GPU, by which RAPIDS replaces it. Beside it stands T / (T / M) = M, with data that stays in the GPU's memory.
Levels are not compared: the file's are of Spark's own operators, on other processors.

The baseline is always the GPU: all scores are above 1, so it decides alike for each operator and orders none.

    .venv/bin/python -m tests.benchmarks.accelerating.rapids    # --data FOLDER
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from scipy.stats import kendalltau, spearmanr

from controller.acceleration.calibration import DEFAULT, Calibration, Figure, Rates
from controller.acceleration.model import Works, times
from controller.acceleration.values import Accelerator, Growth, Machines, Network, Work
from controller.cluster.estimates import Basis
from controller.cluster.operators import Operator
from dataplane.topology.values import DeviceKind

DATA: Final = Path(__file__).parents[4] / "shared" / "data"
FILE: Final = "operatorsScore-onprem-a100.csv"
CONSTANTS: Final = frozenset({3.0, 4.0, 1.5, 1.2})
A100: Final = 1555e9
BUS_GB_PER_S: Final = 25.0
ROWS: Final = 3_125_000
ROW_BYTES: Final = 32
BYTES: Final = ROWS * ROW_BYTES


@dataclass(frozen=True, slots=True)
class Compared:
    """CPU and GPU versions of a Spark operator, and the reason why we place it as we do."""

    on_cpu: tuple[Operator, ...]
    on_gpu: tuple[Operator, ...]
    why: str
    input_gb: float = BYTES / 1e9


def _of(kind: str, **sizes: int) -> Operator:
    return Operator.of(kind, kind, sizes)


def _join(right_rows: int) -> Operator:
    sides = {"left_rows": ROWS, "left_row_bytes": ROW_BYTES, "right_rows": right_rows, "right_row_bytes": ROW_BYTES}
    return _of("join", **sides, out_rows=ROWS, out_row_bytes=2 * ROW_BYTES)


FILTER: Final = _of("filter", rows=ROWS, row_bytes=ROW_BYTES, kept_rows=ROWS // 5)
AGGREGATE: Final = _of("aggregate", rows=ROWS, row_bytes=ROW_BYTES, groups=ROWS // 100, group_bytes=16)
SORT: Final = _of("sort", rows=ROWS, row_bytes=ROW_BYTES)
HASH: Final = _of("project", rows=ROWS, row_bytes=ROW_BYTES, expressions=1)
SCAN: Final = _of("table-scan", rows=ROWS, row_bytes=ROW_BYTES)

OPERATORS: Final[Mapping[str, Compared]] = {
    "FilterExec": Compared((FILTER,), (FILTER,), "little work a byte: the bus is all of it"),
    "HashAggregateExec": Compared((AGGREGATE,), (AGGREGATE,), "groups stay in caches: little more than a filter"),
    "SortExec": Compared((SORT,), (SORT,), "n log n comparisons against eight passes over the keys"),
    "BroadcastHashJoinExec": Compared(
        (_join(ROWS // 100),), (_join(ROWS // 100),), "one look-up a row in a small table"
    ),
    "SortMergeJoinExec": Compared(
        (SORT, SORT, SCAN, SCAN), (_join(ROWS),), "two sorts and a merge, a hash join in their place", 2 * BYTES / 1e9
    ),
    "ShuffleExchangeExec": Compared((HASH, SCAN), (HASH, SCAN), "a hash of each row, and all rows written anew"),
}


def with_a100(calibration: Calibration) -> Calibration:
    """Return a calibration with an A100 as its data sheet has it."""
    memory = Figure.exactly(A100, Basis.NOMINAL, "NVIDIA A100 40 GB, data sheet")
    gpu = Rates(DeviceKind.GPU, "A100", memory_bytes_per_s=memory)
    others = tuple(rate for rate in calibration.rates if rate.device is not DeviceKind.GPU)
    return replace(calibration, rates=(*others, gpu))


def ratios_of(calibration: Calibration, compared: Compared) -> tuple[float, float]:
    """Return the model's ratio of an operator by itself, and M: the ratio where data stays in the GPU's memory."""
    cpu_s = sum(calibration.time_of(operator).times[1] for operator in compared.on_cpu)
    gpu_s = sum(calibration.time_of(operator, DeviceKind.GPU).times[1] for operator in compared.on_gpu)
    work = Work("it", Growth.LINEAR, cpu_s / (10 * compared.input_gb), compared.input_gb)
    gpu = Accelerator(DeviceKind.GPU, cpu_s / gpu_s, bus_gb_per_s=BUS_GB_PER_S)
    alone, works = Machines(Network(math.inf), 1), Works.of([work])
    return float(times(works, alone).total_s[0] / times(works, alone, gpu).total_s[0]), cpu_s / gpu_s


def measured(path: Path) -> dict[str, float]:
    """Return the scores of operators that were measured, by name."""
    with path.open(encoding="utf-8", newline="") as file:
        scores = {row["CPUOperator"]: float(row["Score"]) for row in csv.DictReader(file)}
    return {name: score for name, score in scores.items() if name.endswith("Exec") and score not in CONSTANTS}


def show(scores: Mapping[str, float], ours: Sequence[float], without: Sequence[float], console: Console) -> None:
    """Print both orders, and why ours is as it is."""
    table = Table("operator", "RAPIDS", "place", "ours", "place", "M alone", "place", "what ours rests on")
    columns = [list(scores.values()), ours, without]
    for row, name in enumerate(scores):
        places = [str(1 + sum(value > column[row] for value in column)) for column in columns]
        figures = [f"{column[row]:.4g}" for column in columns]
        cells = [cell for pair in zip(figures, places, strict=True) for cell in pair]
        table.add_row(name, *cells, OPERATORS[name].why)
    console.print(table)


def measure(*, quick: bool = False, data: Path = DATA) -> dict[str, float | None]:
    """Return Spearman's rank correlation; None where the data is not there. There is nothing to make quicker."""
    del quick
    console = Console(width=130)
    if not (data / FILE).exists():
        console.print(f"{FILE}: not in {data}")
        return {"rank_correlation": None}
    scores = measured(data / FILE)
    if strange := scores.keys() ^ OPERATORS.keys():
        raise ValueError(f"{FILE}: not the operators that are compared: {', '.join(sorted(strange))}")
    calibration, theirs = with_a100(DEFAULT), list(scores.values())
    ours, without = zip(*(ratios_of(calibration, OPERATORS[name]) for name in scores), strict=True)
    show(scores, ours, without, console)
    correlation, p = spearmanr(theirs, ours)
    tau, stays = kendalltau(theirs, ours)[0], spearmanr(theirs, without)[0]
    console.print(
        f"Spearman {correlation:.2f} (p {p:.2f}, {len(ours)} operators), Kendall {tau:.2f}; by M alone {stays:.2f}"
    )
    console.print("always-GPU, the baseline: the same decision for each operator, as all scores are above 1; no order")
    return {"rank_correlation": float(correlation)}


def main(argv: list[str]) -> None:
    """Measure, print a table, and the figure as JSON in the last line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of published traces")
    figures = measure(data=parser.parse_args(argv).data)
    print(json.dumps({name: None if value is None else round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])
