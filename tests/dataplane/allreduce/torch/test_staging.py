"""Tensors outside the host's memory are copied there and back; simulated where there is no GPU."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dataplane.errors import AllReduceError

if importlib.util.find_spec("torch") is None:
    pytest.skip("needs PyTorch", allow_module_level=True)

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dataplane.allreduce.torch import MillraceState, all_reduce, millrace_hook, staging
from tests.dataplane.allreduce.torch.reducers import Doubling, failing


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat all tensors as being on another device than the reducer."""
    monkeypatch.setattr(staging, "_is_on_host", lambda _: False)
    monkeypatch.setattr(staging, "_empty_on_host", lambda tensor: torch.empty(tensor.shape, dtype=tensor.dtype))


@pytest.fixture
def single_worker(tmp_path: Path) -> Iterator[None]:
    """A group of one worker."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("kind", [torch.float32, torch.float16, torch.bfloat16, torch.int32])
def test_a_tensor_of_any_layout_is_copied_and_filled(kind: torch.dtype) -> None:
    whole = torch.arange(24).reshape(4, 6).to(kind)
    part = whole[::2, 1::2].t()
    reducer = Doubling()
    with MillraceState(reducer) as state:
        assert all_reduce(part, state).wait() is part
    assert whole[::2, 1::2].tolist() == [[2, 6, 10], [26, 30, 34]]
    assert whole[1].tolist() == [6, 7, 8, 9, 10, 11]
    assert not np.shares_memory(reducer.asked[0], whole.view(torch.int8).numpy())


@pytest.mark.usefixtures("elsewhere", "single_worker")
def test_the_ring_has_the_values_as_they_were_given() -> None:
    tensors = [torch.full((3,), float(at)) for at in range(4)]
    with MillraceState(failing(2), deadline_s=5) as state:
        futures = [all_reduce(tensor, state) for tensor in tensors]
        assert [future.wait()[0].item() for future in futures] == [0, 2, 2, 3]
    assert [tensor[0].item() for tensor in tensors] == [0, 2, 2, 3]


def test_other_devices_are_refused() -> None:
    with (
        MillraceState(Doubling()) as state,
        pytest.raises(AllReduceError, match=r"float32 on meta, .*: only"),
    ):
        all_reduce(torch.empty(3, device="meta"), state)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.int32])
def test_sparse_tensor_gives_a_new_one_with_the_nonzero_rows(kind: torch.dtype) -> None:
    dense = torch.zeros(6, 4, dtype=kind)
    dense[1], dense[4, 2] = 1, 3
    twice = dense.to_sparse(1)
    given = torch.sparse_coo_tensor(
        torch.cat([twice.indices(), torch.tensor([[1, 0]])], dim=1),
        torch.cat([twice.values(), torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0]], dtype=kind)]),
        (6, 4),
        check_invariants=True,
    )  # not coalesced, and with a row of zeros
    dense[1] = 2
    with MillraceState(Doubling()) as state:
        result = all_reduce(given, state).wait()
    assert result.indices().tolist() == [[1, 4]]
    assert torch.equal(result.to_dense(), dense * 2)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_other_layouts_are_refused() -> None:
    with MillraceState(Doubling()) as state, pytest.raises(AllReduceError, match="sparse_csr: only"):
        all_reduce(torch.ones(2, 2).to_sparse_csr(), state)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.usefixtures("single_worker")
def test_gpu_gradients_are_read_and_written_in_stream_order() -> None:
    net = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)]).cuda()
    model = DistributedDataParallel(net, bucket_cap_mb=1)
    inputs = torch.randn(4096, 512, device="cuda")
    net(inputs).square().sum().backward()
    plain = [part.grad.clone() for part in net.parameters()]
    with MillraceState(Doubling()) as state:
        model.register_comm_hook(state, millrace_hook)
        for _ in range(10):
            net.zero_grad()
            model(inputs).square().sum().backward()
            for part, alone in zip(net.parameters(), plain, strict=True):
                assert torch.equal(part.grad, alone * 2)
