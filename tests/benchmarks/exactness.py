"""Real gradients by the switch against gloo's: error of each element against fp64, and the loss after many steps.

Four workers in network namespaces around the built-in switch train a transformer, a CNN, and an embedding with sparse
gradients with DistributedDataParallel, by gloo and by the hook, from the same seeds on the same data. Every so many
steps all workers' own gradients are gathered; their mean in fp64 is what both results are compared with. The error of
an element is relative to its own exact value, so it grows where a value is small beside the largest of its block of
256. Losses are those of a held-out batch at the end; the spread of gloo's over the seeds says how much a loss means.

`--control` says how far rounding alone leads: one process trains the CNN with sums in fp32, in fp64 and in the switch's
format, without a network.

Usage: sudo .venv/bin/python tests/benchmarks/exactness.py [--steps N] [--seeds N] [--control]
"""

from __future__ import annotations

import argparse
import itertools
import json
import pickle
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # tests import each other by their full names

import numpy as np
import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.nn.parallel import DistributedDataParallel

from dataplane.allreduce import formats
from dataplane.allreduce.engine import EngineSettings
from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.torch import MillraceState, millrace_hook

WORLD, BATCH, EVERY = 4, 16, 25
WORDS, LENGTH, ROWS, PICKED = 64, 16, 400, 8
RATE_BPS = 1_000_000_000
Batch = tuple[torch.Tensor, torch.Tensor]
Hook = Callable[[Any, dist.GradBucket], "torch.futures.Future[torch.Tensor]"]


class Transformer(torch.nn.Module):  # type: ignore[misc]
    """Two layers that predict each next word of a chain."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, 32)
        self.places = torch.nn.Parameter(torch.zeros(LENGTH, 32))
        layer = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = torch.nn.Linear(32, WORDS)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of each next word."""
        mask = torch.nn.Transformer.generate_square_subsequent_mask(LENGTH)
        hidden = self.layers(self.words(words) + self.places, mask=mask, is_causal=True)
        scores: torch.Tensor = self.head(hidden).flatten(0, 1)
        return scores


def chain(chance: torch.Generator) -> Batch:
    """Return sequences in which a word follows from the one before it, seven times of eight."""
    words = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=chance)
    noise = torch.rand(BATCH, LENGTH + 1, generator=chance) < 1 / 8
    for at in range(1, LENGTH + 1):
        follows = (5 * words[:, at - 1] + 3) % WORDS
        words[:, at] = torch.where(noise[:, at], words[:, at], follows)
    return words[:, :-1], words[:, 1:].flatten()


def cnn() -> torch.nn.Module:
    return torch.nn.Sequential(
        *(torch.nn.Conv2d(1, 16, 3), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3), torch.nn.ReLU()),
        *(torch.nn.Flatten(), torch.nn.Linear(16 * 64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8)),
    )


