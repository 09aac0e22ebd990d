"""All-reduces of floats by reference workers over the reference switch, over a network with loss and repetition."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataplane.allreduce import formats
from dataplane.allreduce.formats import BLOCK, Floats
from dataplane.allreduce.reference.aggregator import Aggregator, Job, Multicast, Unicast
from dataplane.allreduce.reference.worker import Membership, Worker
from dataplane.allreduce.schedule import GROUP, ItemKind, Schedule
from dataplane.wire.aggregation import Kind, Operation

JOB, CELLS = 7, 16


def _reduce(workers: list[Worker], loss: float, seed: int) -> Aggregator:
    chance = random.Random(seed)
    switch = Aggregator({JOB: Job(epoch=1, children=(1 << len(workers)) - 1, cells=CELLS)})
    for _ in range(10_000):
        sent = [(number, packet) for number, worker in enumerate(workers) for packet in worker.outstanding()]
        if not sent:
            return switch
        chance.shuffle(sent)
        for number, packet in sent:
            if chance.random() < loss:
                continue
            answer = switch.from_child(number, packet)
            if answer is None:
                continue
            assert isinstance(answer, Multicast | Unicast)
            takers = [answer.child] if isinstance(answer, Unicast) else range(len(workers))
            for taker in takers:
                if chance.random() >= loss:
                    workers[taker].receive(answer.packet)
    raise AssertionError("it does not come to an end")


def _workers(values: Floats, **options: bool) -> list[Worker]:
    membership = Membership(JOB, CELLS // 2, capacity=len(values), epoch=1)
    return [Worker(membership, mine, first_item=2**32 - 5, **options) for mine in values]


@given(st.integers(1, 5), st.integers(1, 3 * BLOCK), st.sampled_from([0.0, 0.3]), st.integers(0, 2**32))
def test_all_workers_get_the_same_sum_within_the_bound(workers: int, size: int, loss: float, seed: int) -> None:
    numbers = np.random.default_rng(seed)
    values = (numbers.normal(size=(workers, size)) * 10.0 ** numbers.integers(-20, 20)).astype(np.float32)
    working = _workers(values)
    _reduce(working, loss, seed)
    exact = values.astype(np.float64).sum(axis=0)
    for worker in working:
        assert worker.is_done
        assert np.array_equal(worker.result, working[0].result)
    greatest = float(np.abs(values).max())
    bound = formats.error_bound(int(np.frexp(greatest)[1]) + formats.BIAS, workers, workers)
    assert np.abs(working[0].result - exact).max() <= bound + np.abs(exact).max() * 2.0**-24


def test_blocks_that_are_zero_everywhere_are_not_sent() -> None:
    values = np.zeros((3, 10 * BLOCK), np.float32)
    values[1, 4 * BLOCK + 3] = 2.5
    working = _workers(values)
    switch = _reduce(working, loss=0, seed=1)
    assert switch.counts["complete"] == 2
    assert working[0].result[4 * BLOCK + 3] == 2.5
    assert np.count_nonzero(working[2].result) == 1


def test_a_mean_is_over_those_who_have_contributed() -> None:
    values = np.full((4, 5), 6.0, np.float32)
    working = _workers(values, mean=True)
    _reduce(working, loss=0.2, seed=3)
    assert working[3].result == pytest.approx(np.full(5, 6.0))


@pytest.mark.parametrize(
    "lie",
    [{"workers": 0}, {"workers": 3}, {"workers": 0xFFFF}, {"operation": Operation.SUM}, {"values": b""}],
    ids=str,
)
def test_impossible_results_are_counted_and_ignored(
    lie: dict[str, int | Operation | bytes],
) -> None:
    (worker,) = _workers(np.ones((1, 3), np.float32), mean=True)
    (sent,) = worker.outstanding()
    result = replace(sent, kind=Kind.RESULT)
    worker.receive(replace(result, **lie))  # type: ignore[arg-type]
    assert worker.malformed + worker.corrupt == 1
    assert list(worker.outstanding()) == [sent]
    worker.receive(result)
    assert list(worker.outstanding()) != [sent]


def test_infinite_values_and_nan_come_out_as_such() -> None:
    values = np.ones((2, 2 * BLOCK), np.float32)
    values[0, 0], values[1, 1] = np.inf, np.nan
    values[0, 2], values[1, 2] = np.inf, -np.inf
    working = _workers(values)
    _reduce(working, loss=0.2, seed=4)
    assert np.isposinf(working[1].result[0])
    assert np.isnan(working[1].result[1:3]).all()
    assert np.array_equal(working[1].result[3:], np.full(2 * BLOCK - 3, 2.0, np.float32))


def test_exponents_are_requested_before_blocks_in_any_order() -> None:
    blocks = 3 * GROUP + 1
    ones, none = np.ones(GROUP, np.uint16), np.zeros(GROUP, np.uint16)
    forth, back = Schedule(blocks), Schedule(blocks)
    for group in range(4):
        forth.settle(group, ones, none)
    for group in (1, 0, 3, 2):
        back.settle(group, ones, none)
    assert forth.parts == back.parts
    asked = [number for number, part in enumerate(forth.parts) if part.what is ItemKind.EXPONENTS]
    assert asked == [0, 1, 2 + GROUP, 3 + 2 * GROUP]
    assert forth.is_known
    assert len(forth.parts) == blocks + 4
