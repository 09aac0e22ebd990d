"""Workers in namespaces: each trains a small transformer with DistributedDataParallel, as it is told.

Runs in any namespace. Lines of JSON on stdin go to all workers, and what they answer comes as lines of JSON:
{"train": name of the job, "service": its address; left out, gloo adds up, "steps", "loss": share of frames lost each
way, "dies": rank, which kills itself in the middle of a backward pass, "tells": whether rank 0 says that it has come to
the middle, "joins": whether to go on until a worker has joined, and so many steps more}; {"fork": rank} starts a worker
anew, alone in its process group. {"rank", "ended": status} is the end of a worker.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any, cast

import torch
import torch.distributed as dist
from pyroute2 import netns
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dataplane.allreduce.job_engine import JobEngine
from dataplane.allreduce.torch import MillraceState, attach
from dataplane.fabric.kernel import HOST_DEVICE
from tests.dataplane.allreduce.torch.forking import fork_workers
from tests.integration.losses import losing

WORDS, WIDTH, LENGTH, BATCH = 16, 32, 12, 8
WAIT_S = 60.0
MOST_STEPS = 2000
Order = dict[str, Any]


class Transformer(nn.Module):  # type: ignore[misc]
    """Says of each of a sequence's words which comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.said = nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.places = nn.Parameter(torch.randn(LENGTH, WIDTH) / 10)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.said(self.layers(self.words(words) + self.places, mask=self.mask, is_causal=True))


def batch(chance: torch.Generator) -> torch.Tensor:
    """Return sequences that count up, each in steps of its own."""
    first = torch.randint(0, WORDS, (BATCH, 1), generator=chance)
    step = torch.randint(1, 4, (BATCH, 1), generator=chance)
    return (first + step * torch.arange(LENGTH + 1)) % WORDS


