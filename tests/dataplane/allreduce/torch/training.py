"""The workers of tests/dataplane/allreduce/torch/test_training.py: WORLD FOLDER PORT; each leaves FOLDER/RANK.npz."""

from __future__ import annotations

import logging
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from dataplane.allreduce.engine import EngineSettings
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.torch import MillraceState, all_reduce, millrace_hook
from dataplane.allreduce.torch.forking import fork_workers
from dataplane.errors import AllReduceError
from tests.dataplane.allreduce.torch.dying_switch import CELLS

STEPS = 12
LOSSES = {1: 0.05}
SINGLE, DYING, SHORT, DESERTED, SPARSE, FLIPPED = 2, 3, 4, 5, 6, 7
LAST_STEP = 6
ROWS, SPARSE_STEPS = 512, 3
FORMATS = ("float32", "float16", "bfloat16")


def train(rank: int, state: MillraceState | None, last_step: int = STEPS) -> tuple[list[float], np.ndarray]:
    """Return the loss of each step and all parameters at the end."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 16), torch.nn.Linear(16, 4)
    )
    model = DistributedDataParallel(net, bucket_cap_mb=0.004)
    if state is not None:
        model.register_comm_hook(state, millrace_hook)
    steps = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    chance = torch.Generator().manual_seed(100 + rank)
    losses = []
    for _ in range(last_step):
        images = torch.randn(8, 1, 8, 8, generator=chance)
        kinds = (images.mean(dim=(1, 2, 3)) > 0).long() + 2 * (images[:, 0, 0, 0] > 0).long()
        loss = torch.nn.functional.cross_entropy(model(images), kinds)
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.item())
    return losses, parameters(net)


def parameters(net: torch.nn.Module) -> np.ndarray:
    whole: np.ndarray = torch.cat([part.detach().reshape(-1) for part in net.parameters()]).numpy()
    return whole


def train_sparse(rank: int, state: MillraceState | None) -> np.ndarray:
    """Return the parameters after three steps that touch few rows of a table, each row a block."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.EmbeddingBag(ROWS, 256, sparse=True), torch.nn.Linear(256, 1))
    model = DistributedDataParallel(net)
    if state is not None:
        model.register_comm_hook(state, millrace_hook)
    steps = torch.optim.SGD(model.parameters(), lr=0.05)
    chance = torch.Generator().manual_seed(100 + rank)
    for _ in range(SPARSE_STEPS):
        steps.zero_grad()
        model(torch.randint(0, ROWS, (2, 3), generator=chance)).square().sum().backward()
        steps.step()
    return parameters(net)


def single(rank: int, kind: str) -> torch.Tensor:
    """Return a worker's tensor, which is not contiguous."""
    chance = torch.Generator().manual_seed(rank)
    return torch.randn(40, 30, generator=chance).to(getattr(torch, kind)).t()


def work(world: int, folder: Path, port: int, rank: int) -> None:
    torch.set_num_threads(1)
    logging.basicConfig(filename=folder / f"{rank}.log", level=logging.INFO)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    results: dict[str, Any] = {}

    def keep(name: str, trained: tuple[list[float], np.ndarray]) -> None:
        results[f"{name}_losses"], results[f"{name}_parameters"] = trained

    def state(job: int, patience_s: float = 30.0, agreement_s: float = 60.0) -> MillraceState:
        settings = EngineSettings("127.0.0.1", job, CELLS // 2, world, epoch=1, port=port, patience_s=patience_s)
        return MillraceState(JobEngine(settings), deadline_s=60, agreement_s=agreement_s)

    keep("gloo", train(rank, None))
    for job in LOSSES:
        with state(job) as switch:
            keep(f"job{job}", train(rank, switch))
            results[f"job{job}_by_ring"] = switch.is_by_ring
    with state(SINGLE) as switch:
        for kind in FORMATS:
            results[kind] = all_reduce(single(rank, kind), switch, mean=True).wait().float().numpy()
        empty = all_reduce(torch.empty(0), switch).wait()
        results["empty"] = empty.numpy()
    results["sparse_by_gloo"] = train_sparse(rank, None)
    with state(SPARSE) as switch:
        results["sparse"] = train_sparse(rank, switch)
        assert isinstance(switch._reducer, JobEngine)
        statistics = switch._reducer.statistics
        results["sparse_sent"] = statistics.sent - statistics.repeated  # doubtful items went twice
    with MillraceState(None) as ring:
        results["sparse_by_ring"] = train_sparse(rank, ring)
    with state(SHORT, 0.5) as switch:
        ones = [all_reduce(torch.full((256,), float(rank + at)), switch) for at in range(8)]
        results["short"] = np.array([future.wait().numpy() for future in ones])
    with MillraceState(None) as ring:
        sums = [all_reduce(torch.full((2,), 2**29 - at, dtype=torch.int32), ring) for at in range(2)]
        try:
            sums[0].wait()
        except AllReduceError as error:
            results["beyond"] = str(error)
        results["integers"] = sums[1].wait().numpy()
    with state(DYING, 0.5) as switch:
        keep("dying", train(rank, switch))
    with state(FLIPPED) as switch:
        keep("flipped", train(rank, switch))
        assert isinstance(switch._reducer, JobEngine)
        results["flipped_corrupt"] = switch._reducer.statistics.corrupt
    with MillraceState(None, reason="the job has no cells") as ring:
        keep("ring", train(rank, ring))
    deserted = state(DESERTED, 0.5, 4.0)
    if rank == world - 1:
        train(rank, deserted, LAST_STEP)
    else:
        keep("deserted", train(rank, deserted))
        results["deserted_mean"] = all_reduce(torch.ones(3), deserted, mean=True).wait().numpy()
    np.savez(folder / f"{rank}.npz", **results)
    logging.shutdown()
    os._exit(0)  # a group whose members are gone cannot be left cleanly


def main(world: int, folder: Path, port: int) -> int:
    """Return how many workers failed."""
    started = fork_workers(range(world), partial(work, world, folder, port)).values()
    for process in started:
        process.join()
    return sum(process.exitcode != 0 for process in started)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
