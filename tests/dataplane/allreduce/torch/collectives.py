"""The workers of tests/dataplane/allreduce/torch/test_process_group.py: WORLD FOLDER PORT; each leaves FOLDER/RANK.pt.

Everything runs by gloo and by the backend millrace; what DistributedDataParallel does, by the hook as well.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.nn.parallel import DistributedDataParallel

from dataplane.allreduce.engine import EngineSettings
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.torch import MillraceState, attach
from dataplane.allreduce.torch.forking import fork_workers
from dataplane.allreduce.torch.group.process_group import MillraceProcessGroup
from dataplane.errors import AllReduceError
from tests.dataplane.allreduce.torch.dying_switch import CELLS

DEFAULT, SECOND, DESERTED = 1, 2, 3
SUMMED = {
    "sum_float32": (torch.float32, dist.ReduceOp.SUM),
    "sum_float16": (torch.float16, dist.ReduceOp.SUM),
    "sum_bfloat16": (torch.bfloat16, dist.ReduceOp.SUM),
    "mean_float32": (torch.float32, dist.ReduceOp.AVG),
    "mean_bfloat16": (torch.bfloat16, dist.ReduceOp.AVG),
    "sum_int32": (torch.int32, dist.ReduceOp.SUM),
    "sum_float64": (torch.float64, dist.ReduceOp.SUM),
    "max_int64": (torch.int64, dist.ReduceOp.MAX),
}
COPIED = ("float32", "float64", "bfloat16", "int64", "bool")
Results = dict[str, Any]


def values(rank: int, kind: torch.dtype, *shape: int, scale: float = 8.0) -> torch.Tensor:
    """Return a rank's values, with a negative zero, whose bits are the least int32."""
    chance = torch.Generator().manual_seed(rank)
    drawn = (torch.randn(*shape, generator=chance) * scale).to(kind)
    drawn.view(-1)[:1] = -0.0 if kind.is_floating_point else 1
    return drawn


def sums(group: dist.ProcessGroup, rank: int, world: int) -> Iterator[tuple[str, Any]]:
    for name, (kind, op) in SUMMED.items():
        tensor = values(rank, kind, 30, 20).t()
        dist.all_reduce(tensor, op, group=group)
        yield name, tensor
    tensor = values(rank, torch.float32, 7)
    dist.reduce(tensor, 1, group=group)
    yield "reduce", tensor if rank == 1 else None
    several = [values(rank, torch.float32, 5), values(rank, torch.float32, 2, 2)]
    with dist._coalescing_manager(group):
        for tensor in several:
            dist.all_reduce(tensor, group=group)
    yield "all_reduce_coalesced", several
    output = torch.empty(2, 3)
    dist.reduce_scatter_single(output, values(rank, torch.float32, 2 * world, 3), group=group)
    yield "reduce_scatter_single", output
    outputs = [torch.empty(2), torch.empty(1)]
    with dist._coalescing_manager(group):
        for tensor in outputs:
            dist.reduce_scatter_single(tensor, values(rank, torch.float32, tensor.numel() * world), group=group)
    yield "reduce_scatter_coalesced", outputs
    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, [values(rank, torch.float32, each + 1) for each in range(world)], group=group)
    yield "reduce_scatter", output
    empty = torch.empty(0, 3)
    dist.all_reduce(empty, group=group)
    yield "sum_of_nothing", empty
    dense = torch.zeros(8, 4)
    dense[rank], dense[rank + 2] = 1.0, 2.0
    sparse = dense.to_sparse(1)
    dist.all_reduce(sparse, group=group)
    yield "sum_sparse", sparse.to_dense()


