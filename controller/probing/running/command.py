"""The runner's command line; its exit code says how the run ended."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import Final

from controller.probing.errors import ProbeError
from controller.probing.running.reading import read
from controller.probing.running.report import EXIT_CODES, MOST_REPETITIONS, Order, Outcome, Report, encode
from controller.probing.running.steady import AT_LEAST_S
from controller.probing.running.supervising import supervise
from controller.probing.values import ProbeTask
from dataplane.blas_threads import pin

DEADLINE_S: Final = 300.0
_MOST_CORES: Final = 4096
_MOST_S: Final = 86_400
_OPTIONS: Final = ("--units", "--cores", "--repeat", "--at-least-s", "--deadline-s", "--out")
_USAGE: Final = f"""\
usage: python -m controller.probing.running PROBE.json [OPTION VALUE]...
  --units N       how many units run it together (1)
  --cores N       cores that these units have together (one each)
  --repeat N      how often it runs, after each kernel has run once to warm up (1)
  --at-least-s S  seconds that the kernels run in all ({AT_LEAST_S:g})
  --deadline-s S  seconds after which it counts as hanging ({DEADLINE_S:g})
  --out FILE      where the result is left, as JSON (-, standard output)
exit codes: {", ".join(f"{code} {outcome.value}" for outcome, code in EXIT_CODES.items())}
"""


class _CommandLineError(ProbeError):
    """Contradictory words on the command line."""


def main(arguments: Sequence[str], started_s: float) -> int:
    """Run the command line's probe task; `started_s` is when the program started, by the monotonic clock."""
    if "--help" in arguments:
        sys.stdout.write(_USAGE)
        return 0
    try:
        path, out, order = _parsed(arguments)
        report = run(read(path), order, started_s)
        _write(out, encode(report))
    except ProbeError as error:
        usage = _USAGE if isinstance(error, _CommandLineError) else ""
        sys.stderr.write(f"probe: {error}\n{usage}")
        return EXIT_CODES[Outcome.REFUSED]
    if report.problem:
        sys.stderr.write(f"probe {report.probe}: {report.outcome.value}: {report.problem}\n")
    return EXIT_CODES[report.outcome]


def run(probe: ProbeTask, order: Order, started_s: float) -> Report:
    """Run a probe task as ordered and report its outcome; refuse it if there are too few cores."""
    cores = len(pin(order.cores))
    if cores < order.cores:
        problem = f"{order.units} units need {order.cores} cores, but this process may use {cores}"
        return Report(probe.name, order.units, order.cores, Outcome.REFUSED, problem)
    return supervise(probe, order, started_s)


def _parsed(arguments: Sequence[str]) -> tuple[str, str, Order]:
    """Return file, output and order of a command line; argparse takes longer to import than all of this."""
    paths, given = [], dict[str, str]()
    words = iter(arguments)
    for word in words:
        if not word.startswith("--"):
            paths.append(word)
            continue
        option, equals, value = word.partition("=")
        if option not in _OPTIONS or option in given:
            raise _CommandLineError(f"{option} {'is given twice' if option in given else 'is not an option'}")
        given[option] = value if equals else next(words, "")
    if len(paths) != 1:
        raise _CommandLineError(f"{len(paths)} files of probe tasks, expected one")
    units = _count("--units", given.get("--units", "1"), _MOST_CORES)
    order = Order(
        units,
        _count("--cores", given.get("--cores", str(units)), _MOST_CORES),
        _count("--repeat", given.get("--repeat", "1"), MOST_REPETITIONS),
        _seconds("--deadline-s", given.get("--deadline-s", str(DEADLINE_S))),
        _seconds("--at-least-s", given.get("--at-least-s", str(AT_LEAST_S))),
    )
    return paths[0], given.get("--out", "-"), order


def _count(option: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and 1 <= int(text) <= most):
        raise ProbeError(f"{option}: {text!r} is not a whole number between 1 and {most}")
    return int(text)


def _seconds(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= _MOST_S:
        raise ProbeError(f"{option}: {text!r} is not a number of seconds between 0 and {_MOST_S}")
    return value


def _write(path: str, content: bytes) -> None:
    """Write the result atomically, so that no reader sees half of it; - is standard output."""
    if path == "-":
        sys.stdout.buffer.write(content)
        return
    part = f"{path}.part"
    try:
        with open(part, "wb") as file:  # noqa: PTH123 - pathlib takes as long to import as json
            file.write(content)
        os.replace(part, path)  # noqa: PTH105 - as above
    except OSError as error:
        raise ProbeError(f"{path}: {error.strerror}") from error
