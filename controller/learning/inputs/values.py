"""An input, ready to be learned from as an environment."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from controller.learning.environment.settings import PoolSettings
from controller.learning.environment.values import System, Task, Workload
from controller.learning.errors import LearningError

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PoolInput:
    """A system and its workload: an action is a node."""

    name: str
    system: System
    workload: Workload
    settings: PoolSettings = field(default_factory=PoolSettings)

    @property
    def has_graph(self) -> bool:
        """True if tasks wait for others, so that HEFT has something to rank."""
        return bool(self.workload.predecessors.any())

    def window(self, first: int, count: int) -> PoolInput:
        """Return `count` of the tasks from the `first` on, times from the first of them, with the data that they use.

        Outputs of earlier tasks are in the pool from the beginning.
        """
        whole, numbers = self.workload, range(first, min(first + count, len(self.workload)))
        if not numbers:
            raise LearningError(f"{self.name}: no task from {first} on, of {len(whole)}")
        objects: dict[int, int] = {}
        made, tasks = set(), []
        after = _predecessors(whole, numbers)
        for number in numbers:
            begin, end = whole.access_start[number : number + 2].tolist()
            used = [objects.setdefault(number, len(objects)) for number in whole.access_object[begin:end].tolist()]
            written = whole.access_is_write[begin:end].tolist()
            made |= {number for number, is_write in zip(used, written, strict=True) if is_write}
            tasks.append(
                Task(
                    int(whole.submitted_ns[number] - whole.submitted_ns[first]),
                    tuple(number for number, is_write in zip(used, written, strict=True) if not is_write),
                    tuple(number for number, is_write in zip(used, written, strict=True) if is_write),
                    int(whole.float_operations[number]),
                    int(whole.int_operations[number]),
                    int(whole.kinds[number]),
                    tuple(after[number - first]),
                )
            )
        sizes = [int(whole.object_bytes[number]) for number in objects]
        created = [number for old, number in objects.items() if whole.created[old] and number in made]
        return replace(self, workload=Workload.of(tasks, sizes, created))


def _predecessors(workload: Workload, numbers: range) -> list[list[int]]:
    """Return each task's predecessors within a range, counted from its beginning."""
    predecessors: list[list[int]] = [[] for _ in numbers]
    for number in numbers:
        begin, end = workload.follower_start[number : number + 2].tolist()
        for follower in workload.follower[begin:end].tolist():
            if follower in numbers:
                predecessors[follower - numbers.start].append(number - numbers.start)
    return predecessors


@dataclass(frozen=True, slots=True, eq=False)
class Graphs:
    """Submitted graphs: each task's graph, by task number, and each graph's submission time.

    Tasks that depend on one another belong to one graph; an independent task is a graph by itself.
    """

    of_task: Longs
    submitted_ns: Longs

    @classmethod
    def of(cls, workload: Workload) -> Self:
        """Return the graphs of a workload, numbered by their first tasks."""
        before = np.repeat(np.arange(len(workload)), np.diff(workload.follower_start)).tolist()
        root = list(range(len(workload)))
        for source, task in zip(before, workload.follower.tolist(), strict=True):
            first, second = sorted((_root(root, source), _root(root, task)))
            root[second] = first
        firsts, of_task = np.unique([_root(root, task) for task in root], return_inverse=True)
        submitted_ns = np.full(len(firsts), np.iinfo(np.int64).max)
        np.minimum.at(submitted_ns, of_task, workload.submitted_ns)
        return cls(of_task.astype(np.int64), submitted_ns)


def _root(root: list[int], task: int) -> int:
    while root[task] != task:
        root[task] = root[root[task]]
        task = root[task]
    return task


@dataclass(frozen=True, slots=True, eq=False)
class Jobs:
    """Jobs of a batch system in the order of submission, and its processors: an action is a place among those waiting.

    `estimate_ns` is what a scheduler may know of `run_ns`, never less.
    """

    name: str
    total: int
    submitted_ns: Longs
    run_ns: Longs
    estimate_ns: Longs
    processors: Longs

    def __post_init__(self) -> None:
        columns = (self.submitted_ns, self.run_ns, self.estimate_ns, self.processors)
        if not len(self) or any(len(column) != len(self) for column in columns):
            raise LearningError(f"{self.name}: columns of {[len(column) for column in columns]} jobs")
        self._refuse(
            np.diff(self.submitted_ns, prepend=0) < 0, "is submitted before time 0 or before the one before it"
        )
        self._refuse((self.processors < 1) | (self.processors > self.total), f"needs more than 0, at most {self.total}")
        self._refuse(self.run_ns < 1, "runs for no time")
        self._refuse(self.estimate_ns < self.run_ns, "is estimated to run for less than it does")

    def __len__(self) -> int:
        return len(self.submitted_ns)

    def window(self, first: int, count: int, *, at_once: bool = False) -> Jobs:
        """Return `count` of the jobs from the `first` on, times from the first of them; or all submitted at time 0."""
        part = slice(first, first + count)
        begun = self.submitted_ns[part]
        if not len(begun):
            raise LearningError(f"{self.name}: no job from {first} on, of {len(self)}")
        columns = (self.run_ns[part], self.estimate_ns[part], self.processors[part])
        return Jobs(self.name, self.total, begun * 0 if at_once else begun - begun[0], *columns)

    def _refuse(self, wrong: npt.NDArray[np.bool_], why: str) -> None:
        if wrong.any():
            raise LearningError(f"{self.name}: job {int(np.argmax(wrong))} {why}")
