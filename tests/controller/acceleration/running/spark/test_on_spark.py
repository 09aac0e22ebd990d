"""Real Spark: rows of DuckDB, processes that die, full disks, secrets, and nothing that is left behind."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from controller.acceleration.running.errors import LostWorkerError, RunError, StatementError
from controller.acceleration.running.spark.sessions import SparkSession, run_on_spark
from controller.acceleration.running.spark.standalone import Place, SparkCluster
from controller.acceleration.running.spark.translating import spark_statement
from dataplane.fabric.kernel import namespaces
from tests.controller.acceleration.running.spark.environment import with_spark
from tests.controller.acceleration.running.spark.generated import compared_on_spark
from tests.examples import examples
from tests.waiting import wait_until

MEMORY_MB = 600
ROWS = {"t": pa.table({"a": list(range(1000)), "b": [index % 7 for index in range(1000)]})}
LONG = "SELECT count(*), median(x.a * y.a + z.a) FROM t x, t y, t z"
"""Takes minutes: a thousand million rows."""


@pytest.fixture(scope="module", autouse=True)
def _spark() -> Iterator[None]:
    with with_spark():
        yield


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkCluster]:
    """Return a cluster of three workers that no test ends."""
    with SparkCluster(3, memory_mb=MEMORY_MB) as running:
        yield running


def processes_of(group: int) -> list[int]:
    """Return the processes of a process group."""
    pids = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            pids.append(int(folder.name))
    return pids


def executors_of(cluster: SparkCluster) -> list[int]:
    """Return the processes of executors."""
    pids = [pid for daemon in cluster.daemons for pid in processes_of(daemon.process.pid)]
    return [pid for pid in pids if b"ExecutorBackend" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@contextmanager
def in_the_middle(session: SparkSession, sql: str, outcomes: list[object]) -> Iterator[None]:
    """Run a statement beside the block; its result or error is added to `outcomes`."""

    def run() -> None:
        try:
            outcomes.append(session.run(spark_statement(sql, ROWS)).table.to_pylist())
        except RunError as error:
            outcomes.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()


def test_random_statements_equal_duckdb() -> None:
    with SparkSession("local[2]", settings={"spark.sql.shuffle.partitions": "2"}) as session:
        counts = compared_on_spark(session, seed=random.Random(5).randrange(1 << 20), statements=examples(100))
    assert counts["different"] == 0
    assert counts["same"] > 3 * counts["error"]


def test_rows_over_three_workers(cluster: SparkCluster) -> None:
    sql = 'SELECT b, median(a) AS m, sum(a) AS "Sum" FROM t GROUP BY ROLLUP (b) ORDER BY b NULLS LAST'
    with SparkSession.of(cluster) as session:
        session.load(ROWS)
        ran = session.run(spark_statement(sql, ROWS))
        assert len(executors_of(cluster)) == 3
    rows = ran.table.to_pylist()
    assert ran.table.schema.names == ["b", "m", "Sum"]
    assert (rows[0]["b"], rows[0]["m"], len(rows), int(rows[-1]["Sum"])) == (0, 497.0, 8, 499500)
    assert ran.run_time_s > 0
    assert ran.start_s > 0


def test_one_function_runs_a_statement(tmp_path: Path) -> None:
    ran = run_on_spark("SELECT median(a) AS m FROM t", ROWS, "local[1]", tmp_path)
    assert ran.table.to_pylist() == [{"m": 499.5}]
    assert list(tmp_path.iterdir()) == []


def test_an_executor_that_dies_is_replaced_or_named() -> None:
    sql = "SELECT count(*) AS n FROM t x, t y WHERE (x.a * 31 + y.a) % 97 = 0"
    outcomes: list[object] = []
    with SparkCluster(2, memory_mb=MEMORY_MB) as cluster, SparkSession.of(cluster) as session:
        session.load(ROWS)
        expected = session.run(spark_statement(sql, ROWS)).table.to_pylist()
        with in_the_middle(session, sql, outcomes):
            os.kill(executors_of(cluster)[0], signal.SIGKILL)
    (outcome,) = outcomes
    assert outcome == expected or isinstance(outcome, LostWorkerError)


def test_workers_that_all_die_are_one_line() -> None:
    outcomes: list[object] = []
    with SparkCluster(2, memory_mb=MEMORY_MB) as cluster, SparkSession.of(cluster) as session:
        session.load(ROWS)
        with in_the_middle(session, LONG, outcomes):
            for daemon in cluster.daemons[1:]:
                os.killpg(daemon.process.pid, signal.SIGKILL)
    (error,) = outcomes
    assert isinstance(error, LostWorkerError)
    assert "\n" not in str(error)


def test_a_driver_that_dies_is_one_line() -> None:
    outcomes: list[object] = []
    with SparkSession("local[1]") as session:
        session.load(ROWS)
        with in_the_middle(session, LONG, outcomes):
            os.kill(session.pid, signal.SIGKILL)
        with pytest.raises(LostWorkerError, match="driver has ended"):
            session.run(spark_statement("SELECT a FROM t", ROWS))
    (error,) = outcomes
    assert isinstance(error, LostWorkerError)
    assert "\n" not in str(error)


def test_nothing_is_left_at_exit() -> None:
    with SparkCluster(2, memory_mb=MEMORY_MB) as cluster, SparkSession.of(cluster) as session:
        session.load(ROWS)
        session.run(spark_statement("SELECT median(a) FROM t", ROWS))
        groups = [session.pid, *(daemon.process.pid for daemon in cluster.daemons)]
        folders = [session.log.parent, cluster.daemons[0].log.parent]
        assert folders[1].stat().st_mode & 0o777 == 0o700
        # One that has died leaves executors to be ended as well.
        worker = next(pid for pid in processes_of(groups[2]) if b"deploy.worker.Worker" in _command(pid))
        os.kill(worker, signal.SIGKILL)
    wait_until(lambda: not any(processes_of(group) for group in groups))
    assert not any(folder.exists() for folder in folders)


def test_the_deadline_ends_a_run() -> None:
    with SparkSession("local[1]") as session:
        session.load(ROWS)
        with pytest.raises(RunError, match=r"^Spark: no result within 3 s$"):
            session.run(spark_statement(LONG, ROWS), deadline_s=3)


def test_a_result_that_is_too_large_is_one_line() -> None:
    with SparkSession("local[1]", most_result_mb=1) as session:
        session.load(ROWS)
        with pytest.raises(RunError, match=r"^Spark: the result is larger than 1 MiB$"):
            session.run(spark_statement("SELECT x.a, y.b FROM t x, t y", ROWS))
        assert session.run(spark_statement("SELECT max(a) FROM t", ROWS)).table.num_rows == 1


@pytest.mark.parametrize(
    ("sql", "line"),
    [
        ("SELECT a // (b - b) FROM t", "DIVIDE_BY_ZERO"),
        ("SELECT (SELECT a FROM t) FROM t", "More than one row"),
        ("SELECT a FROM t x WHERE (SELECT a FROM t WHERE t.b = x.b) IS NULL", "More than one row"),
        ("SELECT lower('ß' || a) FROM t", "lower() of text other than ASCII"),
        ("SELECT CAST(a * 1000000 AS SMALLINT) FROM t", "CAST_OVERFLOW"),
    ],
)
def test_an_error_on_the_data_is_one_line(sql: str, line: str) -> None:
    with SparkSession("local[1]") as session:
        session.load(ROWS)
        with pytest.raises(RunError, match=re.escape(line)) as caught:
            session.run(spark_statement(sql, ROWS))
    assert "\n" not in str(caught.value)


def test_another_secret_is_refused(cluster: SparkCluster) -> None:
    settings = cluster.settings | {"spark.authenticate.secret": "0" * 64}
    session = SparkSession(cluster.master, settings=settings)
    with pytest.raises(RunError) as caught, session:
        pytest.fail("it started")
    assert "\n" not in str(caught.value)


def test_a_master_that_is_away_is_one_line() -> None:
    session = SparkSession("spark://127.0.0.1:1")
    with pytest.raises(RunError, match=r"^Spark master spark://127.0.0.1:1: Connection refused$"), session:
        pytest.fail("it started")


def test_secrets_and_constants_are_nowhere(cluster: SparkCluster) -> None:
    secret = cluster.settings["spark.authenticate.secret"].encode()
    word = b"p4ssw0rd"
    table = {"t": pa.table({"s": ["a", "b"]})}
    with SparkSession.of(cluster) as session:
        session.load(table)
        session.run(spark_statement("SELECT count(*) FROM t WHERE s <> 'p4ssw0rd' GROUP BY ROLLUP (s)", table))
        groups = [session.pid, *(daemon.process.pid for daemon in cluster.daemons)]
        commands = [_command(pid) for group in groups for pid in processes_of(group)]
        folder = cluster.daemons[0].log.parent
        logs = [session.log, *folder.rglob("*.log"), *folder.rglob("stderr"), *folder.rglob("stdout")]
        texts = [log.read_bytes() for log in logs]
    assert len(commands) > 8
    assert len(texts) > 8
    assert not any(secret in text for text in (*commands, *texts))
    assert not any(word in text for text in (*commands, *texts))


def test_web_pages_answer_nobody(cluster: SparkCluster) -> None:
    log = "".join(daemon.log.read_text() for daemon in cluster.daemons)
    pages = re.findall(r"started at (http://\S+)", log)
    assert len(pages) == 4, log[-500:]
    for page in pages:
        with pytest.raises(urllib.error.HTTPError, match=r"403|500"):
            urllib.request.urlopen(page, timeout=60)


@pytest.mark.root
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", tmp_path], check=True)
    try:
        rows = 200_000
        # Random, as what Spark writes between its stages is compressed.
        wide = {"t": pa.table({"a": list(range(rows)), "s": [os.urandom(64).hex() for _ in range(rows)]})}
        with SparkCluster(1, memory_mb=MEMORY_MB, scratch=tmp_path) as cluster, SparkSession.of(cluster) as session:
            session.load(wide)
            with pytest.raises(RunError, match="no space left") as caught:
                session.run(spark_statement("SELECT s, median(a) FROM t GROUP BY s ORDER BY s DESC LIMIT 3", wide))
            assert "\n" not in str(caught.value)
    finally:
        subprocess.run(["umount", "-l", tmp_path], check=True)


@pytest.mark.root
def test_workers_in_namespaces() -> None:
    name = f"spark-{os.getpid()}"
    namespaces.create(name)
    try:
        namespaces.call(name, lambda: subprocess.run(["ip", "link", "set", "lo", "up"], check=True))
        places = [Place(name), Place(name, "127.0.0.2"), Place(name, "127.0.0.3")]
        with SparkCluster(2, memory_mb=MEMORY_MB, places=places) as cluster:
            with SparkSession.of(cluster) as session:
                session.load(ROWS)
                assert session.run(spark_statement("SELECT median(a) AS m FROM t", ROWS)).table.to_pylist() == [
                    {"m": 499.5}
                ]
            inside = (Path("/run/netns") / name).stat().st_ino
            for daemon in cluster.daemons:
                assert Path(f"/proc/{daemon.process.pid}/ns/net").stat().st_ino == inside
    finally:
        namespaces.remove(name)


def test_a_table_that_is_not_loaded_is_named() -> None:
    with SparkSession("local[1]") as session, pytest.raises(RunError, match="no table 't'; known: none"):
        session.run(spark_statement("SELECT a FROM t", ROWS))


def test_a_statement_that_is_refused_starts_nothing() -> None:
    begun_s = time.monotonic()
    with pytest.raises(StatementError, match="aggregate mode"):
        run_on_spark("SELECT mode(a) FROM t", ROWS, "spark://127.0.0.1:1")
    assert time.monotonic() - begun_s < 60
