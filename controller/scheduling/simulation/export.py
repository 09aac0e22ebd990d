"""Trace files: CSV, Parquet or JSON, by the file's name."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from controller.common.errors import SchedulerError
from controller.scheduling.simulation.trace import TaskRecord, Trace

SUFFIXES: Final = (".csv", ".parquet", ".json")
COLUMNS: Final = tuple(field.name for field in dataclasses.fields(TaskRecord))


def write_trace(trace: Trace, path: Path) -> None:
    """Write one row per unit; raise SchedulerError for an unknown file extension or a failed write."""
    check_name(path)
    try:
        if path.suffix == ".csv":
            _write_csv(trace, path)
        elif path.suffix == ".json":
            path.write_text(json.dumps(list(_rows(trace)), indent=1) + "\n")
        else:
            _write_parquet(trace, path)
    except OSError as error:
        raise SchedulerError(f"{path}: {error.strerror or error}") from None


def check_name(path: Path) -> None:
    """Raise SchedulerError for a name without a known format."""
    if path.suffix not in SUFFIXES:
        raise SchedulerError(f"{path}: the name of a trace file must end in {', '.join(SUFFIXES)}")


def _rows(trace: Trace) -> Iterator[dict[str, object]]:
    for record in trace.records():
        yield {name: getattr(record, name) for name in COLUMNS}


def _write_csv(trace: Trace, path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in _rows(trace):
            writer.writerow([" ".join(value) if isinstance(value, tuple) else value for value in row.values()])


def _write_parquet(trace: Trace, path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 - slow to import and rarely needed
    from pyarrow import parquet  # noqa: PLC0415

    schema = pa.schema(
        [
            ("name", pa.string()),
            ("state", pa.string()),
            *((name, pa.int64()) for name in COLUMNS if name.endswith("_ns")),
            ("kind", pa.string()),
            ("nodes", pa.list_(pa.string())),
            ("reason", pa.string()),
        ]
    )
    rows = [{**row, "state": str(row["state"]), "nodes": list(row["nodes"])} for row in _rows(trace)]  # type: ignore[call-overload]
    parquet.write_table(pa.Table.from_pylist(rows, schema), path)
