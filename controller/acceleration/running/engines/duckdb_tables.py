"""DuckDB engine: the three parts of a statement, over in-memory tables; reads no files and loads no extensions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import pyarrow as pa

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.steps.naming import FINAL, elsewhere
from controller.acceleration.running.steps.stepping import Stepping
from controller.acceleration.running.values import PARTS, Split, StepRun


class DuckDbBackend:
    """Computes a split statement."""

    def __init__(self, split: Split, memory_bytes: int, threads: int, devices: Mapping[str, str] | None = None) -> None:
        """`devices` are those of steps that run outside DuckDB, by name."""
        self.split = split
        self._devices = dict(devices or {})
        self._runs: dict[str, tuple[StepRun, ...]] = {}
        self._connection = duckdb.connect(":memory:")
        for setting in (
            f"SET memory_limit = '{memory_bytes} B'",
            f"SET threads = {threads}",
            "SET temp_directory = ''",
            "SET python_enable_replacements = false",
            "SET enable_external_access = false",
            "SET lock_configuration = true",
        ):
            self._connection.execute(setting)

    def load(self, name: str, table: pa.Table) -> None:
        """Store a table, in DuckDB's own form."""
        quoted = '"' + name.replace('"', '""') + '"'
        self._connection.register("_arriving", table)
        try:
            self._execute(f"CREATE OR REPLACE TABLE {quoted} AS SELECT * FROM _arriving", name)
        finally:
            self._connection.unregister("_arriving")

    def partial(self) -> pa.Table:
        """Return the result on this shard."""
        return self._result(self.split.partial, "the shard's statement", "")

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge partial results."""
        return self._over(pa.concat_tables(parts), self.split.merge, "the merge")

    def finish(self, merged: pa.Table) -> pa.Table:
        """Return the statement's result."""
        return self._over(merged, self.split.final, "the root's statement", FINAL)

    def interrupt(self) -> None:
        """Cancel the computation."""
        self._connection.interrupt()

    def step_runs(self) -> tuple[StepRun, ...]:
        """Return where the steps ran that were planned for a device."""
        return tuple(run for runs in self._runs.values() for run in runs)

    def _over(self, parts: pa.Table, sql: str, what: str, prefix: str | None = None) -> pa.Table:
        if prefix is None or not elsewhere(self._devices, prefix):
            self._connection.register(PARTS, parts)
            try:
                return self._result(sql, what)
            finally:
                self._connection.unregister(PARTS)
        # Only scans of DuckDB's own tables appear in a serialized plan.
        self.load(PARTS, parts)
        try:
            return self._result(sql, what, prefix)
        finally:
            self._connection.execute(f"DROP TABLE {PARTS}")

    def _result(self, sql: str, what: str, prefix: str | None = None) -> pa.Table:
        try:
            if prefix is not None and elsewhere(self._devices, prefix):
                stepping = Stepping(self._connection, sql, self._devices, prefix)
                try:
                    return stepping.run()
                finally:
                    self._runs[prefix] = tuple(stepping.runs)
            return self._connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise RunError(f"{what}: {str(error).splitlines()[0]}") from None

    def _execute(self, sql: str, what: str) -> None:
        try:
            self._connection.execute(sql)
        except duckdb.Error as error:
            raise RunError(f"table {what}: {str(error).splitlines()[0]}") from None
