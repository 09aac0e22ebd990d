"""Leaving the switch with workers one result apart: those ahead send, those behind receive, in order."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from dataplane.allreduce.errors import SaturatedError
from dataplane.errors import AllReduceError

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist

from dataplane.allreduce.torch import MillraceState, all_reduce
from dataplane.allreduce.torch.agreement import Decision
from tests.dataplane.allreduce.torch.reducers import Doubling, failing
from tests.waiting import wait_until

TAKEN, BY_RING = 7, 9
SATURATED = SaturatedError("overflowed int32")


class Sum:
    """Sum computed by the ring."""

    def __init__(self, ring: Ring, tensor: torch.Tensor) -> None:
        self._ring, self._tensor = ring, tensor

    def result(self, number: int, deadline_s: float) -> torch.Tensor:
        self._ring.begun_at_results.append(self._ring.begun)
        return torch.full((self._tensor.numel(),), BY_RING, dtype=self._tensor.dtype)


class Ring:
    """Records broadcasts and all-reduces; received values are all TAKEN, sums of the ring BY_RING."""

    def __init__(self, ranks: tuple[int, ...], deadline_s: float) -> None:
        self.broadcasts: list[tuple[list[float], int]] = []
        self.begun = 0
        self.begun_at_results: list[int] = []

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        self.broadcasts.append((tensor.tolist(), source))
        if source:
            tensor.fill_(TAKEN)

    def start(self, tensor: torch.Tensor, *, mean: bool) -> Sum:
        self.begun += 1
        return Sum(self, tensor)


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A group of one worker, which decides as if there were two."""
    monkeypatch.setattr("dataplane.allreduce.torch.ordered.Ring", Ring)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _decide(monkeypatch: pytest.MonkeyPatch, *results: int) -> None:
    decision = Decision(tuple(range(len(results))), results, "worker 1: no answer")
    monkeypatch.setattr("dataplane.allreduce.torch.ordered.Agreement.settle", lambda *_, **__: decision)


def _broadcasts(state: MillraceState) -> list[tuple[list[float], int]]:
    ring: Any = state._all_reduces._ring
    return list(ring.broadcasts)


def _values(count: int, kind: torch.dtype = torch.float32) -> list[torch.Tensor]:
    return [torch.full((2,), at, dtype=kind) for at in range(count)]


def test_who_is_ahead_gives_its_last_result(monkeypatch: pytest.MonkeyPatch) -> None:
    _decide(monkeypatch, 5, 4)
    with MillraceState(failing(5, factor=1)) as state:
        futures = [all_reduce(values, state) for values in _values(7)]
        assert [future.wait()[0].item() for future in futures] == [0, 1, 2, 3, 4, BY_RING, BY_RING]
        assert _broadcasts(state) == [([4, 4], 0)]


def test_changing_a_result_does_not_change_what_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    _decide(monkeypatch, 2, 1)
    reducer = Doubling(held=True, factor=1)
    with MillraceState(reducer) as state:
        tensors = _values(3)
        reducer.end(0)
        reducer.end(1)
        futures = [all_reduce(values, state) for values in tensors]
        futures[1].wait().fill_(-1)
        reducer.end(2, AllReduceError("no answer"))
        assert futures[2].wait()[0].item() == BY_RING
        assert _broadcasts(state) == [([1, 1], 0)]


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_worker_behind_takes_results_and_the_ring_continues(monkeypatch: pytest.MonkeyPatch, kind: torch.dtype) -> None:
    _decide(monkeypatch, 1, 2)
    with MillraceState(failing(1, factor=1)) as state:
        futures = [all_reduce(values, state) for values in _values(6, kind)]
        assert [future.wait()[0].item() for future in futures] == [0, TAKEN, *[BY_RING] * 4]
        assert [source for _, source in _broadcasts(state)] == [1]


def test_workers_with_equal_results_join_the_broadcasts(monkeypatch: pytest.MonkeyPatch) -> None:
    _decide(monkeypatch, 2, 3, 2)
    with MillraceState(failing(2, factor=1)) as state:
        futures = [all_reduce(values, state) for values in _values(4)]
        assert [future.wait()[0].item() for future in futures] == [0, 1, TAKEN, BY_RING]
        assert [source for _, source in _broadcasts(state)] == [1]


def test_ring_begins_waiting_calls_without_blocking(monkeypatch: pytest.MonkeyPatch) -> None:
    _decide(monkeypatch, 0, 0)
    reducer = Doubling(held=True)
    with MillraceState(reducer) as state:
        futures = [all_reduce(values, state) for values in _values(6)]
        reducer.end(0, AllReduceError("no answer"))
        assert [future.wait()[0].item() for future in futures] == [BY_RING] * 6
        ring: Any = state._all_reduces._ring
        assert ring.begun_at_results == [4, 5, 6, 6, 6, 6]


def _call(state: MillraceState) -> None:
    assert state._agreement is not None
    state._agreement._store.set(state._agreement._key("call/1"), "0 no answer")


def test_result_for_a_call_not_begun_waits_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dataplane.allreduce.torch.ordered.POLL_S", 0.001)
    _decide(monkeypatch, 0, 1)
    with MillraceState(Doubling(), deadline_s=0.05) as state:
        _call(state)
        state._all_reduces._thread.join()
        with pytest.raises(AllReduceError, match=r"waited 0\.05 s for all-reduce 0 to start, whose result others have"):
            all_reduce(torch.ones(2), state).wait()
    reducer = Doubling()
    with MillraceState(reducer, deadline_s=9) as state:
        _call(state)
        wait_until(lambda: reducer.closed > 0)
        assert all_reduce(torch.ones(2), state).wait().tolist() == [TAKEN, TAKEN]


def test_that_a_sum_left_int32_is_given_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _decide(monkeypatch, 1, 0)
    saturated = failing(1)
    saturated.end(0, SATURATED)
    with MillraceState(saturated) as state:
        futures = [all_reduce(torch.ones(2, dtype=torch.int32), state) for _ in range(2)]
        with pytest.raises(SaturatedError):
            futures[0].wait()
        assert futures[1].wait().tolist() == [BY_RING, BY_RING]
        assert _broadcasts(state) == [([2**31, 2**31], 0)]


def test_who_takes_a_sum_that_left_int32_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "broadcast", lambda _, tensor, source: tensor.fill_(2**31))
    _decide(monkeypatch, 0, 1)
    with MillraceState(failing(0)) as state:
        with pytest.raises(SaturatedError):
            all_reduce(torch.ones(2, dtype=torch.int32), state).wait()
        assert all_reduce(torch.ones(2, dtype=torch.int32), state).wait().tolist() == [BY_RING, BY_RING]