def copies(group: dist.ProcessGroup, rank: int, world: int) -> Iterator[tuple[str, Any]]:
    for name in COPIED:
        kind = getattr(torch, name)
        tensor = values(rank, kind, 3, 5)
        dist.broadcast(tensor, 2, group=group)
        yield f"broadcast_{name}", tensor
        parts = [torch.zeros(3, dtype=kind) for _ in range(world)]
        dist.all_gather(parts, values(rank, kind, 3), group=group)
        yield f"all_gather_{name}", parts
    output = torch.empty(world * 2, 3)
    dist.all_gather_single(output, values(rank, torch.float32, 2, 3), group=group)
    yield "all_gather_single", output
    outputs = [torch.empty(world * 2), torch.empty(world)]
    with dist._coalescing_manager(group):
        for tensor in outputs:
            dist.all_gather_single(tensor, values(rank, torch.float32, tensor.numel() // world), group=group)
    yield "all_gather_coalesced", outputs
    empty = torch.empty(0)
    dist.broadcast(empty, 1, group=group)
    yield "broadcast_of_nothing", empty
    dist.barrier(group=group)
    objects: list[Any] = [None] * world
    dist.all_gather_object(objects, {"rank": rank}, group=group)
    yield "objects", objects


def others(group: dist.ProcessGroup, rank: int, world: int) -> Iterator[tuple[str, Any]]:
    output = torch.empty(world)
    dist.all_to_all_single(output, values(rank, torch.float32, world), group=group)
    yield "all_to_all_single", output
    tensor = torch.empty(2)
    dist.scatter(tensor, [values(each, torch.float32, 2) for each in range(world)] if rank == 0 else None, group=group)
    yield "scatter", tensor
    parts = [torch.empty(2) for _ in range(world)] if rank == 1 else None
    dist.gather(values(rank, torch.float32, 2), parts, 1, group=group)
    yield "gather", parts
    if rank == 0:
        dist.send(values(rank, torch.float32, 4), 1, group=group)
    elif rank == 1:
        received = torch.empty(4)
        dist.recv(received, 0, group=group)
        yield "received", received


class Branches(torch.nn.Module):  # type: ignore[misc]
    """A net of which a worker uses one branch; the third is nobody's."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))

    def forward(self, images: torch.Tensor, branch: int) -> torch.Tensor:
        """Use one branch."""
        used: torch.Tensor = self.branches[branch](images)
        return used


class Mixed(torch.nn.Module):  # type: ignore[misc]
    """Parameters of several formats, one of them without elements."""

    def __init__(self, *formats: torch.dtype) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4, dtype=each) for each in formats)
        self.nothing = torch.nn.Parameter(torch.empty(0))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Add up all layers."""
        sums = [layer(images.to(layer.weight.dtype)).float() for layer in self.layers]
        return torch.stack(sums).sum(dim=0) + self.nothing.sum()


Wrap = Callable[..., DistributedDataParallel]
_TWO = (torch.float32, torch.bfloat16, torch.float16)


def join(wrap: Wrap, rank: int) -> torch.nn.Module:
    """Train on more inputs, the higher the rank."""
    model = wrap(torch.nn.Linear(4, 2))
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    with model.join():
        for at in range(2 + rank):
            step(model, steps, inputs(rank, at))
    return model


def no_sync(wrap: Wrap, rank: int) -> torch.nn.Module:
    """Accumulate the gradients of two batches before each step."""
    model = wrap(torch.nn.Linear(4, 2))
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for at in range(2):
        with model.no_sync():
            model(inputs(rank, at + 5)).square().mean().backward()
        step(model, steps, inputs(rank, at))
    return model


def unused(wrap: Wrap, rank: int) -> torch.nn.Module:
    """Leave out parameters, others at each worker."""
    model = wrap(Branches(), find_unused_parameters=True)
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for at in range(3):
        step(model, steps, inputs(rank, at), (rank + at) % 2)
    return model


def sparse(wrap: Wrap, rank: int) -> torch.nn.Module:
    """Train an embedding with sparse gradients."""
    model = wrap(torch.nn.Sequential(torch.nn.EmbeddingBag(40, 8, sparse=True), torch.nn.Linear(8, 2)))
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for at in range(3):
        chance = torch.Generator().manual_seed(10 * rank + at)
        step(model, steps, torch.randint(0, 40, (2, 3), generator=chance))
    return model


def mixed(wrap: Wrap, rank: int) -> torch.nn.Module:
    """Train layers of three formats and a parameter of size zero."""
    model = wrap(Mixed(*_TWO))
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for at in range(3):
        step(model, steps, inputs(rank, at))
    return model


def buffers(wrap: Wrap, rank: int) -> torch.nn.Module:
    """Train with BatchNorm, whose statistics are those of rank 0."""
    model = wrap(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)), forward_sync_buffers=True)
    steps = torch.optim.SGD(model.parameters(), lr=0.1)
    for at in range(3):
        step(model, steps, inputs(rank, at))
    model.eval()
    model(torch.ones(1, 4))  # the statistics are sent before the next pass
    return model


TRAININGS = {each.__name__: each for each in (join, no_sync, unused, sparse, mixed, buffers)}


def inputs(rank: int, at: int) -> torch.Tensor:
    """Return a rank's batch."""
    return values(10 * rank + at, torch.float32, 3, 4, scale=0.5)


def step(model: torch.nn.Module, steps: torch.optim.Optimizer, *inputs: Any) -> None:
    steps.zero_grad()
    model(*inputs).float().square().mean().backward()
    steps.step()


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def shard(mesh: DeviceMesh, rank: int) -> dict[str, torch.Tensor]:
    """Train with fully_shard, and return whole parameters."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))
    fully_shard(net[0], mesh=mesh)
    fully_shard(net, mesh=mesh)
    steps = torch.optim.SGD(net.parameters(), lr=0.1)
    for at in range(3):
        step(net, steps, inputs(rank, at))
    whole = {}
    for name, parameter in net.named_parameters():
        assert isinstance(parameter, DTensor)
        whole[name] = parameter.full_tensor().detach()
    return whole


def tensor_parallel(mesh: DeviceMesh, rank: int) -> torch.Tensor:
    """Return the sum of a tensor's parts, by the functional collectives."""
    parts = DTensor.from_local(values(rank, torch.float32, 4, 4), mesh, [Partial()])
    return parts.redistribute(mesh, [Replicate()]).to_local()


