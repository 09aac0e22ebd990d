"""Forged packets, and bits that flip in the switch or in transit: none is ever in a sum."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dataplane.allreduce.checks import CODE
from dataplane.allreduce.engine import Engine, EngineSettings
from dataplane.allreduce.errors import CorruptedError, SaturatedError
from dataplane.allreduce.formats import BLOCK, Floats
from dataplane.allreduce.reference.aggregator import Cell, Job
from dataplane.allreduce.reference.worker import Membership, Worker
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import SIZE, Aggregation, Flags, Kind, Operation, decode
from tests.dataplane.allreduce.serving import JOB, Server

WINDOW = 16
NONCE = 0xA5_0000_0000_0001
WORKERS = 3
FIRST_SUM = 1
"""The item of the first block, behind the exponents."""
_Address = tuple[str, int]


@contextmanager
def _job(**more: Any) -> Iterator[tuple[Server, list[Engine]]]:
    with ExitStack() as stack:
        server = stack.enter_context(Server(WORKERS, WINDOW, nonce=NONCE))
        settings = EngineSettings(
            "127.0.0.1",
            JOB,
            WINDOW,
            capacity=4,
            epoch=1,
            nonce=NONCE,
            contributors=WORKERS,
            port=server.port,
            patience_s=9,
            longest_timeout_s=0.02,
        )
        yield server, [stack.enter_context(Engine(replace(settings, **more))) for _ in range(WORKERS)]


def _values(blocks: int, seed: int = 1) -> list[Floats]:
    return list(np.random.default_rng(seed).integers(-1000, 1000, (WORKERS, blocks * BLOCK)).astype(np.float32))


def _reduce(engines: list[Engine], values: list[Floats]) -> list[Floats | AllReduceError]:
    """Return each worker's sums or error; a failing worker stops the others, as a caller would."""

    def one(engine: Engine, mine: Floats) -> Floats | AllReduceError:
        target = np.full_like(mine, 7)
        try:
            engine.all_reduce(mine, target)
        except AllReduceError as error:
            for other in engines:
                other.stop()
            return error
        return target

    with ThreadPoolExecutor(len(engines)) as threads:
        return list(threads.map(one, engines, values))


def _assert_right(results: list[Floats | AllReduceError], values: list[Floats]) -> None:
    for result in results:
        assert not isinstance(result, AllReduceError), result
        assert np.array_equal(result, sum(values))


def test_any_bit_flipped_in_transit_is_detected_and_recovered() -> None:
    """Each time the first copy of a result is changed in one bit; the repetition is correct."""
    chance = random.Random(1)
    bits = [*range(8 * SIZE), *(8 * SIZE + chance.randrange(8192) for _ in range(128))]
    with _job() as (server, engines):
        put, changed = server._put, dict.fromkeys(range(WORKERS), 0)

        def change(data: bytes, address: _Address) -> None:
            worker, packet = server.children[address], decode(data)
            if packet.kind is Kind.RESULT and changed[worker] < len(bits):
                bit = bits[changed[worker]]
                changed[worker] += 1
                data = (int.from_bytes(data, "big") ^ 1 << 8 * len(data) - 1 - bit).to_bytes(len(data), "big")
            put(data, address)

        server._put = change  # type: ignore[method-assign]
        values = _values(len(bits))
        _assert_right(_reduce(engines, values), values)
        assert set(changed.values()) == {len(bits)}
        for engine in engines:
            assert engine.statistics.corrupt >= 128
            assert engine.statistics.forged >= 64
            assert engine.statistics.malformed > 0


Change = Callable[[Cell], Cell]


def _of_value(change: Callable[[Aggregation], Aggregation]) -> Change:
    return lambda cell: cell if cell.value is None else replace(cell, value=change(cell.value))


def _flip(at: int, bit: int) -> Change:
    def flip(packet: Aggregation) -> Aggregation:
        values = bytearray(packet.values)
        values[at] ^= 1 << bit
        return replace(packet, values=bytes(values))

    return _of_value(flip)


