"""A main server joins its workers' job over gRPC, distributes to them, takes what they deliver, dies and returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

from dataplane.allreduce.errors import JobRefusedError
from dataplane.allreduce.main_server.server import MainServer
from dataplane.allreduce.membership import Membership
from dataplane.errors import AllReduceError
from tests.controller.network.aggregation.service.serving_jobs import BOUND_S, RunningService, run_service, vanish
from tests.waiting import wait_until

WEIGHTS = np.random.default_rng(1).normal(size=5000).astype(np.float32)


@pytest.fixture(scope="module")
def service() -> Iterator[RunningService]:
    with TemporaryDirectory(prefix="jobs") as name, run_service(Path(name)) as service:
        yield service


def start(service: RunningService, job: str, *hosts: str) -> tuple[MainServer, list[Membership]]:
    """Let a main server on h6 and workers form a job."""
    with ThreadPoolExecutor(1) as thread:
        serving = thread.submit(service.serve, "h6", len(hosts), job=job)
        workers = service.together(*hosts, job=job, server="h6")
        return serving.result(BOUND_S), workers


def distribute(server: MainServer, workers: Sequence[Membership], value: Any) -> list[bytes]:
    """Distribute a value; return what the workers get."""
    with ThreadPoolExecutor(8) as threads:
        sending = threads.submit(server.distribute, value)
        got = list(threads.map(Membership.receive, workers))
        sending.result(BOUND_S)
        return got


def deliver(server: MainServer, workers: Sequence[Membership], value: Any) -> bytes:
    """Deliver a value; return what the main server takes."""
    with ThreadPoolExecutor(8) as threads:
        taking = threads.submit(server.take)
        list(threads.map(Membership.deliver, workers, [value] * len(workers)))
        return taking.result(BOUND_S)


def sums(workers: Sequence[Membership]) -> list[float]:
    futures = [worker.reducer.all_reduce(np.ones(700, np.float32)) for worker in workers]
    return [float(future.result(BOUND_S)[-1]) for future in futures]


def test_values_go_to_all_workers_and_the_result_back(service: RunningService) -> None:
    server, workers = start(service, "both", "h1", "h2")
    assert distribute(server, workers, WEIGHTS) == [WEIGHTS.tobytes()] * 2
    assert sums(workers) == [2, 2]
    assert distribute(server, workers, b"0.1") == [b"0.1"] * 2
    assert deliver(server, workers, 2 * WEIGHTS) == (2 * WEIGHTS).tobytes()
    assert server.members == ("h1", "h2")


def test_a_job_goes_on_while_its_main_server_is_away(service: RunningService) -> None:
    server, workers = start(service, "away", "h1", "h2")
    port = server._membership.engine.local_address[1]
    server.close()
    wait_until(lambda: all(worker.main_server is None for worker in workers), "workers do not notice")
    with pytest.raises(AllReduceError, match="job away: its main server is not a member, or no longer"):
        workers[0].receive()
    assert sums(workers) == [2, 2]
    with pytest.raises(JobRefusedError, match=f"its main server is h6 at UDP port {port}"):
        service.serve("h6", 2, job="away")
    back = service.serve("h6", 2, job="away", port=port)
    wait_until(lambda: all(worker.main_server == "h6" for worker in workers), "workers do not notice")
    assert distribute(back, workers, WEIGHTS) == [WEIGHTS.tobytes()] * 2


def test_a_worker_that_dies_is_not_awaited_by_a_distribution(service: RunningService) -> None:
    server, workers = start(service, "death", "h1", "h2", "h3")
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(server.distribute, WEIGHTS)
        got = [worker.reducer.submit(worker.reducer.receive) for worker in workers[1:]]
        vanish(workers[0])
        assert [future.result(BOUND_S).tobytes() for future in got] == [WEIGHTS.tobytes()] * 2
        sending.result(BOUND_S)


def test_the_server_follows_its_job_to_another_place(service: RunningService) -> None:
    server, workers = start(service, "moving", "h1", "h2")
    with ThreadPoolExecutor(1) as threads:
        sending = threads.submit(server.distribute, WEIGHTS)  # it waits for the workers before, and after the move
        number = workers[0].number
        for listener in service.reconciler.listeners:
            assert service._loop is not None
            service._loop.call_soon_threadsafe(listener.should_move, number, "a better place")
        wait_until(lambda: all(worker.number != number for worker in workers), "it does not move")
        got = [worker.reducer.submit(worker.reducer.receive) for worker in workers]
        assert [future.result(BOUND_S).tobytes() for future in got] == [WEIGHTS.tobytes()] * 2
        sending.result(BOUND_S)


def test_main_servers_that_do_not_fit_are_refused(service: RunningService) -> None:
    workers = service.together("h3", "h4", job="none")
    for host, job, workers_there, problem in (
        ("h3", "none", 2, "h3 has a worker in it, and cannot be its main server as well"),
        ("h6", "none", 3, "h6 asks for workers 3, the others for 2"),
        ("h6", "none", 2, "it has started without a main server"),
        ("h9", "none", 2, "the topology has no host 'h9'"),
    ):
        with pytest.raises(JobRefusedError, match=problem):
            service.serve(host, workers_there, job=job)
    with pytest.raises(JobRefusedError, match=r"only 1 of 1 workers \(h5\) and no main server joined in time"):
        service.join("h5", 1, job="alone", server="h6", deadline_s=0.2).result(BOUND_S)
    assert sums(workers) == [2, 2]
