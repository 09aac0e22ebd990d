"""Sessions with Spark: a driver in a process of its own, the tables that it reads, and statements."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pyarrow.ipc

from controller.acceleration.running.errors import LostWorkerError, RunError, StatementError
from controller.acceleration.running.spark import properties, software
from controller.acceleration.running.spark.standalone import Place, SparkCluster, started
from controller.acceleration.running.spark.tables import write_tables
from controller.acceleration.running.spark.translating import SparkStatement, spark_statement
from controller.acceleration.running.statements.literals import quoted
from dataplane.fabric.kernel import namespaces
from dataplane.given import read_given
from dataplane.local.deadline import LocalDeadline

MIB: Final = 1 << 20
MOST_RESULT_MB: Final = 1024
_CONNECT_S: Final = 10.0
_START_S: Final = 120.0
_STEP_S: Final = 0.1
_ROOT: Final = Path(__file__).parents[4]


@dataclass(frozen=True, slots=True)
class SparkRun:
    """Rows of a statement, in DuckDB's types and under its names, and the seconds that Spark took for them.

    `start_s` are those of the session's start, which are no part of `run_time_s`.
    """

    table: pa.Table
    run_time_s: float
    start_s: float


class SparkSession:
    """A driver of statements at a master (`spark://HOST:PORT` or `local[N]`), while the `with` block lasts.

    `settings` are those of the cluster (`SparkCluster.settings`, or a user's file), `check` raises the error of a
    cluster that has ended. `folder` is one that driver and workers see under the same name: tables are written there.
    Raise RunError, LostWorkerError if the cluster or the driver has ended, StatementError for an error of the statement
    on its data; after any but the last the session is unusable.
    """

    def __init__(
        self,
        master: str,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        place: Place | None = None,
        check: Callable[[], None] = lambda: None,
        deadline_s: float = 600.0,
        most_result_mb: int = MOST_RESULT_MB,
        memory_mb: int = 1024,
    ) -> None:
        self.start_s = 0.0
        self._master, self._folder, self._settings = master, folder, dict(settings or {})
        self._place, self._check = place or Place(), check
        self._deadline_s, self._most_mb, self._memory_mb = deadline_s, most_result_mb, memory_mb
        self._views: dict[str, str] = {}
        self._loads = self._results = 0
        self._stack = ExitStack()

    @classmethod
    def of(cls, cluster: SparkCluster, folder: Path | None = None, *, deadline_s: float = 600.0) -> Self:
        """Return a session with a cluster of this process."""
        return cls(
            cluster.master,
            folder,
            settings=cluster.settings,
            place=cluster.place,
            check=cluster.check,
            deadline_s=deadline_s,
        )

    def __enter__(self) -> Self:
        home, java = software.spark_home(), software.java_home()
        self._reach()
        with ExitStack() as stack:
            temporary = tempfile.TemporaryDirectory(prefix="millrace-spark-", dir=self._folder)
            self._held = Path(stack.enter_context(temporary))
            settings = properties.STATEMENTS | properties.QUIET | self._settings
            settings |= {
                "spark.driver.maxResultSize": f"{self._most_mb}m",
                "spark.driver.memory": f"{self._memory_mb}m",
                "spark.local.dir": str(self._held / "spill"),
                "spark.sql.warehouse.dir": str(self._held / "warehouse"),
            }
            properties.write(self._held / "conf", settings)
            environment = properties.environment(home, java, self._held / "conf", self._place.address)
            environment["PYTHONPATH"] = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
            argv = [sys.executable, "-m", "controller.acceleration.running.spark.process", self._master]
            self.log = self._held / "driver.log"
            with os.fdopen(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                self._process = started(self._place, argv, out, environment)
            stack.callback(self._end)
            self._answers = _Lines(self._process)
            begun_s = time.perf_counter()
            self._asked({}, LocalDeadline(_START_S, "the start of Spark's driver").has_passed, _START_S)
            self.start_s = time.perf_counter() - begun_s
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def pid(self) -> int:
        """The driver's process."""
        return self._process.pid

    def load(self, tables: Mapping[str, pa.Table | Path], *, is_held: bool = False) -> None:
        """Write tables, or Parquet or CSV files, to the folder, for statements; `is_held` keeps them in memory, too."""
        folder = Path(tempfile.mkdtemp(prefix="tables-", dir=self._held))
        for name, file in write_tables(tables, folder).items():
            self._loads += 1
            view = f"table{self._loads}"
            self._asked({"view": view, "path": str(file), "held": is_held}, *_until(self._deadline_s))
            self._views[name] = view

    def run(self, statement: SparkStatement, deadline_s: float | None = None) -> SparkRun:
        """Run a statement over loaded tables."""
        if missing := [name for name in statement.tables if name not in self._views]:
            raise RunError(f"no table {missing[0]!r}; known: {', '.join(sorted(self._views)) or 'none'}")
        self._results += 1
        out = self._held / f"result{self._results}.arrow"
        request = {
            "sql": statement.sql,
            "views": [self._views[name] for name in statement.tables],
            "out": str(out),
            "most_bytes": self._most_mb * MIB,
        }
        answer = self._asked(request, *_until(deadline_s or self._deadline_s))
        try:
            with pa.OSFile(str(out)) as file:
                rows = pa.ipc.open_file(file).read_all()
        finally:
            out.unlink(missing_ok=True)
        return SparkRun(_in_types_of_duckdb(rows, statement), answer["seconds"], self.start_s)

    def _reach(self) -> None:
        """Raise RunError unless a master accepts connections: Spark itself would try for a minute."""
        if not self._master.startswith("spark://"):
            if not self._master.startswith("local"):
                raise RunError(f"Spark master {self._master}: expected spark://HOST:PORT or local[N]")
            return
        try:
            parts = urlsplit(self._master.partition(",")[0])
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if host is None or port is None:
            raise RunError(f"Spark master {self._master}: expected spark://HOST:PORT or local[N]")

        def connect() -> None:
            socket.create_connection((host, port), _CONNECT_S).close()

        try:
            namespaces.call(self._place.namespace, connect) if self._place.namespace else connect()
        except OSError as error:
            raise RunError(f"Spark master {self._master}: {error.strerror or error}") from None

    def _asked(self, request: Mapping[str, Any], has_passed: Callable[[], bool], deadline_s: float) -> dict[str, Any]:
        """Return the driver's answer, or raise the error that it says."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise LostWorkerError("Spark's driver has ended") from None
        while (line := self._answers.next(_STEP_S)) is None:
            self._check()
            if has_passed():
                raise RunError(f"Spark: no result within {deadline_s:g} s")
        if not line:
            raise LostWorkerError(f"Spark's driver has ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "kind" in answer:
            raise self._error(answer["kind"], answer["problem"])
        return answer

    def _error(self, kind: str, problem: str) -> RunError:
        match kind:
            case "disk-full":
                return RunError(f"Spark: no space left in a folder of its driver ({self._held}) or of a worker")
            case "too-large":
                return RunError(f"Spark: the result is larger than {self._most_mb} MiB")
            case "memory":
                return RunError("Spark: its driver or a worker has too little memory for this statement")
            case "lost":
                return LostWorkerError(f"Spark: {problem}")
            case "statement":
                return StatementError(f"SQL: {problem}")
            case _:
                return RunError(f"Spark: {problem}")

    def _last_words(self) -> str:
        text = read_given(self.log).decode("utf-8", "replace")
        return next((line for line in reversed(text.splitlines()) if line.strip()), "no output")

    def _end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._answers.close()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()


def _until(deadline_s: float) -> tuple[Callable[[], bool], float]:
    """Return a deadline from now on, as a condition and in seconds."""
    ends_s = time.monotonic() + deadline_s
    return lambda: time.monotonic() > ends_s, deadline_s


class _Lines:
    """Lines of a process's standard output, read by a thread; '' when it has ended."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._stream = process.stdout
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._read, name="spark-driver", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while True:
            line = self._stream.readline().decode("utf-8", "replace")
            with self._changed:
                self._lines.append(line)
                self._changed.notify()
            if not line:
                return

    def next(self, timeout_s: float) -> str | None:
        """Return the next line, None if there is none in time."""
        with self._changed:
            if not self._lines:
                self._changed.wait(timeout_s)
            return self._lines.pop(0) if self._lines else None

    def close(self) -> None:
        """Wait for the reading thread and close the stream."""
        self._thread.join()
        self._stream.close()


def run_on_spark(
    sql: str,
    tables: Mapping[str, pa.Table | Path],
    master: str,
    folder: Path | None = None,
    *,
    settings: Mapping[str, str] | None = None,
    deadline_s: float = 600.0,
    most_result_mb: int = MOST_RESULT_MB,
) -> SparkRun:
    """Run one SELECT over tables, or over Parquet or CSV files, at a Spark master.

    `folder` is one that the caller and all workers see under the same name. Raise StatementError for a statement that
    is not run on Spark, and the errors of `SparkSession`.
    """
    statement = spark_statement(sql, {name: schema_of(name, table) for name, table in tables.items()})
    needed = {name: tables[name] for name in statement.tables}
    with SparkSession(
        master, folder, settings=settings, deadline_s=deadline_s, most_result_mb=most_result_mb
    ) as session:
        session.load(needed)
        return session.run(statement)


def schema_of(name: str, table: pa.Table | Path) -> pa.Schema:
    """Return the columns of a table, or of a Parquet or CSV file as DuckDB reads it; RunError names the table."""
    if not isinstance(table, Path):
        return table.schema
    try:
        with duckdb.connect(":memory:") as connection:
            connection.execute("SET arrow_lossless_conversion = true")
            found = connection.from_query("SELECT * FROM query_table($1) LIMIT 0", params=[str(table)])
            return found.to_arrow_table().schema
    except duckdb.Error as error:
        raise RunError(f"table {name}: {str(error).splitlines()[0]}") from None


def _in_types_of_duckdb(rows: pa.Table, statement: SparkStatement) -> pa.Table:
    """Return Spark's rows in the types, and under the names, of the statement in DuckDB."""
    columns = ", ".join(
        f"CAST(c{index} AS {kind}) AS {quoted(name)}" if kind != '"NULL"' else f"NULL AS {quoted(name)}"
        for index, (name, kind) in enumerate(statement.columns)
    )
    with duckdb.connect(":memory:", config={"python_enable_replacements": "false"}) as connection:
        connection.register("rows", rows)
        try:
            return connection.sql(f"SELECT {columns} FROM rows").to_arrow_table()
        except duckdb.Error as error:
            raise StatementError(f"SQL: {str(error).splitlines()[0]}") from None
