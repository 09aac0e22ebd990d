"""Files that declare tables by rows and bytes, YAML, TOML or JSON: strict, each error with file, line and key."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from controller.cluster.operators.sql.tables import SqlTable
from dataplane.config import Document, Strict, load_document
from dataplane.topology.units import parse_data_bytes


class TableSpec(Strict, frozen=True):
    """Rows and bytes of a table (a number, or text such as `2.4 GB`); column types if all are given."""

    rows: int
    bytes: int | str
    columns: dict[str, str] = msgspec.field(default_factory=dict)


class TablesSpec(Strict, frozen=True):
    """A file; `millrace` is the format version."""

    millrace: Literal[1]
    tables: dict[str, TableSpec]


def load_tables(path: Path) -> dict[str, SqlTable]:
    """Return the tables that a file declares; raise ConfigError with file, line and key."""
    document = load_document(path, TablesSpec)
    for name, spec in document.value.tables.items():
        if spec.rows < 1:
            problem = f"a table of {spec.rows} rows: without rows there are no statistics to plan by"
            raise document.error(problem, f"tables.{name}.rows")
    return {
        name: SqlTable(spec.rows, _bytes(document, name, spec.bytes), spec.columns)
        for name, spec in document.value.tables.items()
    }


def _bytes(document: Document[TablesSpec], name: str, value: int | str) -> int:
    at = f"tables.{name}.bytes"
    try:
        nbytes = parse_data_bytes(value) if isinstance(value, str) else value
    except ValueError as error:
        raise document.error(str(error), at) from None
    if nbytes < 0:
        raise document.error(f"{nbytes} bytes", at)
    return nbytes