def images(chance: torch.Generator) -> Batch:
    """Return noisy images of a bright spot, and which of eight places it is at."""
    kinds = torch.randint(0, 8, (BATCH,), generator=chance)
    noise = torch.randn(BATCH, 1, 12, 12, generator=chance)
    for image, kind in zip(noise, kinds.tolist(), strict=True):
        image[0, 3 * (kind // 4) + 2 : 3 * (kind // 4) + 5, 3 * (kind % 4) : 3 * (kind % 4) + 3] += 0.7
    return noise, kinds


def embedding() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.EmbeddingBag(ROWS, 16, sparse=True), torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
    )


def bags(chance: torch.Generator) -> Batch:
    """Return bags of rows, the first ones more often, and the class that most of them are of."""
    rows = (torch.rand(BATCH, PICKED, generator=chance).square() * ROWS).long()
    return rows, torch.nn.functional.one_hot(rows % 4, 4).sum(dim=1).argmax(dim=1)


Parameters = Iterator[torch.nn.Parameter]


@dataclass(frozen=True, slots=True)
class Kind:
    """A model, its data and its optimiser."""

    make: Callable[[], torch.nn.Module]
    batch: Callable[[torch.Generator], Batch]
    optimiser: Callable[[Parameters], torch.optim.Optimizer]


MODELS: dict[str, Kind] = {
    "transformer": Kind(Transformer, chain, partial(torch.optim.AdamW, lr=3e-3)),
    "CNN": Kind(cnn, images, partial(torch.optim.SGD, lr=0.1, momentum=0.9)),
    "sparse embedding": Kind(embedding, bags, partial(torch.optim.SGD, lr=2.0)),
}


@dataclass(frozen=True, slots=True)
class Trained:
    """The final loss of a training, and relative errors of sampled gradients."""

    loss: float
    errors: np.ndarray


def train(name: str, seed: int, steps: int, hook: Hook, state: Any) -> Trained:
    """Train a model; `hook` averages its gradients."""
    torch.manual_seed(seed)
    kind = MODELS[name]
    net, batch = kind.make(), kind.batch
    model = DistributedDataParallel(net, forward_sync_buffers=False)
    taken: list[tuple[torch.Tensor, torch.futures.Future[torch.Tensor]]] = []
    sampling = False

    def sampled(state: Any, bucket: Any) -> Any:
        local = bucket.buffer().to_dense().double() if sampling else torch.empty(0)
        future = hook(state, bucket)
        if sampling:
            taken.append((local, future))
        return future

    sampled.__annotations__.clear()  # which here are text
    model.register_comm_hook(state, sampled)
    optimiser = kind.optimiser(model.parameters())
    chance = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    errors = []
    for step in range(steps):
        sampling = step % EVERY == EVERY - 1
        inputs, targets = batch(chance)
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        errors += [relative_errors(local, future.value()) for local, future in taken]
        taken.clear()
        optimiser.step()
    return Trained(held_out_loss(net, kind), np.concatenate(errors))


def relative_errors(local: torch.Tensor, result: Any) -> np.ndarray:
    """Return |result - exact| / |exact| of the elements whose exact mean is not zero."""
    means = (result[0] if isinstance(result, list) else result).to_dense().double()
    exact = local.clone()
    dist.all_reduce(exact)  # fp64
    exact /= dist.get_world_size()
    there = exact != 0
    errors: np.ndarray = ((means - exact).abs()[there] / exact.abs()[there]).numpy().astype(np.float32)
    return errors


def gloo_hook(state: Any, bucket: dist.GradBucket) -> Any:
    """Average a bucket as DistributedDataParallel does by itself: divide, then add up; sparse ones too."""
    if not bucket.buffer().is_sparse:
        return allreduce_hook(None, bucket)
    sparse = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(sparse, async_op=True).get_future().then(lambda done: done.value()[0])


def work(rank: int, folder: Path, steps: int, seeds: int) -> None:
    """Do a worker's part; rank 0 leaves results in the folder."""
    torch.set_num_threads(1)
    settings: EngineSettings = pickle.loads((folder / f"{rank}.settings").read_bytes())
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD)
    results: dict[str, list[tuple[Trained, Trained]]] = {name: [] for name in MODELS}
    with MillraceState(JobEngine(settings)) as state:
        for seed, name in itertools.product(range(1, seeds + 1), MODELS):
            by_gloo = train(name, seed, steps, gloo_hook, None)
            by_switch = train(name, seed, steps, millrace_hook, state)
            results[name].append((by_gloo, by_switch))
            if rank == 0:
                line = f"loss by gloo {by_gloo.loss:.6f}, by the switch {by_switch.loss:.6f}"
                print(f"{name}, seed {seed}: {line}", file=sys.stderr, flush=True)
        assert not state.is_by_ring
    if rank == 0:
        (folder / "results").write_bytes(pickle.dumps(results))
    dist.barrier()


def measure(steps: int, seeds: int) -> dict[str, list[tuple[Trained, Trained]]]:
    """Train everything and return, for each model and seed, what gloo and what the switch led to."""
    from tests.integration.allreduce_namespaces import AggregationFabric  # noqa: PLC0415 - workers need none of it

    with tempfile.TemporaryDirectory() as name, AggregationFabric(WORLD, RATE_BPS, shaped=False) as fabric:
        folder, job = Path(name), fabric.start_job()
        for rank, host in enumerate(fabric.hosts):
            (folder / f"{rank}.settings").write_bytes(pickle.dumps(fabric.engine_settings(job, host)))
        options = [str(folder), str(steps), str(seeds)]
        command = [sys.executable, __file__, "worker"]
        workers = [
            fabric.fabric.run_in(host, ["env", "GLOO_SOCKET_IFNAME=eth0", *command, str(rank), *options])
            for rank, host in enumerate(fabric.hosts)
        ]
        codes = [worker.wait() for worker in workers]
        if any(codes):
            raise SystemExit(f"workers ended with {codes}")
        results: dict[str, list[tuple[Trained, Trained]]] = pickle.loads((folder / "results").read_bytes())
        return results


