"""Workers from the client's side: gives them shards, runs jobs over a tree, and times them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import msgspec
import pyarrow as pa

from controller.acceleration.network.trees import Aggregators, ReductionTree, reduction_tree
from controller.acceleration.running.channels import Channel, Limits, Message, connect
from controller.acceleration.running.errors import LostWorkerError, RunError
from controller.acceleration.running.jobs import Order, Step
from controller.acceleration.running.switch_sums import SwitchOrder, united
from controller.acceleration.running.values import Plan, Run, Sample, StepRun, Trial, WorkerTimes

_GRACE_S: Final = 0.5
"""Wait after a failure, so that a lost worker is noticed and reported as the cause of other errors."""
T = TypeVar("T")


Connecting = Callable[[Callable[[], Channel]], Channel]
"""Wraps the making of a connection, for example to run it in a network namespace."""


class Cluster:
    """A session with each of some workers, for one plan, while the `with` block lasts.

    `addresses` are HOST:PORT or unix:PATH, in the tree's order; workers also reach each other there. Raise RunError, or
    LostWorkerError, naming the worker; after that the cluster is unusable.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        secret: bytes,
        plan: Plan,
        *,
        limits: Limits | None = None,
        deadline_s: float = 60.0,
        connecting: Connecting = lambda make: make(),
    ) -> None:
        if len(set(addresses)) < len(addresses) or not addresses:
            raise RunError("workers: at least one needed, each with its own address")
        self.addresses, self._secret, self._plan = tuple(addresses), secret, plan
        self._limits, self._deadline_s, self._connecting = limits or Limits(), deadline_s, connecting
        self._channels: list[Channel] = []
        self._is_spent = False
        self._pool = ThreadPoolExecutor(len(addresses))
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(self._pool.shutdown)
            for address in self.addresses:
                make = partial(connect, address, self._secret, self._limits)
                self._channels.append(stack.enter_context(self._connecting(make)))
            plan = json.loads(msgspec.json.encode(self._plan))
            self._each(lambda index: self._asked(index, {"type": "open", "plan": plan}))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._stack:
            if error is None and not self._is_spent:
                self._each(lambda index: self._asked(index, {"type": "close"}))

    def load(self, tables: Mapping[str, pa.Table], count: int | None = None) -> None:
        """Give the first `count` workers, or all, their rows of the sharded table, and all of the other tables."""
        shards = shards_of(tables[self._plan.split.sharded], count or len(self.addresses))

        def give(index: int) -> None:
            for name, table in tables.items():
                own = shards[index] if name == self._plan.split.sharded else table
                self._asked(index, {"type": "load", "name": name}, own)

        self._each(give, len(shards))

    def run(self, fan_in: int, count: int | None = None) -> Run:
        """Run the plan on the first `count` workers, or all, over a tree of this fan-in."""
        number = count or len(self.addresses)
        tree = reduction_tree([str(index) for index in range(number)], fan_in, Aggregators.MEMBER)
        orders = orders_of(tree, self.addresses, secrets.token_hex(8), self._deadline_s)
        self._each(lambda index: self._asked(index, _encoded("prepare", orders[index])), number)
        begun_s = time.perf_counter()
        ended_s: list[float] = []

        def run(index: int) -> WorkerTimes:
            times = self._gone(index)
            if str(index) == tree.root:
                ended_s.append(time.perf_counter())
            return times

        workers = self._each(run, number)
        return Run(ended_s[0] - begun_s, tuple(workers))

    def run_by_switch(self, service: str, job: str, hosts: Sequence[str]) -> Run | str:
        """Run the plan with its sums added up by switches, or return why they cannot be.

        `service` is the job service that the workers reach, `hosts` are theirs in the topology. Nothing is left of an
        attempt that cannot be made; `run` then does it over a tree.
        """
        number = len(self.addresses)
        lone = [Order(job=job, name=str(index), steps=(), deadline_s=self._deadline_s) for index in range(number)]
        self._each(lambda index: self._asked(index, _encoded("prepare", lone[index])))
        begun_s = time.perf_counter()
        workers = self._each(self._gone)
        answers = self._each(lambda index: self._asked(index, {"type": "keys"}))
        problem = next((str(answer["problem_of_sums"]) for answer, _ in answers if answer["problem_of_sums"]), "")
        if problem:
            return problem
        keys = united([table for _, table in answers if table is not None])
        orders = [SwitchOrder(service=service, job=job, host=host, workers=number) for host in hosts]
        self._each(lambda index: self._asked(index, _encoded("add", orders[index]), keys if keys.num_columns else None))
        return Run(time.perf_counter() - begun_s, tuple(workers))

    def result(self) -> pa.Table:
        """Return the result of the last run from the first worker, the tree's root."""
        return self.result_with_steps()[0]

    def result_with_steps(self) -> tuple[pa.Table, tuple[StepRun, ...]]:
        """Return the result, and where the first worker's steps ran that were planned for a device."""
        answer, table = self._asked(0, {"type": "result"})
        if table is None:
            raise RunError(f"worker {self.addresses[0]}: a result without a table")
        return table, msgspec.convert(answer.get("steps", ()), tuple[StepRun, ...])

    def trial(self, copies: int, at_least_s: float = 0.2) -> Trial:
        """Time the operator on the first worker's shard, alone, and a merge of this many copies of its result."""
        answer, _ = self._asked(0, {"type": "trial", "copies": copies, "at_least_s": at_least_s})
        return msgspec.convert(answer["trial"], Trial)

    def sample(self, nbytes: int) -> Sample:
        """Have the first worker send this many bytes to the second one."""
        answer, _ = self._asked(0, {"type": "sample", "address": self.addresses[1], "nbytes": nbytes})
        return msgspec.convert(answer["sample"], Sample)

    def _gone(self, index: int) -> WorkerTimes:
        """Have a worker do its part, and return its times."""
        answer, _ = self._asked(index, {"type": "go"})
        return msgspec.convert(answer["times"], WorkerTimes)

    def _asked(
        self, index: int, message: Message, table: pa.Table | None = None
    ) -> tuple[dict[str, Any], pa.Table | None]:
        """Return a worker's answer; raise LostWorkerError if it is gone or silent, RunError if it refuses."""
        channel, address = self._channels[index], self.addresses[index]
        try:
            channel.send(message, table)
            answer, result = channel.receive(self._deadline_s + self._limits.silence_s)
        except TimeoutError:
            raise LostWorkerError(f"worker {address} has been silent for too long") from None
        except OSError as error:
            raise LostWorkerError(f"worker {address} has ended: {error.strerror or error}") from None
        except RunError as error:
            raise RunError(f"worker {address}: {error}") from None
        if answer.get("type") != "done":
            raise RunError(f"worker {address}: {answer.get('problem', 'invalid answer')}")
        return answer, result

    def _each(self, function: Callable[[int], T], count: int | None = None) -> list[T]:
        """Return a function's results for each of the first workers, in parallel.

        Among several failures that of a lost worker is raised, as others follow from it; the rest is cancelled.
        """
        futures = [self._pool.submit(function, index) for index in range(count or len(self.addresses))]
        done, waiting = wait(futures, return_when=FIRST_EXCEPTION)
        if waiting:
            done, waiting = wait(futures, _GRACE_S)
        if problem := _worst(done):
            self._is_spent = True
            for channel in self._channels:
                channel.close()
            raise problem
        return [future.result() for future in futures]


