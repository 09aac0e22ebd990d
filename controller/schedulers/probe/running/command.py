"""The runner's command line; its exit code says how the run ended."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from controller.schedulers.probe.files import load
from controller.schedulers.probe.running.results import Outcome, RunResult, encode
from controller.schedulers.probe.running.steady import AT_LEAST_S
from controller.schedulers.probe.running.supervising import Order, supervise
from controller.schedulers.probe.running.threads import pin
from controller.schedulers.probe.values import ProbeTask
from dataplane.errors import MillraceError

EXIT_CODES: Final = {
    Outcome.SUCCEEDED: 0,
    Outcome.REFUSED: 2,
    Outcome.CRASH: 10,
    Outcome.HANG: 11,
    Outcome.WRONG_VALUE: 12,
    Outcome.OUT_OF_MEMORY: 13,
}


def main(arguments: Sequence[str], started_s: float) -> int:
    """Run what the command line says; `started_s` is when the program started, by the monotonic clock."""
    options = _parser().parse_args(arguments)
    try:
        probe = load(options.probe)
        result = run(probe, _order(options), started_s)
        _write(options.out, encode(result))
    except MillraceError as error:
        sys.stderr.write(f"probe: {error}\n")
        return EXIT_CODES[Outcome.REFUSED]
    if result.problem:
        sys.stderr.write(f"probe {probe.name}: {result.outcome.value}: {result.problem}\n")
    return EXIT_CODES[result.outcome]


def run(probe: ProbeTask, order: Order, started_s: float) -> RunResult:
    """Run a probe task as ordered and return how that went; refused where there are fewer cores than that takes."""
    found = len(pin(order.cores))
    if found < order.cores:
        problem = f"{order.units} units are {order.cores} cores, but this process may use {found}"
        return RunResult(
            probe=probe.name, units=order.units, cores=order.cores, outcome=Outcome.REFUSED, problem=problem
        )
    return supervise(probe, order, started_s)


def _order(options: argparse.Namespace) -> Order:
    cores = options.units if options.cores is None else options.cores
    return Order(options.units, cores, options.repeat, options.deadline_s, options.at_least_s)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m controller.schedulers.probe.running", description=__doc__)
    parser.add_argument("probe", type=Path, metavar="PROBE.json")
    parser.add_argument("--units", type=_positive, default=1, help="how many units run it together")
    parser.add_argument("--cores", type=_positive, help="what these units have together; default: one each")
    parser.add_argument("--repeat", type=_positive, default=1, help="how often, after one run to warm up")
    parser.add_argument("--at-least-s", type=float, default=AT_LEAST_S, help="seconds that the kernels run, together")
    parser.add_argument("--deadline-s", type=float, default=300.0, help="seconds until it counts as hanging")
    parser.add_argument("--out", type=Path, default=Path("-"), metavar="RESULT.json")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if not 1 <= value <= 10_000:
        raise argparse.ArgumentTypeError(f"{value} is not between 1 and 10000")
    return value


def _write(path: Path, content: bytes) -> None:
    """Write the result in one step, so that no reader sees half of it; - is standard output."""
    if str(path) == "-":
        sys.stdout.buffer.write(content)
        return
    part = path.with_name(f".{path.name}.part")
    part.write_bytes(content)
    os.replace(part, path)  # noqa: PTH105 - of two paths
