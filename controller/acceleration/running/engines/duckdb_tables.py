"""DuckDB engine: the three parts of a statement, over in-memory tables; reads no files and loads no extensions."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pyarrow as pa

from controller.acceleration.running.errors import RunError
from controller.acceleration.running.values import PARTS, Split


class DuckDbBackend:
    """Computes a split statement."""

    def __init__(self, split: Split, memory_bytes: int, threads: int) -> None:
        self.split = split
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
        return self._result(self.split.partial, "the shard's statement")

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge partial results."""
        return self._over(pa.concat_tables(parts), self.split.merge, "the merge")

    def finish(self, merged: pa.Table) -> pa.Table:
        """Return the statement's result."""
        return self._over(merged, self.split.final, "the root's statement")

    def interrupt(self) -> None:
        """Cancel the computation."""
        self._connection.interrupt()

    def _over(self, parts: pa.Table, sql: str, what: str) -> pa.Table:
        self._connection.register(PARTS, parts)
        try:
            return self._result(sql, what)
        finally:
            self._connection.unregister(PARTS)

    def _result(self, sql: str, what: str) -> pa.Table:
        try:
            return self._connection.sql(sql).to_arrow_table()
        except duckdb.Error as error:
            raise RunError(f"{what}: {str(error).splitlines()[0]}") from None

    def _execute(self, sql: str, what: str) -> None:
        try:
            self._connection.execute(sql)
        except duckdb.Error as error:
            raise RunError(f"table {what}: {str(error).splitlines()[0]}") from None
