"""Leaving the switch with workers that are several results apart: those ahead give, those behind take, in order."""

from __future__ import annotations

import importlib.util
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dataplane.allreduce.errors import SaturatedError
from dataplane.errors import AllReduceError

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist

from dataplane.allreduce.torch import MillraceState, all_reduce
from dataplane.allreduce.torch.agreement import Decision

TAKEN, BY_RING = 7, 9


class Answering:
    """Answers the first all-reduces with their own values, or with SaturatedError, then fails."""

    def __init__(self, answers: int, *, saturated: bool = False) -> None:
        self._left, self._is_saturated = answers, saturated

    def all_reduce(self, values: np.ndarray[Any, Any], *, mean: bool) -> Future[Any]:
        future: Future[Any] = Future()
        self._left -= 1
        if self._left < 0:
            future.set_exception(AllReduceError("no answer"))
        elif self._is_saturated:
            future.set_exception(SaturatedError("left int32"))
        else:
            future.set_result(values.copy())
        return future

    def close(self) -> None:
        pass


class Ring:
    """Records what is broadcast; what is taken is all TAKEN, and what the ring adds up BY_RING."""

    def __init__(self, ranks: tuple[int, ...], deadline_s: float) -> None:
        self.broadcasts: list[tuple[list[float], int]] = []

    def broadcast(self, tensor: torch.Tensor, source: int) -> None:
        self.broadcasts.append((tensor.tolist(), source))
        if source:
            tensor.fill_(TAKEN)

    def start(self, tensor: torch.Tensor, *, mean: bool) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(torch.full((tensor.numel(),), BY_RING, dtype=tensor.dtype))
        return future


@pytest.fixture(autouse=True)
def others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A group of one worker, which takes decisions as if there were two."""
    monkeypatch.setattr("dataplane.allreduce.torch.state.Ring", Ring)
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def _decide(monkeypatch: pytest.MonkeyPatch, *results: int) -> None:
    decision = Decision(tuple(range(len(results))), results, "worker 1: no answer")
    monkeypatch.setattr("dataplane.allreduce.torch.state.Agreement.settle", lambda *_, **__: decision)


def _broadcasts(state: MillraceState) -> list[tuple[list[float], int]]:
    ring: Any = state._ring
    return list(ring.broadcasts)


def test_who_is_ahead_gives_its_last_results_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    _decide(monkeypatch, 5, 3)
    with MillraceState(Answering(5), in_flight=3) as state:
        futures = [all_reduce(torch.full((2,), float(at)), state) for at in range(7)]
        assert [future.wait()[0].item() for future in futures] == [0, 1, 2, 3, 4, BY_RING, BY_RING]
        assert _broadcasts(state) == [([3, 3], 0), ([4, 4], 0)]


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int32])
def test_who_is_behind_takes_what_it_lacks_and_the_ring_goes_on_from_there(
    monkeypatch: pytest.MonkeyPatch, kind: torch.dtype
) -> None:
    _decide(monkeypatch, 1, 4)
    with MillraceState(Answering(1), in_flight=3) as state:
        futures = [all_reduce(torch.full((2,), at, dtype=kind), state) for at in range(6)]
        assert [future.wait()[0].item() for future in futures] == [0, TAKEN, TAKEN, TAKEN, BY_RING, BY_RING]
        assert [source for _, source in _broadcasts(state)] == [1, 1, 1]


def test_one_between_takes_part_in_what_others_take(monkeypatch: pytest.MonkeyPatch) -> None:
    _decide(monkeypatch, 2, 3, 1)
    with MillraceState(Answering(2), in_flight=3) as state:
        futures = [all_reduce(torch.full((2,), float(at)), state) for at in range(4)]
        assert [future.wait()[0].item() for future in futures] == [0, 1, TAKEN, BY_RING]
        assert [source for _, source in _broadcasts(state)] == [1, 1]


def test_who_takes_what_it_has_not_begun_waits_for_that_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    _decide(monkeypatch, 0, 2)
    with MillraceState(Answering(0), deadline_s=0.05) as state:
        assert all_reduce(torch.ones(2), state).wait().tolist() == [TAKEN, TAKEN]
        state._thread.join()
        with pytest.raises(AllReduceError, match=r"waited 0\.05 s for all-reduce 1 to begin, whose result others have"):
            all_reduce(torch.ones(2), state).wait()


def test_that_a_sum_left_int32_is_given_on_too(monkeypatch: pytest.MonkeyPatch) -> None:
    _decide(monkeypatch, 1, 0)
    with MillraceState(Answering(1, saturated=True)) as state:
        futures = [all_reduce(torch.ones(2, dtype=torch.int32), state) for _ in range(2)]
        with pytest.raises(SaturatedError):
            futures[0].wait()
        assert futures[1].wait().tolist() == [BY_RING, BY_RING]
        assert _broadcasts(state) == [([2**31, 2**31], 0)]


def test_who_takes_a_sum_that_left_int32_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ring, "broadcast", lambda _, tensor, source: tensor.fill_(2**31))
    _decide(monkeypatch, 0, 1)
    with MillraceState(Answering(0)) as state:
        with pytest.raises(SaturatedError):
            all_reduce(torch.ones(2, dtype=torch.int32), state).wait()
        assert all_reduce(torch.ones(2, dtype=torch.int32), state).wait().tolist() == [BY_RING, BY_RING]
