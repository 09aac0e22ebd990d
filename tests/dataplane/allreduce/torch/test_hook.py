"""One process: the hook does not block; order, formats, layouts, and final errors."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dataplane.allreduce.errors import SaturatedError
from dataplane.clock import VirtualClock
from dataplane.errors import AllReduceError

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dataplane.allreduce.torch import MillraceState, all_reduce, attach, millrace_hook
from dataplane.allreduce.torch.agreement import Decision
from tests.dataplane.allreduce.torch.reducers import Doubling, failing


@pytest.fixture
def single_worker(tmp_path: Path) -> Iterator[None]:
    """A group of one worker."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_nothing_but_the_hook_imports_pytorch() -> None:
    code = "import sys, dataplane.allreduce.main_server.server; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.usefixtures("single_worker")
def test_backward_pass_begins_all_buckets_before_waiting() -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(20, 20) for _ in range(6)])
    model = DistributedDataParallel(net, bucket_cap_mb=0.001)
    reducer = Doubling()
    buckets = []
    futures = []

    def hook(state: MillraceState, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        future = millrace_hook(state, bucket)
        buckets.append(bucket.index())
        futures.append(future)
        if bucket.is_last():
            assert not any(future.done() for future in futures)
            reducer.let_go()
        return future

    hook.__annotations__.clear()  # which here are text
    images = torch.ones(1, 20)
    with MillraceState(reducer, deadline_s=5) as state:
        model.register_comm_hook(state, hook)
        for _ in range(2):  # buckets have their final size from the second step on
            buckets.clear()
            futures.clear()
            net.zero_grad()
            reducer.hold()
            model(images).sum().backward()
    assert buckets == list(range(len(buckets)))
    assert len(buckets) == 6
    mine = [part.grad.clone() for part in net.parameters()]
    net.zero_grad()
    net(images).sum().backward()
    for by_hook, plain in zip(mine, net.parameters(), strict=True):
        assert torch.equal(by_hook, plain.grad * 2)


def test_one_is_under_way_at_a_time_and_results_come_in_order() -> None:
    reducer = Doubling(held=True)
    done: list[int] = []
    with MillraceState(reducer, deadline_s=5) as state:
        futures = [all_reduce(torch.full((2,), float(at)), state) for at in range(6)]
        for at, future in enumerate(futures):
            future.add_done_callback(lambda _, at=at: done.append(at))
        reducer.end(1)
        reducer.wait_until_asked(1)
        assert not done
        assert len(reducer.asked) == 1
        reducer.end(0)
        reducer.wait_until_asked(3)
        assert done == [0, 1]
        reducer.let_go()
        assert [future.wait().tolist() for future in futures] == [[2.0 * at] * 2 for at in range(6)]
    assert done == list(range(6))
    assert reducer.closed


@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16])
def test_tensors_of_any_layout_are_filled_in_place(kind: torch.dtype) -> None:
    whole = torch.arange(24).reshape(4, 6).to(kind)
    part = whole[::2, 1::2].t()
    with MillraceState(Doubling()) as state:
        assert all_reduce(part, state).wait() is part
    assert part.dtype == kind
    assert whole[::2, 1::2].tolist() == [[2, 6, 10], [26, 30, 34]]
    assert whole[1].tolist() == [6, 7, 8, 9, 10, 11]


def test_an_empty_tensor_asks_nobody() -> None:
    reducer = Doubling()
    with MillraceState(reducer) as state:
        assert all_reduce(torch.empty(0, 3), state).wait().shape == (0, 3)
    assert not reducer.asked


@pytest.mark.parametrize("kind", [torch.float64, torch.int64])
def test_other_formats_are_refused(kind: torch.dtype) -> None:
    with MillraceState(Doubling()) as state, pytest.raises(AllReduceError, match=f"{kind} on cpu"):
        all_reduce(torch.ones(3, dtype=kind), state)


