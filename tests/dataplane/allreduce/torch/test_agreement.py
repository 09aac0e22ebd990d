"""Workers that leave the switch agree on one decision, or on none."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable

import pytest

from dataplane.clock import VirtualClock
from dataplane.errors import AllReduceError

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch.distributed as dist

from dataplane.allreduce.torch.agreement import Agreement, Decision, Voters


class Waiting:
    """Time that advances in pauses; `then` runs in the first."""

    def __init__(self, then: object = None) -> None:
        self.clock, self._then = VirtualClock(), then

    def pause(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now_ns() + int(seconds * 1e9))
        if callable(self._then):
            then, self._then = self._then, None
            then()


def _worker(store: object, rank: int, of: int, waiting: Waiting | None = None) -> Agreement:
    return _voting(store, rank, lambda: Voters(tuple(range(of)), of), waiting)


def _voting(store: object, rank: int, voters: Callable[[], Voters], waiting: Waiting | None = None) -> Agreement:
    waiting = waiting or Waiting()
    return Agreement(store, "job", rank, voters, deadline_s=5.0, clock=waiting.clock, pause=waiting.pause)


def test_when_all_have_left_all_go_on_from_the_same_results() -> None:
    store = dist.HashStore()
    decisions: list[Decision] = []
    other = _worker(store, 1, 2)
    waiting = Waiting(lambda: decisions.append(other.settle(6, str(other.called()), called=True)))
    assert other.called() is None
    decisions.append(_worker(store, 0, 2, waiting).settle(4, "no answer", called=False))
    assert decisions == [Decision((0, 1), (4, 6), "worker 0: no answer")] * 2
    assert decisions[0].source == 1
    assert waiting.clock.now_ns() < 5e9


def test_late_worker_is_left_behind_and_told_so() -> None:
    store = dist.HashStore()
    first = Waiting(lambda: _spawned(store))
    assert _worker(store, 0, 3, first).settle(4, "no answer", called=False) == Decision(
        (0, 1), (4, 4), "worker 0: no answer"
    )
    assert first.clock.now_ns() >= 5e9
    with pytest.raises(AllReduceError, match="workers 0, 1 went on without worker 2"):
        _worker(store, 2, 3).settle(4, "late", called=False)


def _spawned(store: object) -> None:
    store.set("job/1", "4")  # type: ignore[attr-defined]


@pytest.mark.parametrize(("here", "of"), [(1, 2), (2, 4), (1, 3)])
def test_no_more_than_half_never_go_on(here: int, of: int) -> None:
    store = dist.HashStore()
    for rank in range(1, here):
        store.set(f"job/{rank}", "4")
    missing = ", ".join(str(rank) for rank in range(here, of))
    with pytest.raises(
        AllReduceError,
        match=f"waited 5 s for workers {missing} to continue .* {here} of {of} workers are not a majority",
    ):
        _worker(store, 0, of).settle(4, "no answer", called=False)


def test_the_first_proposal_wins() -> None:
    store = dist.HashStore()
    store.set("job/1", "7")
    store.set("job/decided", "0,1 worker 1: no answer")
    assert _worker(store, 0, 3).settle(7, "no answer", called=False).ranks == (0, 1)


def test_who_is_no_member_is_neither_heard_nor_waited_for() -> None:
    store = dist.HashStore()
    gone = _worker(store, 3, 4)
    with pytest.raises(AllReduceError, match="no answer; waited 5 s for workers 0, 1, 2"):
        gone.settle(2, "no answer", called=False)
    here = [_voting(store, rank, lambda: Voters((0, 1, 2), 3)) for rank in range(3)]
    assert [worker.called() for worker in here] == [None] * 3
    waiting = Waiting(lambda: here[2].settle(5, "no answer", called=False))
    store.set("job/1", "5")
    caller = _voting(store, 0, lambda: Voters((0, 1, 2), 3), waiting)
    assert caller.settle(5, "no answer", called=False) == Decision((0, 1, 2), (5, 5, 5), "worker 0: no answer")
    assert waiting.clock.now_ns() < 5e9
    assert here[1].called() == "worker 0: no answer"


def test_latecomer_outside_the_group_counts_for_the_majority() -> None:
    store = dist.HashStore()
    waiting = Waiting()
    with pytest.raises(AllReduceError, match="no answer; 1 of 4 workers are not a majority"):
        _voting(store, 0, lambda: Voters((0,), 4), waiting).settle(3, "no answer", called=False)
    assert waiting.clock.now_ns() == 0
