"""A job over UDP on loopback, all in plain Python: the reference of the switch and reducers of reference workers."""

from __future__ import annotations

import concurrent.futures
import queue
import random
import socket
import threading
import time
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dataplane.allreduce.reference.aggregator import Aggregator, Job, Multicast, Unicast
from dataplane.allreduce.reference.worker import Membership, Worker
from dataplane.errors import AllReduceError
from dataplane.wire.aggregation import decode

CELLS = 32
Address = tuple[str, int]
Vector = NDArray[np.float32]
_Asked = tuple[Vector, bool, concurrent.futures.Future[Vector]]


@dataclass
class Plan:
    """What happens to a job: how much is lost, and after how many results the switch dies, the last reaching one."""

    loss: float = 0.0
    dies_after: int | None = None
    children: list[Address] = field(default_factory=list)
    results: int = 0


class Switch:
    """The reference aggregator behind a UDP socket; whoever comes first is the first child."""

    def __init__(self, plans: dict[int, Plan], workers: int, seed: int = 1) -> None:
        self._plans, self._chance = plans, random.Random(seed)
        self._aggregator = Aggregator({job: Job(1, (1 << workers) - 1, CELLS) for job in plans})
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.1)
        self.port = int(self._socket.getsockname()[1])
        self._is_open = True
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def close(self) -> None:
        self._is_open = False
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while self._is_open:
            try:
                data, address = self._socket.recvfrom(2048)
            except TimeoutError:
                continue
            packet = decode(data)
            self._take(self._plans[packet.job], data, address)

    def _take(self, plan: Plan, data: bytes, address: Address) -> None:
        if address not in plan.children:
            plan.children.append(address)
        if plan.results == plan.dies_after or self._chance.random() < plan.loss:
            return
        answer = self._aggregator.from_child(plan.children.index(address), decode(data))
        assert isinstance(answer, Multicast | Unicast | None)
        if answer is None:
            return
        plan.results += isinstance(answer, Multicast)
        takers = plan.children if isinstance(answer, Multicast) else [plan.children[answer.child]]
        for taker in takers[:1] if plan.results == plan.dies_after else takers:
            if self._chance.random() >= plan.loss:
                self._socket.sendto(answer.packet.encode(), taker)


class ReferenceReducer:
    """One all-reduce after the other by reference workers; without an answer for `deadline_s` it gives up."""

    def __init__(self, port: int, job: int, capacity: int, deadline_s: float = 5.0, repeat_s: float = 0.01) -> None:
        self._membership = Membership(job, CELLS // 2, capacity, epoch=1)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(("127.0.0.1", port))
        self._socket.settimeout(repeat_s)
        self._deadline_s, self._item = deadline_s, 0
        self._is_open = True
        self._asked: queue.SimpleQueue[_Asked | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def all_reduce(self, values: Vector, *, mean: bool) -> concurrent.futures.Future[Vector]:
        future: concurrent.futures.Future[Vector] = concurrent.futures.Future()
        self._asked.put((values, mean, future))
        return future

    def close(self) -> None:
        self._is_open = False
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            values, mean, future = asked
            worker = Worker(self._membership, values, self._item, mean=mean)
            try:
                self._work(worker)
            except AllReduceError as error:
                future.set_exception(error)
            else:
                self._item = worker.next_item
                future.set_result(worker.result)

    def _work(self, worker: Worker) -> None:
        sent: set[int] = set()
        heard = time.monotonic()
        while not worker.is_done:
            for packet in worker.outstanding():
                if packet.item not in sent:
                    sent.add(packet.item)
                    self._socket.send(packet.encode())
            try:
                worker.receive(decode(self._socket.recv(2048)))
                heard = time.monotonic()
            except TimeoutError:
                sent.clear()
            if not self._is_open or time.monotonic() > heard + self._deadline_s:
                raise AllReduceError(f"the switch has not answered for {self._deadline_s:g} s")
