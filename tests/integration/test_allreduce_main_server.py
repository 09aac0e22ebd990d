"""Two workers, one with a socket and one with its own rings, and a main server, on a real switch in namespaces."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from dataplane.allreduce.engine import Engine, EngineSettings, Rings
from dataplane.allreduce.transfers import distribute, receive
from dataplane.nic import PortKind
from tests.integration.allreduce_namespaces import AggregationFabric

pytestmark = pytest.mark.root

WINDOW = 64
Floats = NDArray[np.float32]


@dataclass
class Job:
    """Engines in the namespaces of their hosts."""

    workers: list[Engine]
    server: Engine

    def add_up(self, values: list[Floats], *, final: bool) -> list[Floats]:
        """Run an all-reduce of the workers."""
        targets = [np.zeros_like(mine) for mine in values]
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(partial(Engine.all_reduce, final=final), self.workers, values, targets))
        return targets


@pytest.fixture(scope="module")
def job() -> Iterator[Job]:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    with AggregationFabric(3, 50_000_000) as fabric, ExitStack() as stack:
        running = fabric.start_job(("h1", "h2"), window=WINDOW, server="h3")
        settings = {host: fabric.engine_settings(running, host) for host in ("h1", "h2")}
        settings["h2"] = replace(settings["h2"], rings=Rings(PortKind.PACKET_V3))
        settings["h3"] = replace(settings["h1"], local=(str(fabric.topology.host["h3"].ipv4), fabric.port("h3")))

        def start(host: str, settings: EngineSettings) -> Engine:
            return stack.enter_context(fabric.fabric.call_in(host, lambda: Engine(settings)))

        engines = [start(host, mine) for host, mine in settings.items()]
        yield Job(engines[:2], engines[2])


def _values(size: int) -> list[Floats]:
    numbers = np.random.default_rng(size)
    return list(numbers.normal(size=(2, size)).astype(np.float32))


def test_final_sums_come_to_the_main_server_as_well(job: Job) -> None:
    values = _values(80_000)
    read = np.zeros_like(values[0])
    with ThreadPoolExecutor(1) as thread:
        reading = thread.submit(job.server.read, read)
        first, other = job.add_up(values, final=True)
        reading.result(30)
    assert np.allclose(first, values[0] + values[1], atol=1e-6)
    assert np.array_equal(first, other)
    assert np.array_equal(first, read)
    assert job.server.statistics.sent < job.server.statistics.results // 2


def test_the_main_server_asks_for_what_was_not_final(job: Job) -> None:
    values = _values(256 * WINDOW)
    sent = job.server.statistics.sent
    sums = job.add_up(values, final=False)[0]
    read = np.zeros_like(sums)
    job.server.read(read)
    assert np.array_equal(sums, read)
    assert job.server.statistics.sent - sent > WINDOW
    assert {engine.next_item for engine in [*job.workers, job.server]} == {job.server.next_item}


def test_the_main_server_distributes_by_the_switch(job: Job) -> None:
    """One worker by a socket, one by rings; each packet of the server's leaves it once."""
    data = np.random.default_rng(1).integers(0, 256, 150_000).astype(np.uint8)
    first = job.server.statistics
    with ThreadPoolExecutor(3) as threads:
        sending = threads.submit(distribute, job.server, data)
        got = list(threads.map(receive, job.workers))
        sending.result()
    assert [each.tobytes() for each in got] == [data.tobytes()] * 2
    assert len({engine.next_item for engine in [*job.workers, job.server]}) == 1
    items = -(-data.size // 1024)
    sent, repeated = (getattr(job.server.statistics, name) - getattr(first, name) for name in ("sent", "repeated"))
    assert sent >= items
    # Exponents, and requests for what all contribute to.
    assert sent - repeated <= items + 2 * (items // WINDOW + 2)