def _encoded(kind: str, order: Order | SwitchOrder) -> Message:
    return {"type": kind, "order": json.loads(msgspec.json.encode(order))}


def shards_of(table: pa.Table, count: int) -> list[pa.Table]:
    """Return a table's rows in this many parts of equal size, give or take one row."""
    bounds = [table.num_rows * index // count for index in range(count + 1)]
    return [table.slice(begin, end - begin) for begin, end in pairwise(bounds)]


def orders_of(tree: ReductionTree, addresses: Sequence[str], job: str, deadline_s: float) -> list[Order]:
    """Return each worker's orders in a tree whose hosts are the positions of its workers."""
    steps: dict[str, list[Step]] = {name: [] for name in tree.hosts}
    for groups in tree.rounds:
        for group in groups:
            others = tuple(name for name in group.members if name != group.aggregator)
            if others:
                steps[group.aggregator].append(Step(receive=others))
            for name in others:
                steps[name].append(Step(send=group.aggregator, address=addresses[int(group.aggregator)]))
    return [
        Order(job=job, name=name, steps=tuple(own_steps), deadline_s=deadline_s) for name, own_steps in steps.items()
    ]


def _worst(done: set[Future[T]]) -> BaseException | None:
    problems = [problem for future in done if (problem := future.exception())]
    return next(
        (problem for problem in problems if isinstance(problem, LostWorkerError)), problems[0] if problems else None
    )