CHANGES: dict[str, Change] = {
    "a lane's last bit": _flip(3, 0),
    "a lane's sign": _flip(1020, 7),
    "the check": _of_value(lambda packet: replace(packet, check=packet.check ^ 1 << 63)),
    "the count of workers": _of_value(lambda packet: replace(packet, workers=packet.workers ^ 1 << 14)),
    "saturated": _of_value(lambda packet: replace(packet, flags=packet.flags | Flags.SATURATED)),
    "who has contributed": lambda cell: replace(cell, seen=cell.seen | (2 if cell.seen & 1 else 1)),
    "done": lambda cell: replace(cell, done=True),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("item", [0, FIRST_SUM], ids=["exponents", "a block"])
def test_a_bit_that_changes_in_the_switch_is_in_no_sum(change: Change, item: int) -> None:
    """The next contribution finds the first one changed; the all-reduce ends, rather than with a wrong sum."""
    with _job() as (server, engines):
        cell_key = JOB, item

        def before(packet: Aggregation) -> None:
            cell = server.switch._cells.get(cell_key)
            if packet.item == item and cell is not None and cell.seen.bit_count() == 1:
                server.before = lambda packet: None
                server.switch._cells[cell_key] = change(cell)

        server.before = before
        results = _reduce(engines, _values(3))
        assert all(isinstance(result, AllReduceError) for result in results), results
        message = str(next(result for result in results if isinstance(result, CorruptedError)))
        assert f"job 7, epoch 1: item {item} (" in message
        # Three suffice; on a busy machine further ones may be on their way.
        assert re.search(r"is not what the workers sent: \d+ results did not fit their check", message), message


def test_exponents_too_small_for_one_worker_are_detected_by_it() -> None:
    """The bit changes in that worker's contribution, and another one's covers it: a valid number."""
    great, little = CODE * 221, CODE * 201  # 2^20 and 1
    bit = next(bit for bit in range(15, 0, -1) if great >> bit & 1 and great ^ 1 << bit < little)
    with _job(patience_s=1.0) as (server, engines):

        def before(packet: Aggregation) -> None:
            cell = server.switch._cells.get((JOB, 0))
            if packet.item == 0 and cell is not None and cell.value is not None and not cell.done:
                lane = int.from_bytes(cell.value.values[:2], "big")
                lane = lane ^ 1 << bit if lane == great else lane
                changed = lane.to_bytes(2, "big") + cell.value.values[2:]
                server.switch._cells[JOB, 0] = replace(cell, value=replace(cell.value, values=changed))

        server.before = before
        results = _reduce(engines, [np.full(BLOCK, number, np.float32) for number in (2.0**20, 1.0, 1.0)])
        is_last = isinstance(results[0], np.ndarray)  # then its contribution never reached a cell
        assert is_last or all(isinstance(result, AllReduceError) for result in results)


def test_a_sum_that_saturates_is_not_taken_for_a_changed_bit() -> None:
    with _job() as (_, engines):
        values = [np.full(BLOCK, 2**30, np.int32) for _ in engines]

        def one(engine: Engine, mine: NDArray[np.int32]) -> str:
            with pytest.raises(SaturatedError) as raised:
                engine.all_reduce(mine, np.zeros_like(mine))
            return str(raised.value)

        with ThreadPoolExecutor(WORKERS) as threads:
            assert all("overflowed int32" in message for message in threads.map(one, engines, values))


def test_sender_without_the_nonce_cannot_contribute_or_forge() -> None:
    """The attacker knows everything else: addresses, ports, the epoch, and each item before the workers send it."""
    with _job() as (server, engines):
        put = server._put

        def forge(packet: Aggregation) -> None:
            for child in range(WORKERS):
                assert server.switch.from_child(child, replace(packet, nonce=0, values=b"\1" * 1024)) is None

        def forge_result(data: bytes, address: _Address) -> None:
            put(replace(decode(data), nonce=NONCE ^ 1, values=b"\1" * 1024).encode(), address)
            refusal = replace(decode(data), kind=Kind.REFUSED, nonce=NONCE ^ 1 << 63, epoch=2, values=b"")
            put(refusal.encode(), address)
            put(data, address)

        server.before, server._put = forge, forge_result  # type: ignore[method-assign]
        values = _values(20)
        _assert_right(_reduce(engines, values), values)
        assert server.switch.counts["forged"] >= 3 * 21 * 3
        for engine in engines:
            assert engine.statistics.forged >= 2 * 21
            assert engine.statistics.corrupt == 0
            assert engine.epoch == 1


@pytest.mark.parametrize("epoch", [0, 2, 0x8001])
def test_results_of_an_epoch_without_contribution_are_ignored(epoch: int) -> None:
    with _job(contributors=None) as (server, engines):
        put = server._put

        def forge(data: bytes, address: _Address) -> None:
            put(replace(decode(data), epoch=epoch).encode(), address)
            put(data, address)

        server._put = forge  # type: ignore[method-assign]
        values = _values(3)
        _assert_right(_reduce(engines, values), values)
        assert all(engine.statistics.malformed >= 4 for engine in engines)


def test_results_from_before_a_membership_change_are_accepted() -> None:
    with _job(hears_refusals=False) as (server, engines):
        put = server._put
        held: list[tuple[bytes, _Address]] = []

        def hold(data: bytes, address: _Address) -> None:
            if len(held) == WORKERS:
                put(data, address)
                return
            held.append((data, address))
            if len(held) == WORKERS:  # the exponents' results, of all three, when the third one leaves
                server.switch.jobs[JOB] = Job(epoch=2, children=0b111, cells=2 * WINDOW, nonce=NONCE)
                for engine in engines:
                    engine.set_epoch(2, WORKERS)
                for each in held:
                    put(*each)

        server._put = hold  # type: ignore[method-assign]
        values = _values(3)
        _assert_right(_reduce(engines, values), values)
        assert all(engine.epoch == 2 and engine.statistics.malformed == 0 for engine in engines)


def test_the_plain_worker_takes_nothing_of_it_either() -> None:
    worker = Worker(Membership(JOB, WINDOW, 4, 1, NONCE, 1), np.ones(BLOCK, np.float32))
    (sent,) = worker.outstanding()
    result = replace(sent, kind=Kind.RESULT)
    assert sent.operation is Operation.MAX
    wrong: tuple[dict[str, Any], ...] = (
        {"nonce": 0},
        {"epoch": 2},
        {"workers": 2},
        {"check": sent.check ^ 2},
        {"values": b"\1" * 1024},
    )
    for fields in wrong:
        worker.receive(replace(result, **fields))
    assert (worker.forged, worker.malformed, worker.corrupt) == (1, 1, 3)
    worker.receive(result)
    (sent,) = worker.outstanding()
    result = replace(sent, kind=Kind.RESULT)
    for at in range(0, 1024, 31):
        values = bytearray(result.values)
        values[at] ^= 8
        worker.receive(replace(result, values=bytes(values)))
    was_done = worker.is_done
    worker.receive(result)
    assert (was_done, worker.is_done) == (False, True)
    assert np.array_equal(worker.result, np.ones(BLOCK, np.float32))