def run_all(group: dist.ProcessGroup, rank: int, world: int, mesh: DeviceMesh) -> Results:
    results: Results = {}
    for each in (sums, copies, others):
        results |= dict(each(group, rank, world))
    for name, training in TRAININGS.items():
        torch.manual_seed(0)
        results[name] = state_of(training(partial(DistributedDataParallel, process_group=group), rank))
    results["fully_shard"] = shard(mesh, rank)
    results["tensor_parallel"] = tensor_parallel(mesh, rank)
    return results


def by_hook(state: MillraceState, gloo: dist.ProcessGroup, rank: int) -> Results:
    def wrap(net: torch.nn.Module, **options: Any) -> DistributedDataParallel:
        model = DistributedDataParallel(net, process_group=gloo, **options)
        attach(model, state)
        return model

    results: Results = {}
    for name, training in TRAININGS.items():
        torch.manual_seed(0)
        results[name] = state_of(training(wrap, rank))
    return results


def hang(folder: Path, second: dist.ProcessGroup, rank: int, world: int) -> None:
    """Leave rank 0 out of the last collective of the second group, until all have written their flight records."""
    if rank:
        dist.all_reduce(values(rank, torch.float32, 9), group=second, async_op=True)
    store = dist.group.WORLD.get_group_store()
    store.set(f"hangs/{rank}", "")
    store.wait([f"hangs/{each}" for each in range(world)])
    assert isinstance(second, MillraceProcessGroup)
    second.state.flight_recorder.write(f"{folder}/records/worker_")


def desert(group: dist.ProcessGroup, rank: int) -> Results:
    """Return what the others get after the highest rank has left."""
    mean, values = torch.full((3,), float(rank)), torch.ones(2)
    dist.all_reduce(mean, dist.ReduceOp.AVG, group=group)
    results: Results = {"mean": mean}
    calls: dict[str, Callable[[], object]] = {
        "broadcast": partial(dist.broadcast, values, 2, group=group),
        "all_gather": partial(dist.all_gather_single, torch.empty(6), values, group=group),
    }
    for name, call in calls.items():
        try:
            call()
        except AllReduceError as error:
            results[name] = str(error)
    dist.broadcast(values, 0, group=group)
    dist.barrier(group=group)
    return results


def work(world: int, folder: Path, port: int, rank: int) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.basicConfig(filename=folder / f"{rank}.log", level=logging.INFO)

    def connect(job: int, group: dist.ProcessGroup) -> MillraceState:
        patience_s = 0.5 if job == DESERTED else 30
        settings = EngineSettings("127.0.0.1", job, CELLS // 2, world, epoch=1, port=port, patience_s=patience_s)
        return MillraceState(JobEngine(settings), group, deadline_s=60, agreement_s=4)

    dist.init_process_group(
        "millrace",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        pg_options=partial(connect, DEFAULT),
    )
    ours, gloo = dist.group.WORLD, dist.new_group(backend="gloo")
    assert isinstance(ours, MillraceProcessGroup)
    second = dist.new_group(pg_options=partial(connect, SECOND), group_desc="second")
    few = dist.new_group([0, 1])
    deserted = dist.new_group(pg_options=partial(connect, DESERTED))
    results: Results = {
        "gloo": run_all(gloo, rank, world, DeviceMesh.from_group(gloo, "cpu")),
        "millrace": run_all(ours, rank, world, init_device_mesh("cpu", (world,))),
        "hook": by_hook(ours.state, gloo, rank),
    }
    assert isinstance(ours.state._reducer, JobEngine)
    results["by_ring"] = ours.state.is_by_ring
    results["calls"] = [entry["profiling_name"] for entry in ours.state.flight_recorder.dump()["entries"]]
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=second)
    results["second"] = tensor
    if rank < 2:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=few)
        results["few"] = tensor
    hang(folder, second, rank, world)
    if rank != world - 1:
        results["deserted"] = desert(deserted, rank)
    torch.save(results, folder / f"{rank}.pt")
    store = dist.group.WORLD.get_group_store()
    store.set(f"done/{rank}", "")
    store.wait([f"done/{each}" for each in range(world)])
    second.abort()
    dist.destroy_process_group()


def main(world: int, folder: Path, port: int) -> int:
    """Return how many workers failed; the first that does ends the others, which would wait for it."""
    started = fork_workers(range(world), partial(work, world, folder, port))
    going = {process.sentinel: process for process in started.values()}
    while going:
        ready = connection.wait(list(going))
        for ended in [going.pop(sentinel) for sentinel in list(going) if sentinel in ready]:
            ended.join()  # its sentinel is ready a moment before its exit status
            if ended.exitcode:
                for process in going.values():
                    process.kill()
    return sum(process.exitcode != 0 for process in started.values())


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))
