"""The program is replaced while several workers forward: every frame is sent, or dropped under a name."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from dataplane.switch.tables import CloneSession, ForwardingState, Replica
from dataplane.switch.traffic import PortSettings
from tests.dataplane.switch.compiled.queued_bench import QueuedBench, own_program
from tests.waiting import wait_until

REPLACEMENTS = 25
PORTS = (
    PortSettings(1),
    PortSettings(2, 200_000_000, 16, 3_000),
    PortSettings(3, None, 8),
    PortSettings(4, 10**9, 64),
)


def fill(state: ForwardingState) -> None:
    state.clone_sessions[1] = CloneSession((Replica(3, 1), Replica(255, 2)))
    state.clone_sessions[2] = CloneSession((Replica(3, 1), Replica(4, 2), Replica(1, 3)), packet_length_bytes=30)
    state.multicast_groups[1] = (Replica(2, 1), Replica(3, 7), Replica(4, 0))
    state.multicast_groups[2] = (Replica(600, 1), Replica(3, 7))


def orders(rng: random.Random, count: int) -> list[bytes]:
    """Return frames for all features of `copies.p4`."""
    return [
        bytes([rng.randrange(11), rng.randrange(6), rng.randrange(6)]) + rng.randbytes(rng.choice((0, 11, 60, 1500)))
        for _ in range(count)
    ]


def repeat(work: Callable[[], None], stopping: threading.Event, failures: list[BaseException]) -> threading.Thread:
    """Repeat an action until stopped; keep failures for the test."""

    def loop() -> None:
        try:
            while not stopping.is_set():
                work()
        except BaseException as failure:  # noqa: BLE001 - the test raises it again
            failures.append(failure)

    thread = threading.Thread(target=loop)
    thread.start()
    return thread


@contextmanager
def repeat_briefly(work: Callable[[], None]) -> Iterator[None]:
    """Repeat an action on another thread while the block lasts; its failure fails the test."""
    stopping, failures = threading.Event(), list[BaseException]()
    thread = repeat(work, stopping, failures)
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize("threads", [2, 3])
def test_replacement_under_traffic_accounts_for_every_frame(threads: int) -> None:
    programs = [own_program("copies"), own_program("stateful")]
    stopping, failures, rng = threading.Event(), list[BaseException](), random.Random(threads)
    packets_in: list[bytes] = []
    with QueuedBench(PORTS, threads) as bench:
        bench.switch.on_packet_in(packets_in.append)
        bench.switch.on_digests(lambda _: None)

        def send() -> None:
            bench.send(rng.choice((1, 2, 3, 4)), rng.randrange(threads), orders(rng, 60))
            bench.switch.packet_out(orders(rng, 1)[0])
            bench.sent[255] = bench.switch.counters().ports[255].rx_frames
            bench.receive()

        sender = repeat(send, stopping, failures)
        for number in range(REPLACEMENTS):
            bench.switch.commit(programs[number % 2], fill if number % 2 == 0 else None)
            bench.assert_accounted()
        stopping.set()
        sender.join()
        assert not failures, failures
        injected = bench.switch._cpu_port.injected
        wait_until(lambda: not injected.head - injected.tail, "packets out are left lying")
        bench.sent[255] = bench.switch.counters().ports[255].rx_frames
        bench.settle()
        bench.assert_accounted()
        counters = bench.switch.counters()
        wait_until(lambda: len(packets_in) == counters.ports[255].tx_frames, "packets in are lost")
    assert counters.ports[2].tx_frames > 0
