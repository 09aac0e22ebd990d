"""Recorded history of a unit: samples and lever positions, read from CSV."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

from controller.balance.errors import RuleError, SampleError
from controller.balance.values import Precision, Sample, UnitState
from dataplane.given import given_lines

COLUMNS: Final = ("time_s", "bus", "load", "precision", "frequency_mhz", "sub_units")
_NAMES: Final = {"time": "time_s", "holder": "unit", "units": "sub_units"}
"""Names of our columns in the service's history."""
_ANY_MHZ: Final = 1000.0
_MOST_UNITS: Final = 100_000
_MOST_MHZ: Final = 100_000.0
_MOST_W: Final = 1e6
MOST_ROWS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Record:
    """A sample, and the levers' positions when it was reported."""

    sample: Sample
    state: UnitState


def read_history(path: Path, unit: str = "") -> tuple[Record, ...]:
    """Return a unit's records, in order; raise RuleError with file and line for invalid ones.

    A CSV file with a header: `COLUMNS`, or the output of `millrace balance history --format csv`, with other names
    (`_NAMES`). A column `unit` names the unit of a line. Lines with neither bus nor load are reports of something else
    and skipped, as are the service's lines with only one of them, or of a holder without units. A precision or a clock
    that was never reported has never moved, nor have `concurrency` and `power_w` without a column.
    """
    try:
        return tuple(_records(path, csv.DictReader(given_lines(path, encoding="utf-8-sig")), unit))
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror or error}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise RuleError(f"{path}: invalid CSV: {error}") from error


def _records(path: Path, rows: csv.DictReader[str], unit: str) -> Iterator[Record]:
    named = {_NAMES.get(column, column): column for column in rows.fieldnames or ()}
    missing = [column for column in COLUMNS if column not in named]
    if missing:
        raise RuleError(f"{path}: no column {', '.join(missing)}")
    units: set[str] = set()
    for count, row in enumerate(rows):
        line = {column: row[name] or "" for column, name in named.items()}
        name = line.get("unit", "")
        if (unit and name != unit) or _is_of_else(line, is_service=named["time_s"] == "time"):
            continue
        units.add(name)
        if len(units) > 1:
            raise RuleError(f"{path}: has several units, {' and '.join(sorted(units))}: name one")
        if count >= MOST_ROWS:
            raise RuleError(f"{path}: has more than {MOST_ROWS} lines")
        yield _record(f"{path}:{rows.line_num}", line, name)
    if not units:
        raise RuleError(f"{path}: no lines of unit {unit}" if unit else f"{path}: no lines")


def _is_of_else(line: Mapping[str, str], *, is_service: bool) -> bool:
    if is_service and line["sub_units"] == "0":
        return True
    return not (line["bus"] and line["load"] if is_service else line["bus"] or line["load"])


def _record(where: str, line: Mapping[str, str], unit: str) -> Record:
    try:
        sample = Sample(_seconds(line["time_s"]), float(line["bus"]), float(line["load"]), unit)
        precision = Precision(line["precision"] or Precision.INT8)
        state = UnitState(
            precision,
            float(line["frequency_mhz"] or _ANY_MHZ),
            int(line["sub_units"]),
            int(line.get("concurrency") or 1),
            float(line.get("power_w") or 1),
        )
    except (ValueError, SampleError) as error:
        raise RuleError(f"{where}: {error}") from error
    if not 1 <= state.sub_units <= _MOST_UNITS or not 0 < state.frequency_mhz <= _MOST_MHZ:
        raise RuleError(f"{where}: not 1 to {_MOST_UNITS} sub-units at more than 0 and up to {_MOST_MHZ:g} MHz")
    if not 1 <= state.concurrency <= _MOST_UNITS or not 0 < state.power_w <= _MOST_W:
        raise RuleError(f"{where}: not a concurrency of 1 to {_MOST_UNITS} at more than 0 and up to {_MOST_W:g} W")
    return Record(sample, state)


def _seconds(text: str) -> float:
    """Return a time in seconds, or a date as seconds since 1970."""
    try:
        return float(text)
    except ValueError:
        return datetime.fromisoformat(text).timestamp()


def in_order(records: Sequence[Record]) -> Sequence[Record]:
    """Return records unchanged; raise RuleError if one is not later than the previous one."""
    for before, after in pairwise(records):
        if not after.sample.time_s > before.sample.time_s:
            raise RuleError(f"a history's sample at {after.sample.time_s:g} s is not later than the one before it")
    return records