class Training:
    """A model, and what it takes to train it."""

    def __init__(self, rank: int) -> None:
        torch.manual_seed(0)
        self.net = Transformer()
        self.model = DistributedDataParallel(self.net, bucket_cap_mb=0.02, forward_sync_buffers=False)
        self.optimiser = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self._chance = torch.Generator().manual_seed(100 + rank)
        self.done = torch.zeros(1, dtype=torch.int64)
        self.losses: list[float] = []

    def step(self) -> None:
        words = batch(self._chance)
        loss = nn.functional.cross_entropy(self.model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        self.losses.append(loss.item())
        self.done += 1

    def shared(self) -> list[torch.Tensor]:
        """Return all that the next step depends on, but for the data."""
        momentum = [self.optimiser.state[part]["momentum_buffer"] for part in self.net.parameters()]
        return [self.done, *self.net.parameters(), *momentum]

    def digest(self) -> str:
        whole = torch.cat([part.detach().reshape(-1) for part in self.net.parameters()])
        return hashlib.sha256(whole.numpy().tobytes()).hexdigest()


@dataclass
class Worker:
    """One rank and its way to the test; whoever is new is alone in its process group."""

    rank: int
    pipe: Connection
    is_new: bool = False

    def obey(self, order: Order) -> None:
        """Do what a line says and answer."""
        with ExitStack() as stack:
            if order.get("loss"):
                stack.enter_context(losing("/proc/self/ns/net", HOST_DEVICE, order["loss"]))
            said = stack.enter_context(heard())
            training = Training(self.rank)
            if "service" not in order:
                self._train(order, training, None)
                self._answer(order, training)
                return
            if self.is_new:
                training.step()  # alone: now the buckets are those that the others' have become in their first step
            with self._connect(order) as state:
                attach(training.model, state)
                self._train(order, training, state)
                reducer = cast(JobEngine, state._reducer)
                repeated = reducer.statistics.repeated if reducer else 0
                self._answer(order, training, by_ring=state.is_by_ring, repeated=repeated, said=said)

    def _connect(self, order: Order) -> MillraceState:
        return MillraceState.connect(
            order["service"],
            job=order["train"],
            host=f"h{self.rank + 1}",
            workers=order["workers"],
            boundaries=bool(order.get("joins")),
            join_s=WAIT_S,
            deadline_s=WAIT_S,
        )

    def _answer(self, order: Order, training: Training, **more: object) -> None:
        found = {"trained": order["train"], "losses": training.losses, "parameters": training.digest()}
        self.pipe.send({"rank": self.rank, **found, **more})

    def _train(self, order: Order, training: Training, state: MillraceState | None) -> None:
        last = MOST_STEPS if order.get("joins") else order["steps"]
        while training.done < last:
            if order.get("joins") and state is not None and state.boundary():
                state.share(training.shared())
                last = int(training.done) + order["joins"]
            if training.done == order["steps"] // 2 and not self.is_new:
                self._in_the_middle(order, training.net)
            training.step()

    def _in_the_middle(self, order: Order, net: Transformer) -> None:
        if order.get("dies") == self.rank:
            # Gradients of the last layers are at the switch by then, those of the first are not.
            net.layers.layers[0].linear1.weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        if order.get("tells") and self.rank == 0:
            self.pipe.send({"rank": 0, "middle": order["train"]})


@contextmanager
def heard() -> Iterator[list[str]]:
    """Gather what Millrace says meanwhile."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("millrace")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


class Workers:
    """The processes of all workers, each in a namespace."""

    def __init__(self, address: str, namespaces: list[str]) -> None:
        self._address, self._namespaces = address, namespaces
        self._processes: dict[int, BaseProcess] = {}
        self._pipes: dict[int, Connection] = {}

    def start(self, *ranks: int, is_new: bool = False) -> None:
        pipes = {rank: Pipe() for rank in ranks}
        work = partial(self._work, {rank: pipe[1] for rank, pipe in pipes.items()}, is_new)
        self._processes |= fork_workers(ranks, work)
        self._pipes |= {rank: pipe[0] for rank, pipe in pipes.items()}

    def _work(self, pipes: dict[int, Connection], is_new: bool, rank: int) -> None:
        """Live in a namespace until there are no more orders."""
        netns.setns(self._namespaces[rank])
        torch.set_num_threads(1)
        joining = partial(dist.init_process_group, "gloo", timeout=timedelta(seconds=WAIT_S))
        if is_new:
            joining(store=dist.HashStore(), rank=0, world_size=1)
        else:
            joining(init_method=self._address, rank=rank, world_size=len(self._namespaces))
        worker = Worker(rank, pipes[rank], is_new)
        worker.pipe.send({"rank": rank, "joined": True})
        while True:
            worker.obey(worker.pipe.recv())

    def serve(self) -> None:
        """Pass lines on until there are no more."""
        while True:
            ends = {process.sentinel: rank for rank, process in self._processes.items()}
            ways = {pipe: rank for rank, pipe in self._pipes.items()}
            for ready in wait([sys.stdin.fileno(), *ends, *ways]):
                if ready in ends:
                    self._end(ends[ready])
                elif isinstance(ready, Connection):
                    say(ready.recv())
                elif not self._take(sys.stdin.readline()):
                    return

    def _end(self, rank: int) -> None:
        process = self._processes.pop(rank)
        process.join()
        del self._pipes[rank]
        say({"rank": rank, "ended": process.exitcode})

    def _take(self, line: str) -> bool:
        order = json.loads(line or "null")
        if order and "fork" in order:
            self.start(order["fork"], is_new=True)
        elif order:
            for rank, pipe in self._pipes.items():
                if rank in order.get("ranks", self._pipes):
                    pipe.send(order)
        return order is not None


def say(words: dict[str, Any]) -> None:
    """Write one line."""
    print(json.dumps(words), flush=True)


def main(address: str, namespaces: list[str]) -> None:
    """Start a worker in each namespace; their group meets at the address."""
    workers = Workers(address, namespaces)
    workers.start(*range(len(namespaces)))
    workers.serve()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
