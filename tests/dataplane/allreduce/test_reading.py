"""The main server: it receives final results, and asks for missing ones."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from dataplane.allreduce.engine import Engine, EngineSettings
from dataplane.allreduce.errors import NoResultError
from tests.dataplane.allreduce.serving import JOB, MAIN_SERVER, Server, Weather

WINDOW = 64


@dataclass
class Job:
    """Two workers and a reader."""

    server: Server
    workers: list[Engine]
    reader: Engine

    def add_up(self, values: list[NDArray[np.float32]], *, final: bool) -> NDArray[np.float32]:
        """Run an all-reduce of the workers."""
        targets = [np.zeros_like(mine) for mine in values]
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(lambda e, v, t: e.all_reduce(v, t, final=final), self.workers, values, targets))
        assert np.array_equal(targets[0], targets[1], equal_nan=True)
        return targets[0]


@contextmanager
def _job(weather: Weather | None = None, patience_s: float = 9.0, window: int = WINDOW) -> Iterator[Job]:
    with Server(2, window, weather) as server, ExitStack() as stack:
        settings = EngineSettings("127.0.0.1", JOB, window, 2, 1, port=server.port, patience_s=patience_s)
        workers = [stack.enter_context(Engine(settings)) for _ in range(2)]
        reader = stack.enter_context(Engine(settings))
        server.children |= {worker.local_address: number for number, worker in enumerate(workers)}
        server.children[reader.local_address] = MAIN_SERVER
        yield Job(server, workers, reader)


def _values(size: int) -> list[NDArray[np.float32]]:
    numbers = np.random.default_rng(1)
    return list(numbers.normal(size=(2, size)).astype(np.float32))


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_final_results_come_to_who_listens(loss: float) -> None:
    with _job(Weather(loss=loss), window=256) as job, ThreadPoolExecutor(1) as thread:
        values = _values(100_000)
        values[0][5000] = np.inf
        target = np.zeros_like(values[0])
        reading = thread.submit(job.reader.read, target)
        sums = job.add_up(values, final=True)
        reading.result(20)
        assert np.array_equal(target, sums)
        assert job.reader.next_item == job.workers[0].next_item
        assert job.server.pulled < 300  # of 395: on a busy machine it asks for some still in flight
        assert job.server.switch.counts.get("mismatch", 0) == 0


@pytest.mark.parametrize("loss", [0.0, 0.05])
def test_who_comes_late_asks_for_what_the_switch_still_has(loss: float) -> None:
    with _job(Weather(loss=loss)) as job:
        values = _values(256 * (2 * WINDOW - 2))
        sums = job.add_up(values, final=False)
        target = np.zeros_like(sums)
        job.reader.read(target)
        assert np.array_equal(target, sums)
        assert job.server.pulled >= 2 * WINDOW - 1
        assert job.reader.statistics.received <= 2 * job.server.pulled


def test_integers_and_means_are_read_as_they_are_added_up() -> None:
    with _job() as job:
        sums = job.add_up(_values(3000), final=False)
        first = job.reader.next_item
        target = np.zeros_like(sums)
        job.reader.read(target, mean=True)
        assert np.allclose(target * 2, sums)
        assert job.reader.next_item > first


def test_result_the_switch_lacks_is_an_error_instead_of_a_hang() -> None:
    with _job(patience_s=0.3) as job:
        job.add_up(_values(256 * 3 * WINDOW), final=False)
        with pytest.raises(NoResultError, match=r"item 0 \(exponents of blocks 0 on\) got no result"):
            job.reader.read(np.zeros(256 * 3 * WINDOW, np.float32))
