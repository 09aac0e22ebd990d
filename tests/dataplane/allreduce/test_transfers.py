"""Transfers between a main server and its workers: by the reference aggregator, over sockets that lose packets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

from dataplane.allreduce.engine import Engine, EngineSettings
from dataplane.allreduce.transfers import Bytes, deliver, distribute, flattened, receive, segment_words, take
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import Aggregation, Kind
from tests.dataplane.allreduce.serving import JOB, MAIN_SERVER, Server, Weather

WINDOW, NONCE = 16, 5


@dataclass
class Job:
    """Two workers and their main server."""

    aggregator: Server
    workers: list[Engine]
    server: Engine

    def run(self, at_server: Callable[[], Any], *at_workers: Callable[[], Any]) -> tuple[Any, list[Any]]:
        """Run these at once; return what the server's and the workers' return."""
        with ThreadPoolExecutor(1 + len(at_workers)) as threads:
            mine = threads.submit(at_server)
            others = [threads.submit(each) for each in at_workers]
            return mine.result(), [each.result() for each in others]

    def distribute(self, data: Bytes) -> list[Bytes]:
        """Send bytes to all workers; return what they get."""
        _, got = self.run(partial(distribute, self.server, data), *(partial(receive, each) for each in self.workers))
        return got

    def next_items(self) -> set[int]:
        """Return where the engines continue."""
        return {engine.next_item for engine in (self.server, *self.workers)}


@contextmanager
def _job(weather: Weather | None = None, *, window: int = WINDOW, patience_s: float = 30.0) -> Iterator[Job]:
    with Server(2, window, weather, nonce=NONCE) as aggregator, ExitStack() as stack:
        settings = EngineSettings(
            "127.0.0.1", JOB, window, 2, 1, nonce=NONCE, contributors=2, port=aggregator.port, patience_s=patience_s
        )
        engines = [stack.enter_context(Engine(settings)) for _ in range(3)]
        aggregator.children |= {engine.local_address: number for number, engine in enumerate(engines[:2])}
        aggregator.children[engines[2].local_address] = MAIN_SERVER
        yield Job(aggregator, engines[:2], engines[2])


def _bytes(size: int) -> Bytes:
    return np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_workers_get_what_their_main_server_sends(loss: float) -> None:
    with _job(Weather(loss=loss)) as job:
        for size in (3 * 4 * segment_words(WINDOW) + 5, 1008, 1009, 0):
            data = _bytes(size)
            assert [got.tobytes() for got in job.distribute(data)] == [data.tobytes()] * 2
            sums = [np.zeros(3000, np.float32) for _ in job.workers]
            ones = np.ones(3000, np.float32)
            job.run(
                int, *(partial(engine.all_reduce, ones, mine) for engine, mine in zip(job.workers, sums, strict=True))
            )
            assert {mine.sum() for mine in sums} == {6000}


@pytest.mark.parametrize("window", [4, 64])
def test_each_packet_leaves_the_main_server_once(window: int) -> None:
    with _job(window=window) as job:
        sent: list[int] = []
        job.aggregator.before = lambda packet: sent.append(packet.item) if packet.kind is Kind.DISTRIBUTE else None
        data = _bytes(50 * 1024)
        job.distribute(data)
        assert len(set(sent)) >= 50  # blocks, and their exponents
        assert len(sent) <= len(set(sent)) + job.server.statistics.repeated
        assert len(job.next_items()) == 1


def test_segments_fit_a_window() -> None:
    for window in (4, 8, 64, 256, 512, 1024):
        blocks = segment_words(window) // 256
        assert blocks + -(-blocks // 256) + 1 <= window
        assert blocks >= window / 2


@pytest.mark.parametrize("loss", [0.0, 0.1])
@pytest.mark.parametrize("giver", [0, 1])
def test_main_server_gets_what_a_worker_delivers(giver: int, loss: float) -> None:
    """The first worker has nothing, as one that has joined since: the second one delivers."""
    with _job(Weather(loss=loss)) as job:
        data = _bytes(2 * 4 * segment_words(WINDOW))
        mine = [data if number >= giver else None for number in range(2)]
        workers = (
            partial(deliver, engine, mine[number], [number == each for each in range(2)])
            for number, engine in enumerate(job.workers)
        )
        got, _ = job.run(partial(take, job.server, 2), *workers)
        assert got.tobytes() == data.tobytes()
        assert len(job.next_items()) == 1


def test_nobody_has_what_is_to_be_delivered() -> None:
    with _job() as job, pytest.raises(AllReduceError, match="job 7: no worker is left that has what is to be delivere"):
        job.run(partial(take, job.server, 1), *(partial(deliver, engine, None, [True]) for engine in job.workers))


def test_a_restarted_aggregator_gets_everything_again() -> None:
    with _job() as job:
        seen = 0

        def forget(packet: Aggregation) -> None:
            nonlocal seen
            seen += packet.kind is Kind.DISTRIBUTE
            if seen in (5, 20):
                seen += 1
                job.aggregator.switch._cells.clear()
                job.aggregator.switch._newest.clear()

        job.aggregator.before = forget
        data = _bytes(40 * 1024)
        assert [got.tobytes() for got in job.distribute(data)] == [data.tobytes()] * 2


def test_server_and_workers_that_do_different_things_fail() -> None:
    for at_server, at_worker, message in (
        (lambda server: take(server, 1), receive, "the main server takes a value, and does not distribute one"),
        (lambda server: distribute(server, _bytes(9)), _deliver, "the main server distributes a value, and does not"),
    ):
        with _job(patience_s=0.3) as job, ThreadPoolExecutor(3) as threads:
            threads.submit(at_server, job.server)
            failed = [threads.submit(at_worker, each) for each in job.workers]
            assert all(message in str(each.exception()) for each in failed)


def _deliver(engine: Engine) -> None:
    deliver(engine, _bytes(9), [True])


def test_window_too_small_for_a_main_server() -> None:
    with _job(window=2) as job, pytest.raises(AllReduceError, match="window of 2 items is too small for a main server"):
        distribute(job.server, flattened(b"0.1"))
