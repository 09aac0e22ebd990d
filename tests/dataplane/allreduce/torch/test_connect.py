"""Worker states of a managed job: refused, removed, last one left, ended abruptly."""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from dataplane.allreduce.errors import JobRefusedError, RemovedError
from dataplane.allreduce.membership import Membership
from dataplane.errors import AllReduceError

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist

from dataplane.allreduce.torch import MillraceState, all_reduce, attach, millrace_hook
from dataplane.allreduce.torch.agreement import Voters
from dataplane.allreduce.torch.roster import Roster
from dataplane.allreduce.torch.state import _at_exit
from tests.dataplane.allreduce.torch.reducers import Doubling


class Member:
    """A member of a job of two."""

    def __init__(self) -> None:
        self.engine, self.closed = Doubling(held=True), 0
        self.members = ("h1", "h2")
        self.problem: AllReduceError | None = None

    def close(self) -> None:
        self.closed += 1

    def boundary(self) -> bool:
        if self.problem is not None:
            raise self.problem
        return True

    def share(
        self, values: NDArray[np.uint8], add_up: Callable[[NDArray[np.int32]], NDArray[np.int32]]
    ) -> NDArray[np.uint8]:
        padded = np.frombuffer(values.tobytes() + bytes(-values.size % 4), np.int32)
        return add_up(padded + 0x01010101).view(np.uint8)[: values.size]


@pytest.fixture
def single_worker(tmp_path: Path) -> Iterator[None]:
    """A group of one worker."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def member(monkeypatch: pytest.MonkeyPatch) -> Member:
    joined = Member()
    monkeypatch.setattr(Membership, "join", lambda *_, **__: joined)
    return joined


def connect(**more: Any) -> MillraceState:
    return MillraceState.connect("unix:/nowhere", job="resnet", host="h1", workers=2, **more)


def refuse(*_: Any, **__: Any) -> NoReturn:
    raise JobRefusedError("job resnet: no switch has cells for it")


@pytest.mark.usefixtures("single_worker")
def test_who_is_refused_goes_by_the_ring_and_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Membership, "join", refuse)
    with connect() as state:
        assert all_reduce(torch.ones(2), state).wait().tolist() == [1, 1]
        assert state.is_by_ring
    assert "not the switch: worker 0: job resnet: no switch has cells for it" in caplog.text


@pytest.mark.usefixtures("single_worker")
def test_where_no_service_answers_the_ring_adds_up(caplog: pytest.LogCaptureFixture) -> None:
    with connect(join_s=0.1) as state:
        assert all_reduce(torch.ones(2), state).wait().tolist() == [1, 1]
    assert "unix:/nowhere" in caplog.text


def test_who_is_refused_and_has_no_group_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "join", refuse)
    with pytest.raises(JobRefusedError, match="no switch has cells"):
        connect()


@pytest.mark.usefixtures("single_worker")
def test_removed_worker_fails_without_stopping_the_others(member: Member) -> None:
    with connect() as state:
        future = all_reduce(torch.ones(2), state)
        member.engine.end(0, RemovedError("h1 was silent for 5 s"))
        with pytest.raises(RemovedError, match="silent"):
            future.wait()
        state._all_reduces._thread.join()
        assert state._agreement is not None
        assert state._agreement.called() is None


@pytest.mark.usefixtures("single_worker")
def test_isolated_worker_does_not_train_on_alone(member: Member) -> None:
    with connect() as state:
        future = all_reduce(torch.ones(2), state)
        member.engine.end(0, AllReduceError("switch s1 is gone"))
        with pytest.raises(AllReduceError, match="switch s1 is gone; 1 of 2 workers are not a majority"):
            future.wait()
    assert member.closed


@pytest.mark.usefixtures("single_worker")
def test_an_exception_in_the_training_waits_for_nobody(member: Member) -> None:
    class TrainingError(Exception):
        pass

    state = connect()
    futures = [all_reduce(torch.ones(2), state) for _ in range(6)]
    with pytest.raises(TrainingError), state:
        raise TrainingError
    for future in futures:
        with pytest.raises(AllReduceError, match="closed before there was a result"):
            future.wait()
    assert not state._all_reduces._thread.is_alive()
    assert member.engine.closed
    assert member.closed


@pytest.mark.usefixtures("single_worker")
def test_what_is_left_open_is_let_go_at_the_end_of_the_process(member: Member) -> None:
    state = connect()
    _at_exit()
    assert member.closed
    assert not state._all_reduces._thread.is_alive()


@pytest.mark.usefixtures("single_worker")
def test_between_steps_newcomers_are_met_and_given_what_there_is(member: Member) -> None:
    member.engine = Doubling(factor=1)
    with connect(boundaries=True) as state:
        assert state.boundary()
        tensors = [torch.zeros(2, 2, dtype=torch.int64), torch.zeros(3, dtype=torch.bfloat16).t(), torch.empty(0)]
        state.share(tensors)
        assert tensors[0].tolist() == [[0x0101010101010101] * 2] * 2
        assert tensors[1].view(torch.int16).tolist() == [0x0101] * 3
        member.problem = AllReduceError("the job has ended")
        assert not state.boundary()
        member.problem = RemovedError("h1 was silent for 5 s")
        with pytest.raises(RemovedError):
            state.boundary()


def test_boundary_and_share_need_a_job_service() -> None:
    with MillraceState(Doubling(held=True)) as state:
        assert not state.boundary()
        with pytest.raises(AllReduceError, match="share needs a job service"):
            state.share([])


def test_voters_are_members_and_workers_with_an_unknown_host() -> None:
    store, members = dist.HashStore(), ["h1", "h2", "h3", "h9"]
    rosters = [
        Roster(store, "job", rank, (0, 1, 2, 3), host=f"h{rank + 1}", members=lambda: members) for rank in (0, 1)
    ]
    assert rosters[0].voters() == Voters((0, 1, 2, 3), 4)
    store.set("job/host/3", "h4")
    assert rosters[0].voters() == Voters((0, 1, 2), 4)
    members.remove("h2")
    assert rosters[1].voters() == Voters((0, 2), 3)


@pytest.mark.parametrize(
    ("asked", "warned"),
    [
        ({}, ""),
        ({"forward_sync_buffers"}, "forward_sync_buffers=True"),
        (
            {"forward_sync_buffers", "find_unused_parameters"},
            "forward_sync_buffers=True and find_unused_parameters=True",
        ),
    ],
)
def test_the_log_says_what_of_the_model_would_wait_for_the_dead(
    caplog: pytest.LogCaptureFixture, asked: set[str], warned: str
) -> None:
    hooks: list[Any] = []
    model = SimpleNamespace(
        module=torch.nn.BatchNorm1d(2),
        parameters_to_ignore=set(),
        forward_sync_buffers="forward_sync_buffers" in asked,
        find_unused_parameters="find_unused_parameters" in asked,
        process_group=None,
        register_comm_hook=lambda *given: hooks.append(given),
    )
    with caplog.at_level(logging.WARNING, "millrace"), MillraceState(None) as state:
        attach(model, state)
    assert hooks == [(state, millrace_hook)]
    assert f"DistributedDataParallel with {warned} uses" in caplog.text if warned else not caplog.text
