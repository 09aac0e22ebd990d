"""Statements that the split refuses, on Apache Spark: for `millrace accel run --spark`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import pyarrow as pa

    from controller.acceleration.running.errors import StatementError
    from controller.acceleration.running.spark.sessions import SparkRun

LOCAL = "here"
"""A cluster that the command starts and ends itself."""


@dataclass(frozen=True, slots=True)
class Spark:
    """Place of statements that are not split: '' for none, LOCAL, or a master with the file of its settings."""

    master: str
    settings: Path | None
    processes: int | None

    def check(self) -> None:
        """Raise typer.BadParameter for options that exclude or require others."""
        if self.settings is not None and self.master in {"", LOCAL}:
            raise typer.BadParameter("--spark-settings requires --spark-master")
        if self.master == LOCAL and self.processes is None:
            raise typer.BadParameter("--spark requires --processes; --spark-master uses a cluster that runs elsewhere")

    def run(self, sql: str, tables: dict[str, pa.Table], reason: StatementError, deadline_s: float) -> SparkRun:
        """Run a statement that is not split, for this reason, which an error repeats if Spark does not run it."""
        from controller.acceleration.running.spark.choosing import spark_instead  # noqa: PLC0415
        from controller.acceleration.running.spark.properties import read  # noqa: PLC0415
        from controller.acceleration.running.spark.sessions import SparkSession  # noqa: PLC0415
        from controller.acceleration.running.spark.standalone import SparkCluster  # noqa: PLC0415

        statement = spark_instead(sql, tables, reason)
        needed = {name: tables[name] for name in statement.tables}
        if self.master == LOCAL:
            assert self.processes is not None
            with SparkCluster(self.processes) as cluster, SparkSession.of(cluster, deadline_s=deadline_s) as session:
                session.load(needed)
                return session.run(statement)
        settings = read(self.settings) if self.settings is not None else {}
        with SparkSession(self.master, settings=settings, deadline_s=deadline_s) as session:
            session.load(needed)
            return session.run(statement)
