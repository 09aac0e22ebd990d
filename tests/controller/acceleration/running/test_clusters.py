"""Runs on real workers: local processes, on sockets that only their user can reach."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from controller.acceleration.running.channels import Channel, Limits, connect, listen
from controller.acceleration.running.clusters import Cluster
from controller.acceleration.running.errors import LostWorkerError, RunError
from controller.acceleration.running.operators import plan_of_operator, plan_of_statement
from controller.acceleration.running.serving import Worker
from controller.acceleration.running.starting import LocalWorkers
from controller.acceleration.running.values import Engine, Operator, OperatorKind
from tests.controller.acceleration.running.tables import numbers, of_one_duckdb, rows_of, small_tables

SQL = "SELECT place, sum(value) AS s, count(*) AS c FROM data JOIN places USING (place) GROUP BY place"
TABLES = small_tables()


@pytest.fixture(scope="module")
def workers() -> Iterator[LocalWorkers]:
    with LocalWorkers(4) as started:
        yield started


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, bytes]]:
    """Give the address and secret of a worker on a thread, with tight limits."""
    tmp_path.chmod(0o700)
    secret, stop = secrets.token_bytes(32), threading.Event()
    limits = Limits(most_table_bytes=1 << 16, most_held_bytes=1 << 17, silence_s=2.0, connections=4)
    with listen(f"unix:{tmp_path}/w", 4) as listening:
        arguments = (listening, stop, 60.0)
        thread = threading.Thread(target=Worker(secret, limits).serve, args=arguments)
        thread.start()
        yield f"unix:{tmp_path}/w", secret
        stop.set()
        thread.join()


@pytest.mark.parametrize(("count", "fan_in"), [(1, 2), (2, 2), (3, 2), (4, 2), (4, 3), (4, 10)])
def test_statement_over_a_reduction_tree_equals_one_duckdb(workers: LocalWorkers, count: int, fan_in: int) -> None:
    with Cluster(workers.addresses, workers.secret, plan_of_statement(SQL, TABLES, "data")) as cluster:
        cluster.load(TABLES, count)
        run = cluster.run(fan_in, count)
        result = cluster.result()
    assert rows_of(result, is_ordered=False) == rows_of(of_one_duckdb(SQL, TABLES), is_ordered=False)
    assert len(run.workers) == count
    assert run.workers[0].sent_bytes == 0
    assert all(worker.sent_bytes > 0 for worker in run.workers[1:])


def test_session_runs_jobs_in_turn_and_measures_a_trial(workers: LocalWorkers) -> None:
    tables = numbers(TABLES)
    operator = Operator(kind=OperatorKind.SORT, column="value", limit=10)
    with Cluster(workers.addresses[:2], workers.secret, plan_of_operator(operator, tables, Engine.NUMPY)) as cluster:
        cluster.load(tables)
        results = []
        for _ in range(3):
            cluster.run(2)
            results.append(cluster.result())
        trial = cluster.trial(2, at_least_s=0.0)
    assert results[0] == results[1] == results[2]
    assert trial.compute_s > 0
    assert trial.output_bytes == 10 * 3 * 8


def test_a_worker_that_dies_is_one_clear_line() -> None:
    plan = plan_of_statement(SQL, TABLES, "data")
    with LocalWorkers(3) as mortal, Cluster(mortal.addresses, mortal.secret, plan) as cluster:
        cluster.load(TABLES)
        os.kill(mortal.processes[2].pid, signal.SIGKILL)
        mortal.processes[2].wait()
        with pytest.raises(LostWorkerError) as caught:
            cluster.run(2)
    assert str(caught.value).startswith(f"worker {mortal.addresses[2]} has ended: ")
    assert "\n" not in str(caught.value)


def test_a_worker_is_free_for_others_once_a_session_ends(workers: LocalWorkers) -> None:
    plan = plan_of_statement(SQL, TABLES, "data")
    first = workers.addresses[:1]
    with (
        Cluster(first, workers.secret, plan),
        pytest.raises(RunError, match="it is busy with another client"),
        Cluster(first, workers.secret, plan),
    ):
        pass
    with Cluster(first, workers.secret, plan) as cluster:
        cluster.load(TABLES)


def test_default_addresses_are_those_that_only_the_owner_reaches(workers: LocalWorkers) -> None:
    path = Path(workers.addresses[0].removeprefix("unix:"))
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_folder_open_to_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    with pytest.raises(RunError, match="is open to others"):
        listen(f"unix:{tmp_path}/w", 1)


def test_client_without_the_secret_gets_nothing(served: tuple[str, bytes]) -> None:
    address, secret = served
    with pytest.raises(RunError, match="rejects our secret"):
        connect(address, secrets.token_bytes(32), Limits())
    connect(address, secret, Limits()).close()


def test_a_worker_proves_itself_too(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    with listen(f"unix:{tmp_path}/w", 1) as listening:

        def pretend() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b"n" * 16)
                connection.recv(48, socket.MSG_WAITALL)
                connection.sendall(b"x" * 32)

        thread = threading.Thread(target=pretend)
        thread.start()
        with pytest.raises(RunError, match="does not know the secret"):
            connect(f"unix:{tmp_path}/w", secrets.token_bytes(32), Limits())
        thread.join()


def test_a_table_above_the_limit_is_refused_before_it_is_read(served: tuple[str, bytes]) -> None:
    address, secret = served
    plan = plan_of_statement("SELECT * FROM data", TABLES, "data")
    with Cluster((address,), secret, plan) as cluster, pytest.raises(RunError, match=f"worker {address}"):
        cluster.load(small_tables(20_000))


def _pair(secret: bytes) -> tuple[Channel, Channel, socket.socket, socket.socket]:
    first, other = socket.socketpair()
    channels: list[Channel] = []
    thread = threading.Thread(target=lambda: channels.append(Channel(other, secret, Limits(), is_listener=True)))
    thread.start()
    caller = Channel(first, secret, Limits(), is_listener=False)
    thread.join()
    return caller, channels[0], first, other


def test_changed_or_repeated_frame_is_refused() -> None:
    secret = secrets.token_bytes(32)
    with closing(socket.socket()) as _:
        caller, listener, ours, theirs = _pair(secret)
        with caller, listener:
            caller.send({"type": "one"})
            frame = theirs.recv(1 << 16, socket.MSG_PEEK)
            assert listener.receive(1.0)[0] == {"type": "one"}
            ours.sendall(frame)  # again
            with pytest.raises(RunError, match="was altered on its way"):
                listener.receive(1.0)
        caller, listener, ours, theirs = _pair(secret)
        with caller, listener:
            ours.sendall(frame[:-2] + b" }")
            with pytest.raises(RunError, match="was altered on its way"):
                listener.receive(1.0)