def fp32(gradients: list[np.ndarray]) -> np.ndarray:
    mean = np.zeros_like(gradients[0])
    for gradient in gradients:
        mean += gradient / np.float32(WORLD)
    return mean


def fp64(gradients: list[np.ndarray]) -> np.ndarray:
    total = np.zeros(gradients[0].shape)
    for gradient in gradients:
        total += gradient
    return (total / WORLD).astype(np.float32)


def lanes(gradients: list[np.ndarray]) -> np.ndarray:
    size = gradients[0].size
    blocks = [np.pad(each, (0, -size % formats.BLOCK)).reshape(-1, formats.BLOCK) for each in gradients]
    agreed = np.max([formats.exponents(each)[0] for each in blocks], axis=0)
    sums = np.zeros(blocks[0].shape, np.int32)
    for each in blocks:
        sums += formats.to_lanes(each, agreed, WORLD)
    return formats.from_lanes(sums, agreed, WORLD, WORLD).reshape(-1)[:size]


def control(steps: int, seeds: int) -> dict[str, list[float]]:
    """Return the CNN's final losses, by the kind of sums."""
    torch.set_num_threads(1)
    kind = MODELS["CNN"]
    losses: dict[str, list[float]] = {}
    for seed, average in itertools.product(range(1, seeds + 1), (fp32, fp64, lanes)):
        torch.manual_seed(seed)
        net = kind.make()
        optimiser = kind.optimiser(net.parameters())
        chances = [torch.Generator().manual_seed(1000 * seed + rank) for rank in range(WORLD)]
        for _ in range(steps):
            gradients = []
            for chance in chances:
                inputs, targets = kind.batch(chance)
                net.zero_grad()
                torch.nn.functional.cross_entropy(net(inputs), targets).backward()
                gradients.append(torch.cat([part.grad.reshape(-1) for part in net.parameters()]).numpy())
            mean = torch.from_numpy(average(gradients)).split([part.numel() for part in net.parameters()])
            for part, own in zip(net.parameters(), mean, strict=True):
                part.grad.copy_(own.view(part.shape))
            optimiser.step()
        losses.setdefault(average.__name__, []).append(held_out_loss(net, kind))
    return losses


def held_out_loss(net: torch.nn.Module, kind: Kind) -> float:
    with torch.no_grad():
        inputs, targets = zip(*(kind.batch(torch.Generator().manual_seed(99 + at)) for at in range(32)), strict=True)
        return float(torch.nn.functional.cross_entropy(net(torch.cat(inputs)), torch.cat(targets)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--control", action="store_true")
    options = parser.parse_args()
    if options.control:
        print(json.dumps(control(options.steps, options.seeds)))
        return
    results = measure(options.steps, options.seeds)
    table = Table(
        "model", "error p50", "gloo's", "p99", "gloo's", "max", "gloo's", "loss", "gloo's", "spread", "most apart"
    )
    rows, last = [], dict[str, Any]()
    for name, pairs in results.items():
        gloo, ours = (np.concatenate([pair[at].errors for pair in pairs]) for at in range(2))
        losses = [[pair[at].loss for pair in pairs] for at in range(2)]
        apart = max(abs(a - b) for a, b in zip(*losses, strict=True))
        spread = stdev(losses[0]) if len(pairs) > 1 else 0.0
        quantiles = [f"{np.quantile(side, share):.1e}" for share in (0.5, 0.99, 1.0) for side in (ours, gloo)]
        figures = [f"{mean(losses[1]):.5f}", f"{mean(losses[0]):.5f}", f"{spread:.5f}", f"{apart:.1e}"]
        rows.append([name, *quantiles, *figures])
        table.add_row(*rows[-1])
        last[f"element_error_p99_{name.split()[-1].lower()}"] = float(f"{np.quantile(ours, 0.99):.2g}")
        last[f"loss_apart_{name.split()[-1].lower()}"] = float(f"{apart:.2g}")
    every = np.concatenate([pair[1].errors for pairs in results.values() for pair in pairs])
    last["element_error_p99"] = float(f"{np.quantile(every, 0.99):.2g}")
    theirs = np.concatenate([pair[0].errors for pairs in results.values() for pair in pairs])
    last["element_error_p99_gloo"] = float(f"{np.quantile(theirs, 0.99):.2g}")
    Console(width=160).print(table)
    print(json.dumps({**last, "rows": rows}))


if __name__ == "__main__":
    if sys.argv[1:2] == ["worker"]:
        work(int(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
    else:
        main()
