"""Workers in namespaces: each trains a small transformer with DistributedDataParallel, on command.

Runs in any namespace. Lines of JSON on stdin go to all workers, whose answers are lines of JSON:
{"train": name of the job, "service": its address; left out, gloo adds up, "steps", "dies": rank, which kills itself in
the middle of a backward pass, "dies_at": in which step, "tells": whether rank 0 says that it has come to a step,
"tells_at": which (both by default in the middle), "joins": whether to go on until a worker has joined, and so many
steps more, "return_s": when to try to return from the ring; left out, never}; {"fork": rank} starts a worker anew,
alone in its process group. {"rank", "ended": status} is the end of a worker.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

import torch
import torch.distributed as dist
from pyroute2 import netns

from controller.apps.demo.training.model import Training, Transformer
from dataplane.allreduce.torch import MillraceState, attach
from dataplane.allreduce.torch.forking import fork_workers

WAIT_S: Final = 60.0
MOST_STEPS: Final = 2000
Order = dict[str, Any]


@dataclass
class Worker:
    """One rank and its channel to the test; a new one is alone in its process group."""

    rank: int
    pipe: Connection
    is_new: bool = False
    _first_by_ring: int | None = None

    def obey(self, order: Order) -> None:
        """Execute a command line and answer."""
        with heard() as messages:
            training = Training(self.rank)
            if "service" not in order:
                self._train(order, training, None)
                self._answer(order, training)
                return
            if self.is_new:
                training.step()  # alone; now its buckets match those that the others got in their first step
            with self._connect(order) as state:
                attach(training.model, state)
                self._train(order, training, state)
                self._answer(order, training, **self.found(state), said=messages)

    def found(self, state: MillraceState) -> dict[str, object]:
        """Return a report of how gradients were added up."""
        return {"by_ring": state.is_by_ring, "first_by_ring": self._first_by_ring}

    def _connect(self, order: Order) -> MillraceState:
        return MillraceState.connect(
            order["service"],
            job=order["train"],
            host=f"h{self.rank + 1}",
            workers=order["workers"],
            boundaries=bool(order.get("joins")),
            join_s=WAIT_S,
            deadline_s=WAIT_S,
            return_s=order.get("return_s"),
        )

    def _answer(self, order: Order, training: Training, **more: object) -> None:
        answer = {"trained": order["train"], "losses": training.losses, "ended_s": training.ended_s}
        self.pipe.send({"rank": self.rank, **answer, "parameters": training.digest(), **more})

    def _train(self, order: Order, training: Training, state: MillraceState | None) -> None:
        last = MOST_STEPS if order.get("joins") else order["steps"]
        self._first_by_ring = None
        while training.done < last:
            if order.get("joins") and state is not None and state.boundary():
                state.share(training.shared())
                last = int(training.done) + order["joins"]
            if not self.is_new:
                self._before_step(int(training.done), order, training.net)
            training.step()
            if state is not None and state.is_by_ring and self._first_by_ring is None:
                self._first_by_ring = int(training.done) - 1

    def _before_step(self, step: int, order: Order, net: Transformer) -> None:
        middle = order["steps"] // 2
        if step == order.get("dies_at", middle) and order.get("dies") == self.rank:
            # Gradients of the last layers are at the switch by then, those of the first are not.
            net.layers.layers[0].linear1.weight.register_hook(lambda _: os.kill(os.getpid(), signal.SIGKILL))
        if step == order.get("tells_at", middle) and order.get("tells") and self.rank == 0:
            self.pipe.send({"rank": 0, "middle": order["train"]})


@contextmanager
def heard() -> Iterator[list[str]]:
    """Collect Millrace's log records meanwhile, from INFO on."""
    handler = _Hearing()
    logger = logging.getLogger("millrace")
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel(logging.INFO)
    try:
        yield handler.said
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


class _Hearing(logging.Handler):
    """Keeps log messages."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


@dataclass
class Workers:
    """The processes of all workers, each in a namespace; their group meets at the address."""

    address: str
    places: list[str]
    """Names of namespaces, by rank."""
    kind: type[Worker] = Worker
    _processes: dict[int, BaseProcess] = field(default_factory=dict)
    _pipes: dict[int, Connection] = field(default_factory=dict)

    def start(self, *ranks: int, is_new: bool = False) -> None:
        """Start workers; new ones are alone in their process groups."""
        pipes = {rank: Pipe() for rank in ranks}
        work = partial(self._work, {rank: pipe[1] for rank, pipe in pipes.items()}, is_new)
        self._processes |= fork_workers(ranks, work)
        self._pipes |= {rank: pipe[0] for rank, pipe in pipes.items()}

    def _work(self, pipes: dict[int, Connection], is_new: bool, rank: int) -> None:
        """Run in a namespace until the commands end."""
        netns.setns(self.places[rank])
        torch.set_num_threads(1)
        joining = partial(dist.init_process_group, "gloo", timeout=timedelta(seconds=WAIT_S))
        if is_new:
            joining(store=dist.HashStore(), rank=0, world_size=1)
        else:
            joining(init_method=self.address, rank=rank, world_size=len(self.places))
        worker = self.kind(rank, pipes[rank], is_new)
        worker.pipe.send({"rank": rank, "joined": True})
        while True:
            worker.obey(worker.pipe.recv())

    def serve(self) -> None:
        """Forward lines until they end."""
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
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def main(address: str, places: list[str], kind: type[Worker] = Worker) -> None:
    """Start a worker in each namespace; their group meets at the address."""
    workers = Workers(address, places, kind)
    workers.start(*range(len(places)))
    workers.serve()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
