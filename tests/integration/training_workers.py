"""Workers of one job in namespaces: each trains a small transformer with DistributedDataParallel, as it is told.

Runs in any namespace; lines of JSON on stdin go to all workers, and what they answer comes as lines of JSON:
{"train": name, "steps", "gloo": true | "engines": [EngineSettings of each rank], "loss": share of frames lost each way,
"dies": rank, which kills itself in the middle of a backward pass, "tells": whether rank 0 says that it has come to the
middle}. {"rank", "ended": status} is the end of a worker.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import torch
import torch.distributed as dist
from pyroute2 import netns
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dataplane.allreduce.client import AllReducer
from dataplane.allreduce.engine import EngineSettings
from dataplane.allreduce.torch import MillraceState, millrace_hook
from dataplane.fabric.kernel import HOST_DEVICE
from tests.dataplane.allreduce.torch.forking import fork_workers
from tests.integration.losses import losing

WORDS, WIDTH, LENGTH, BATCH = 16, 32, 12, 8
WAIT_S = 60.0
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


@dataclass
class Worker:
    """One rank and its way to the test."""

    rank: int
    workers: int
    pipe: Connection

    def obey(self, order: Order) -> None:
        """Do what a line says and answer."""
        with ExitStack() as stack:
            stack.enter_context(
                losing("/proc/self/ns/net", HOST_DEVICE, order["loss"]) if order["loss"] else nullcontext()
            )
            words = stack.enter_context(heard())
            if order.get("gloo"):
                self._answer(order, self._train(order, None))
                return
            settings = order["engines"][self.rank]
            reducer = AllReducer(EngineSettings(**{**settings, "local": tuple(settings["local"])}))
            with MillraceState(reducer, deadline_s=WAIT_S) as state:
                found = self._train(order, state)
                self._answer(order, found, by_ring=state.is_by_ring, repeated=reducer.statistics.repeated, said=words)

    def _answer(self, order: Order, found: dict[str, Any], **more: object) -> None:
        self.pipe.send({"rank": self.rank, "trained": order["train"], **found, **more})

    def _train(self, order: Order, state: MillraceState | None) -> dict[str, Any]:
        torch.manual_seed(0)
        net = Transformer()
        model = DistributedDataParallel(net, bucket_cap_mb=0.02, broadcast_buffers=False)
        if state is not None:
            model.register_comm_hook(state, millrace_hook)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        chance = torch.Generator().manual_seed(100 + self.rank)
        losses = []
        for step in range(order["steps"]):
            words = batch(chance)
            loss = nn.functional.cross_entropy(model(words[:, :-1]).flatten(0, 1), words[:, 1:].flatten())
            optimiser.zero_grad()
            if step == order["steps"] // 2:
                self._in_the_middle(order, net)
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        whole = torch.cat([part.detach().reshape(-1) for part in net.parameters()]).numpy().tobytes()
        return {"losses": losses, "parameters": hashlib.sha256(whole).hexdigest()}

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


def work(namespaces: list[str], address: str, pipes: list[tuple[Connection, Connection]], rank: int) -> None:
    """Live in a namespace until there are no more orders."""
    netns.setns(namespaces[rank])
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=address, rank=rank, world_size=len(namespaces), timeout=timedelta(seconds=WAIT_S)
    )
    worker = Worker(rank, len(namespaces), pipes[rank][1])
    worker.pipe.send({"rank": rank, "joined": True})
    while True:
        worker.obey(worker.pipe.recv())


def main(address: str, namespaces: list[str]) -> None:
    """Pass lines on until there are no more."""
    pipes = [Pipe() for _ in namespaces]
    processes = fork_workers(len(namespaces), partial(work, namespaces, address, pipes))
    ends = {processes[rank].sentinel: rank for rank in range(len(namespaces))}
    ways = {pipes[rank][0]: rank for rank in range(len(namespaces))}
    while True:
        for ready in wait([sys.stdin.fileno(), *ends, *ways]):
            if ready in ends:
                rank = ends.pop(ready)
                processes[rank].join()
                say({"rank": rank, "ended": processes[rank].exitcode})
                ways = {way: other for way, other in ways.items() if other != rank}
            elif isinstance(ready, Connection):
                say(ready.recv())
            else:
                line = sys.stdin.readline()
                if not line:
                    return
                for way in ways:
                    way.send(json.loads(line))


def say(words: dict[str, Any]) -> None:
    """Write one line."""
    print(json.dumps(words), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
