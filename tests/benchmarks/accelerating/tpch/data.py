"""TPC-H's tables as the generator makes them: tpchgen-cli, one of the development tools."""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb

from tests.benchmarks.accelerating.tpch.schema import tables

_TOOL: Final = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"


def generate(folder: Path, scale: float) -> None:
    """Write the tables of a scale into a folder, as TABLE.parquet."""
    subprocess.run([_TOOL, "parquet", "-s", str(scale), "--output-dir", folder], check=True, capture_output=True)


@contextmanager
def generated(folder: Path, scale: float) -> Iterator[duckdb.DuckDBPyConnection]:
    """Yield a connection with the tables of a scale, which are written into a folder first."""
    generate(folder, scale)
    with duckdb.connect() as connection:
        for name in tables(scale):
            connection.execute(f"create table {name} as from '{folder / name}.parquet'")
        yield connection
