"""Workers that leave the switch come to one decision, or to none that tears them apart."""

from __future__ import annotations

import importlib.util

import pytest

from dataplane.clock import VirtualClock
from dataplane.errors import AllReduceError

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch.distributed as dist

from dataplane.allreduce.torch.agreement import Agreement, Decision


class Waiting:
    """Time that goes on in pauses; `then` happens in the first."""

    def __init__(self, then: object = None) -> None:
        self.clock, self._then = VirtualClock(), then

    def pause(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now_ns() + int(seconds * 1e9))
        if callable(self._then):
            then, self._then = self._then, None
            then()


def _worker(store: object, rank: int, of: int, waiting: Waiting | None = None) -> Agreement:
    waiting = waiting or Waiting()
    return Agreement(store, "job", rank, tuple(range(of)), deadline_s=5.0, clock=waiting.clock, pause=waiting.pause)


def test_when_all_have_left_all_go_on_from_the_same_results() -> None:
    store = dist.HashStore()
    decisions: list[Decision] = []
    other = _worker(store, 1, 2)
    waiting = Waiting(lambda: decisions.append(other.settle(6, "I had to")))
    assert other.called() is None
    decisions.append(_worker(store, 0, 2, waiting).settle(4, "no answer"))
    assert other.called() == "worker 0: no answer"
    assert decisions == [Decision((0, 1), (4, 6), "worker 0: no answer")] * 2
    assert decisions[0].source == 1
    assert waiting.clock.now_ns() < 5e9


def test_whoever_has_not_left_by_the_deadline_is_left_behind_and_told() -> None:
    store = dist.HashStore()
    first = Waiting(lambda: _spawned(store))
    assert _worker(store, 0, 3, first).settle(4, "no answer") == Decision((0, 1), (4, 4), "worker 0: no answer")
    assert first.clock.now_ns() >= 5e9
    with pytest.raises(AllReduceError, match="workers 0, 1 went on without worker 2"):
        _worker(store, 2, 3).settle(4, "late")


def _spawned(store: object) -> None:
    store.set("job/1", "4")  # type: ignore[attr-defined]


@pytest.mark.parametrize(("here", "of"), [(1, 2), (2, 4), (1, 3)])
def test_no_more_than_half_never_go_on(here: int, of: int) -> None:
    store = dist.HashStore()
    for rank in range(1, here):
        store.set(f"job/{rank}", "4")
    missing = ", ".join(str(rank) for rank in range(here, of))
    with pytest.raises(
        AllReduceError, match=f"waited 5 s for workers {missing} to go on .* {here} of {of} are no majority"
    ):
        _worker(store, 0, of).settle(4, "no answer")


def test_the_first_proposal_wins() -> None:
    store = dist.HashStore()
    store.set("job/1", "7")
    store.set("job/decided", "0,1")
    assert _worker(store, 0, 3).settle(7, "no answer").ranks == (0, 1)
