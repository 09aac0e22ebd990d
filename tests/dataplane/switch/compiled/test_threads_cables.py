"""Workers read each other's cables and ports at any moment: values may be stale, but never misleading."""

from __future__ import annotations

import random

import pytest

from dataplane.native import kernel, kernel_library, u64
from dataplane.switch.abi import Packet
from dataplane.switch.compiled.memory.traffic import NEVER, OutPort, arrived, hold, next_arrival_ns
from dataplane.switch.traffic import PortSettings
from tests.dataplane.switch.compiled.queued_bench import QueuedBench, own_program
from tests.dataplane.switch.compiled.test_threads_replacement import fill, orders, repeat_briefly

ROUNDS = 300_000_000
PORTS = tuple(PortSettings(number, 10**10, 4096, 1_000) for number in (1, 2, 3, 4))


@kernel
def fill_and_empty(port: OutPort, frame: Packet, rounds: u64) -> None:
    """Put a frame on the cable and take it off again."""
    for _ in range(rounds):
        hold(port, frame, 5)
        arrived(port, 10)


@kernel
def look(port: OutPort, rounds: u64) -> u64:
    """Look at the cable again and again; return how often it had neither the one frame nor nothing."""
    wrong: u64 = 0
    for _ in range(rounds):
        arrives_ns = next_arrival_ns(port)
        if arrives_ns != 5 and arrives_ns != NEVER:
            wrong += 1
    return wrong


LIBRARY = kernel_library(fill_and_empty, look)


def test_looking_at_a_cable_while_another_worker_uses_it() -> None:
    port, frame = OutPort(), Packet()
    with repeat_briefly(lambda: LIBRARY.bind(fill_and_empty)(port, frame, ROUNDS // 100)):
        assert LIBRARY.bind(look)(port, ROUNDS) == 0


@pytest.mark.parametrize("threads", [2, 4])
def test_short_cables_and_many_workers(threads: int) -> None:
    rng = random.Random(threads)
    with QueuedBench(PORTS, threads) as bench:
        bench.switch.commit(own_program("copies"), fill)
        for _ in range(200):
            bench.send(rng.choice((1, 2, 3, 4)), rng.randrange(threads), orders(rng, rng.randrange(40)))
            bench.receive()
        bench.settle()
        bench.assert_accounted()