@pytest.mark.usefixtures("single_worker")
@pytest.mark.parametrize("kind", [torch.float64, torch.complex64])
def test_attach_refuses_parameters_of_other_formats(kind: torch.dtype) -> None:
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, dtype=kind))
    with MillraceState(None) as state:
        with pytest.raises(AllReduceError, match=rf"parameter 1\.weight is of {kind} on cpu: only gradients"):
            attach(DistributedDataParallel(net), state)
        net[1].weight.requires_grad_(False)  # frozen: it has no gradient
        DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["1.bias"])
        attach(DistributedDataParallel(net), state)


def test_integers_have_no_mean() -> None:
    with MillraceState(Doubling()) as state, pytest.raises(AllReduceError, match="no mean"):
        state.submit(torch.ones(3, dtype=torch.int32), mean=True)


@pytest.mark.usefixtures("single_worker")
def test_integer_sums_are_exact_and_saturation_is_not_fatal() -> None:
    reducer = Doubling()
    reducer.end(0, SaturatedError("overflowed int32"))
    reducer.end(2, AllReduceError("no answer"))
    with MillraceState(reducer, deadline_s=5) as state:
        futures = [all_reduce(torch.full((2,), 2**29 + 1, dtype=torch.int32), state) for _ in range(3)]
        with pytest.raises(SaturatedError, match="all-reduce 0"):
            futures[0].wait()
        assert futures[1].wait().tolist() == [2**30 + 2] * 2
        assert futures[2].wait().tolist() == [2**29 + 1] * 2
        assert state.is_by_ring


def test_failure_without_a_group_is_raised_by_every_later_call() -> None:
    with MillraceState(Doubling(held=True), deadline_s=0.01) as state:
        futures = [all_reduce(torch.ones(3), state) for _ in range(6)]
        for future in [*futures, all_reduce(torch.ones(3), state)]:
            with pytest.raises(
                AllReduceError, match=r"waited 0\.01 s for the switch's result of all-reduce 0; and there"
            ):
                future.wait()


def test_a_closed_state_refuses() -> None:
    state = MillraceState(Doubling())
    state.close()
    with pytest.raises(AllReduceError, match="closed"):
        all_reduce(torch.ones(3), state).wait()


@pytest.mark.usefixtures("single_worker")
def test_failed_reducer_is_closed_and_its_work_goes_to_the_ring() -> None:
    reducer = failing(1, AllReduceError("no route to host"))
    with MillraceState(reducer, deadline_s=5) as state:
        futures = [all_reduce(torch.full((3,), float(at)), state) for at in range(3)]
        assert [future.wait().tolist() for future in futures] == [[0.0] * 3, [1.0] * 3, [2.0] * 3]
        assert state.is_by_ring
    assert reducer.closed


@pytest.mark.usefixtures("single_worker")
def test_worker_with_results_learns_that_another_has_left() -> None:
    clock, reducer = VirtualClock(), Doubling()
    with MillraceState(reducer, deadline_s=5, clock=clock) as state:
        assert all_reduce(torch.ones(2), state).wait().tolist() == [2, 2]
        assert state._agreement is not None
        state._agreement._store.set(state._agreement._key("call/1"), "0 no answer")
        clock.advance_to(1_000_000_000)
        assert all_reduce(torch.ones(2), state).wait().tolist() == [1, 1]
        assert state.is_by_ring


@pytest.mark.usefixtures("single_worker")
def test_worker_too_far_behind_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    decided = Decision((0, 1), (0, 5), "worker 1: no answer")
    monkeypatch.setattr("dataplane.allreduce.torch.ordered.Agreement.settle", lambda *_, **__: decided)
    with (
        MillraceState(None) as state,
        pytest.raises(AllReduceError, match="a worker is 5 results behind"),
    ):
        all_reduce(torch.ones(2), state).wait()


@pytest.mark.usefixtures("single_worker")
def test_backward_pass_without_a_ring_raises_its_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_ring(*_: object) -> None:
        raise AllReduceError("no ring of workers 0 within 5 s")

    monkeypatch.setattr("dataplane.allreduce.torch.ordered.Ring", no_ring)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    with MillraceState(None) as state:
        model.register_comm_hook(state, millrace_hook)
        with pytest.raises(Exception, match="no ring of workers 0 within 5 s"):
            model(torch.ones(1, 4)).sum().backward()
