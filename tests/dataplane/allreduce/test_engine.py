"""The packet engine against the reference aggregator over UDP, bit for bit as reference workers do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from dataplane.allreduce.checks import weighted
from dataplane.allreduce.engine import Engine, EngineSettings
from dataplane.allreduce.errors import NoResultError, RefusedError, SaturatedError
from dataplane.allreduce.formats import BLOCK, Floats
from dataplane.allreduce.reference.aggregator import Aggregator, Job, Multicast
from dataplane.allreduce.reference.worker import Membership, Worker
from dataplane.allreduce.schedule import GROUP
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import Aggregation, Kind, Operation, decode
from tests.dataplane.allreduce.serving import JOB, Server, Weather

WINDOW = 64
STORM = Weather(loss=0.02, repeated=0.05, late=0.05, congested=0.02)
Values = NDArray[np.float32] | NDArray[np.int32]


def _settings(server: Server, workers: int, **more: float) -> EngineSettings:
    settings = EngineSettings(
        "127.0.0.1", JOB, WINDOW, workers, 1, port=server.port, patience_s=9, longest_timeout_s=0.02
    )
    return replace(settings, **more)  # type: ignore[arg-type]


@contextmanager
def _engines(
    server: Server, count: int, workers: int = 0, by: str = "sockets", **more: float
) -> Iterator[list[Engine]]:
    with ExitStack() as stack:
        settings = _settings(server, workers or count, **more)
        carried = [server.cable() if by == "rings" else None for _ in range(count)]
        yield [stack.enter_context(Engine(settings, transport)) for transport in carried]


by_both = pytest.mark.parametrize("by", ["sockets", "rings"])


def _run(engines: list[Engine], values: Sequence[Values], *, mean: bool = False) -> list[Values]:
    targets = [np.full_like(mine, 7) for mine in values]
    with ThreadPoolExecutor(len(engines)) as threads:
        running = [
            threads.submit(engine.all_reduce, mine, target, mean=mean)
            for engine, mine, target in zip(engines, values, targets, strict=True)
        ]
        for thread in running:
            thread.result()
    return targets


def _reference(values: list[Floats], capacity: int = 0, *, mean: bool = False) -> Floats:
    membership = Membership(JOB, 2**20, capacity or len(values), epoch=1)
    workers = [Worker(membership, mine, mean=mean) for mine in values]
    switch = Aggregator({JOB: Job(epoch=1, children=(1 << len(workers)) - 1, cells=2**21)})
    while not workers[0].is_done:
        for number, worker in enumerate(workers):
            for packet in list(worker.outstanding()):
                answer = switch.from_child(number, packet)
                if isinstance(answer, Multicast):
                    for taker in workers:
                        taker.receive(answer.packet)
    return workers[0].result


def _random(workers: int, size: int, seed: int) -> list[Floats]:
    numbers = np.random.default_rng(seed)
    return list((numbers.normal(size=(workers, size)) * 10.0 ** numbers.integers(-20, 20)).astype(np.float32))


def _same(values: Values, other: Values) -> bool:
    return np.array_equal(values.view(np.uint32), other.view(np.uint32))


@by_both
@pytest.mark.parametrize("weather", [Weather(), STORM], ids=["fair", "storm"])
def test_sums_are_those_of_reference_workers_whatever_the_size(by: str, weather: Weather) -> None:
    with Server(3, WINDOW, weather) as server, _engines(server, 3, by=by, first_item=2**32 - 5) as engines:
        for size in (1, 0, 255, 256, 257, 5000):
            values = _random(3, size, seed=size)
            right = _reference(values)
            assert all(_same(result, right) for result in _run(engines, values))
        assert not server.too_early


@by_both
def test_sums_of_several_groups_are_those_of_reference_workers(by: str) -> None:
    with Server(2, WINDOW, replace(STORM, seed=2)) as server, _engines(server, 2, by=by) as engines:
        values = _random(2, 70_000, seed=3)
        values[0][BLOCK * 10 : BLOCK * 200] = values[1][BLOCK * 10 : BLOCK * 200] = 0
        right = _reference(values)
        assert all(_same(result, right) for result in _run(engines, values))
        assert engines[0].next_item == 2 + 274 - 190
        assert engines[0].statistics.results == 2 + 274 - 190
        assert not server.too_early


@by_both
@pytest.mark.parametrize("window", [1, 2, 8])
def test_small_windows_are_enough(by: str, window: int) -> None:
    with Server(2, window, STORM) as server, _engines(server, 2, by=by, window=window) as engines:
        values = _random(2, 30 * BLOCK, seed=11)
        right = _reference(values)
        assert all(_same(result, right) for result in _run(engines, values))
        assert not server.too_early


@pytest.mark.root
def test_packets_are_ecn_capable_and_have_no_checksum() -> None:
    values = np.ones(3, np.float32)
    with (
        Server(1, WINDOW) as server,
        Engine(_settings(server, 1)) as engine,
        socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP) as wire,
    ):
        wire.settimeout(5)
        engine.all_reduce(values, values)
        while True:
            packet = wire.recv(2048)
            if int.from_bytes(packet[20:22], "big") == engine.local_address[1]:
                break
    assert packet[1] & 3 == 2
    assert packet[26:28] == bytes(2)


def test_means_divide_by_those_who_contributed() -> None:
    with Server(3, WINDOW) as server, _engines(server, 3) as engines:
        values = _random(3, 1000, seed=4)
        right = _reference(values, mean=True)
        assert all(_same(result, right) for result in _run(engines, values, mean=True))


def _of_as_many(workers: int, data: bytes) -> bytes:
    """Return a result of three workers as one of another number with a valid check, as forged with the nonce."""
    result = decode(data)
    lanes = weighted(np.frombuffer(result.values, ">i4")) if result.operation is Operation.SUM else 0
    of_one = (result.check - lanes) * pow(3, -1, 2**64)
    forged = replace(result, check=(lanes + workers * of_one) % 2**64).encode()
    return forged[:10] + workers.to_bytes(2, "big") + forged[12:]


@by_both
@pytest.mark.parametrize("workers", [0, 4, 5, 0xFFFF], ids=str)
def test_results_with_a_wrong_worker_count_are_ignored(by: str, workers: int) -> None:
    with Server(3, WINDOW) as server, _engines(server, 3, by=by) as engines:
        put = server._put

        def forge_first(data: bytes, address: tuple[str, int]) -> None:
            put(_of_as_many(workers, data), address)
            put(data, address)

        server._put = forge_first  # type: ignore[method-assign]
        values = _random(3, 3 * BLOCK, seed=12)
        right = _reference(values, 3, mean=True)
        assert all(_same(result, right) for result in _run(engines, values, mean=True))
        assert [engine.statistics.corrupt for engine in engines] == [4, 4, 4]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("in_place", [False, True])
def test_infinite_values_and_nan_come_through_in_any_order(in_place: bool, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    values = _random(2, 40 * BLOCK + 3, seed=5)
    for mine in values:
        mine[:BLOCK] = 0  # only non-finite values in the first block
        places = numbers.integers(0, mine.size, 60)
        mine[places] = numbers.choice(np.array([np.inf, -np.inf, np.nan], np.float32), 60)
    values[0][5] = np.nan
    right = _reference(values)
    with Server(2, WINDOW, replace(STORM, late=0.5, seed=seed)) as server, _engines(server, 2) as engines:
        targets = values if in_place else [np.full_like(mine, np.nan) for mine in values]
        with ThreadPoolExecutor(2) as threads:
            list(threads.map(Engine.all_reduce, engines, values, targets))
    assert all(_same(target, right) for target in targets)


def test_classes_may_arrive_before_the_last_sum_at_number_wrap() -> None:
    values = np.full(BLOCK, 3, np.float32)
    values[7] = np.nan
    target = np.zeros_like(values)
    held: list[tuple[bytes, tuple[str, int]]] = []
    with Server(1, WINDOW) as server, Engine(_settings(server, 1, first_item=2**32 - 2)) as engine:
        put = server._put

        def swap(data: bytes, address: tuple[str, int]) -> None:
            if decode(data).item == 2**32 - 1 and not held:
                held.append((data, address))
                return
            put(data, address)
            if decode(data).item == 0:
                put(*held[0])

        server._put = swap  # type: ignore[method-assign]
        engine.all_reduce(values, target)
    assert np.array_equal(target, values, equal_nan=True)


@by_both
def test_integers_are_exact_and_one_that_leaves_int32_is_told(by: str) -> None:
    with Server(2, WINDOW, STORM) as server, _engines(server, 2, by=by) as engines:
        numbers = np.random.default_rng(6)
        values: list[Values] = [numbers.integers(-(2**30), 2**30, 3000).astype(np.int32) for _ in range(2)]
        values[0][512:1024] = values[1][512:1024] = 0
        assert all(np.array_equal(result, values[0] + values[1]) for result in _run(engines, values))
        beyond: list[Values] = [np.full(300, 2**31 - 1, np.int32) for _ in range(2)]
        targets = [np.zeros(300, np.int32) for _ in range(2)]

        def reduce(number: int) -> str:
            with pytest.raises(SaturatedError) as raised:
                engines[number].all_reduce(beyond[number], targets[number])
            return str(raised.value)

        with ThreadPoolExecutor(2) as threads:
            assert all("overflowed int32" in text for text in threads.map(reduce, range(2)))
        assert np.array_equal(targets[0], beyond[0])
        assert all(np.array_equal(result, values[0] + values[1]) for result in _run(engines, values))


def test_who_waits_for_too_long_is_told_what_for() -> None:
    with Server(2, WINDOW) as server, Engine(_settings(server, 2, patience_s=0.3)) as engine:
        values = np.ones(3, np.float32)
        with pytest.raises(NoResultError, match=r"job 7, epoch 1: item 0 \(exponents of blocks 0 on\) got no result"):
            engine.all_reduce(values, values)
        assert engine.statistics.repeated >= 2


def test_missing_aggregator_is_named_with_the_socket_error() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as nobody:
        nobody.bind(("127.0.0.1", 0))
        port = nobody.getsockname()[1]
    values = np.ones(3, np.float32)
    with (
        Engine(EngineSettings("127.0.0.1", JOB, WINDOW, 2, 1, port=port, patience_s=0.2)) as engine,
        pytest.raises(NoResultError, match=f"no result from 127.0.0.1:{port} .* 1 items wait; last error: Connection"),
    ):
        engine.all_reduce(values, values)


@by_both
def test_another_thread_can_stop_it(by: str) -> None:
    with Server(2, WINDOW) as server, _engines(server, 1, 2, by) as (engine,):
        values = np.ones(3, np.float32)
        threading.Timer(0.1, engine.stop).start()
        with pytest.raises(AllReduceError, match="stopped with 1 items without a result"):
            engine.all_reduce(values, values)


def test_workers_who_do_different_things_are_told() -> None:
    with Server(2, WINDOW) as server, _engines(server, 2, patience_s=2) as engines:
        sent: list[Aggregation] = []

        def send_a_sum_first(packet: Aggregation) -> None:
            if not sent:
                sent.append(packet)
                other = replace(packet, operation=Operation.SUM)
                server.switch.from_child(1, other)

        server.before = send_a_sum_first
        values = np.ones(3, np.float32)
        with pytest.raises(RefusedError, match="same order"):
            engines[0].all_reduce(values, values)


@by_both
def test_epoch_change_midway_goes_on_without_the_lost_worker(by: str) -> None:
    with Server(3, WINDOW, replace(STORM, seed=7)) as server, _engines(server, 2, 3, by) as engines:
        values = _random(2, 20_000, seed=8)
        lost: list[Aggregation] = []

        def change(packet: Aggregation) -> None:  # the third never comes: pending items finish without it
            lost.append(packet)
            if len(lost) == 20:
                server.switch.jobs[JOB] = Job(epoch=2, children=3, cells=2 * WINDOW)

        server.before = change
        results = _run(engines, values)
        assert {engine.epoch for engine in engines} == {2}
        exact = _reference(values, 3)
        assert all(_same(item, exact) for item in results)


@by_both
def test_congestion_marks_shrink_the_window_until_they_end(by: str) -> None:
    with Server(1, WINDOW, Weather(congested=1.0)) as server, _engines(server, 1, by=by) as (engine,):
        values = _random(1, 200 * BLOCK, seed=9)
        _run([engine], values)
        marked = engine.statistics
        assert marked.congested == marked.results
        assert marked.cuts > 1
        assert marked.congestion_window < 16
        server.weather = Weather()
        _run([engine], values)
        assert engine.statistics.congestion_window > marked.congestion_window


def test_the_last_results_are_kept() -> None:
    with Server(1, WINDOW) as server, Engine(_settings(server, 1)) as engine:
        assert engine.recent(0) is None
        _run([engine], _random(1, 2 * (GROUP - 56) * BLOCK, seed=10))
        last = engine.next_item - 1
        kept = engine.recent(last)
        assert kept is not None
        assert (kept.kind, kept.item, len(kept.values)) == (Kind.RESULT, last, 1024)
        assert engine.recent(last - 2 * WINDOW + 1) is not None
        assert engine.recent(last - 2 * WINDOW) is None


@pytest.mark.parametrize(
    ("values", "target"),
    [
        (np.zeros(3, np.float64), np.zeros(3, np.float64)),
        (np.zeros(3, np.float32), np.zeros(4, np.float32)),
        (np.zeros((4, 4), np.float32)[:, 0], np.zeros(4, np.float32)),
    ],
)
def test_values_that_do_not_fit_are_refused(values: NDArray[np.float32], target: NDArray[np.float32]) -> None:
    with Server(1, WINDOW) as server, Engine(_settings(server, 1)) as engine, pytest.raises(AllReduceError):
        engine.all_reduce(values, target)


def test_a_window_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(AllReduceError, match="not a power of two"):
        Engine(EngineSettings("127.0.0.1", JOB, 48, 2, 1))
