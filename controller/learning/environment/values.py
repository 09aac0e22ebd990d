"""The system to decide for: nodes with engines, one pool of memory on several media, a network between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

import numpy as np
import numpy.typing as npt

from controller.learning.errors import LearningError

Longs = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

UNREACHABLE_NS: Final = -1
"""Delay between two nodes without a path."""
MOST: Final = 1 << 50
"""Maximum operations of a task, and operations/s, bit/s and bits: a thousand times it is an i64."""
MOST_BYTES: Final = MOST >> 3
MOST_LATENCY_NS: Final = 1 << 40
MOST_TIME_NS: Final = 1 << 60


class EngineKind(StrEnum):
    """Compute engine; a task lists the kinds that can run it."""

    CPU = "cpu"
    GPU = "gpu"
    FPGA = "fpga"
    XPU = "xpu"

    @property
    def bit(self) -> int:
        """The kind in a mask of kinds."""
        return 1 << tuple(EngineKind).index(self)


ANY_ENGINE: Final = sum(kind.bit for kind in EngineKind)


class Medium(StrEnum):
    """Memory technology."""

    DRAM = "dram"
    SCM = "scm"
    NVM = "nvm"


@dataclass(frozen=True, slots=True)
class Engine:
    """Compute units of one kind in a node, each with a chip's peak rates and a maximum number of concurrent tasks."""

    kind: EngineKind
    cores: int
    float_ops_per_s: int
    int_ops_per_s: int
    tasks_per_core: int = 1

    @property
    def slots(self) -> int:
        """Number of concurrent tasks."""
        return self.cores * self.tasks_per_core


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one medium in a node: the latency of an access, and its bandwidth then."""

    medium: Medium
    capacity_bytes: int
    read_ns: int
    write_ns: int
    read_bps: int
    write_bps: int

    @classmethod
    def of(cls, medium: Medium, capacity_bytes: int) -> Self:
        """Return memory with its medium's usual figures, for one channel or device; see `USUAL`."""
        return cls(medium, capacity_bytes, *USUAL[medium])


USUAL: Final[Mapping[Medium, tuple[int, int, int, int]]] = {
    Medium.DRAM: (100, 100, 160_000_000_000, 160_000_000_000),
    Medium.SCM: (300, 100, 52_800_000_000, 18_400_000_000),
    Medium.NVM: (20_000, 20_000, 24_000_000_000, 16_000_000_000),
}
"""Read and write latency (ns), read and write bandwidth (bit/s): a DDR4 channel, an Optane DIMM, an NVMe drive."""


@dataclass(frozen=True, slots=True)
class Node:
    """A place in the system. The first of its memories is the fast one, which keeps what its tasks use.

    The others are homes of data. A node without engines only holds data.
    """

    name: str
    engines: tuple[Engine, ...]
    memories: tuple[Memory, ...]


@dataclass(frozen=True, slots=True)
class Change:
    """A node that vanishes or joins (again) between decisions."""

    time_ns: int
    node: str
    is_there: bool


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Network between nodes over time; both arrays are indexed by [time, source, destination].

    Times begin at 0 and rise. For unreachable nodes, the delay is `UNREACHABLE_NS` and the rate 0.
    """

    times_ns: Longs
    delay_ns: Longs
    rate_bps: Longs

    @classmethod
    def uniform(cls, nodes: int, *, delay_ns: int, rate_bps: int) -> Self:
        """Return a network that is the same between any two nodes and never changes."""
        shape = (1, nodes, nodes)
        return cls(np.zeros(1, np.int64), np.full(shape, delay_ns, np.int64), np.full(shape, rate_bps, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class System:
    """Nodes, those with engines first as these are the actions, and the network between them."""

    nodes: tuple[Node, ...]
    network: Network
    changes: tuple[Change, ...] = ()

    def __post_init__(self) -> None:
        has_engines = [bool(node.engines) for node in self.nodes]
        if not any(has_engines) or sorted(has_engines, reverse=True) != has_engines:
            raise LearningError("a system needs nodes with engines, and those without after them", at="nodes")
        _check_nodes(self.nodes)
        _check_network(self.network, len(self.nodes))
        _check_changes(self.changes, {node.name for node in self.nodes})

    @property
    def actions(self) -> int:
        """Number of nodes with engines."""
        return sum(bool(node.engines) for node in self.nodes)


@dataclass(frozen=True, slots=True)
class Task:
    """One request, or one task of a graph: its submission, operations, and objects.

    Written objects are written whole. It is ready when the tasks that it comes `after`, earlier in the workload, have
    ended. `kinds` has the bits of the engines that can run it.
    """

    submitted_ns: int
    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    float_operations: int = 0
    int_operations: int = 0
    kinds: int = ANY_ENGINE
    after: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Tasks by number, in the order of submission, as columns, and objects of data by number.

    A task's accesses are those from `access_start[task]` to `access_start[task + 1]`, its followers alike. `created`
    marks objects that nobody has before a task writes them.
    """

    submitted_ns: Longs
    float_operations: Longs
    int_operations: Longs
    kinds: Numbers
    access_start: Numbers
    access_object: Numbers
    access_is_write: Bytes
    predecessors: Numbers
    follower_start: Numbers
    follower: Numbers
    object_bytes: Longs
    created: Bytes = field(default_factory=lambda: np.zeros(0, np.uint8))

    def __len__(self) -> int:
        return len(self.submitted_ns)

    @classmethod
    def of(cls, tasks: Sequence[Task], object_bytes: Sequence[int], created: Iterable[int] = ()) -> Self:
        """Return the columns of tasks; raise LearningError for an invalid one."""
        accesses = [
            [*((number, 0) for number in task.reads), *((number, 1) for number in task.writes)] for task in tasks
        ]
        followers: list[list[int]] = [[] for _ in tasks]
        for number, task in enumerate(tasks):
            for before in task.after:
                if not 0 <= before < number:
                    raise LearningError(f"task {number} comes after task {before}, which is not before it")
                followers[before].append(number)
        born = np.zeros(len(object_bytes), np.uint8)
        born[list(created)] = 1
        made = cls(
            submitted_ns=_clipped(task.submitted_ns for task in tasks),
            float_operations=_clipped(task.float_operations for task in tasks),
            int_operations=_clipped(task.int_operations for task in tasks),
            kinds=np.array([task.kinds for task in tasks], np.uint32),
            access_start=_starts([len(of_task) for of_task in accesses]),
            access_object=np.array([number for of_task in accesses for number, _ in of_task], np.uint32),
            access_is_write=np.array([written for of_task in accesses for _, written in of_task], np.uint8),
            predecessors=np.array([len(task.after) for task in tasks], np.uint32),
            follower_start=_starts([len(of_task) for of_task in followers]),
            follower=np.array([number for of_task in followers for number in of_task], np.uint32),
            object_bytes=_clipped(object_bytes),
            created=born,
        )
        made.check()
        return made

    def check(self) -> None:
        """Raise LearningError for columns unsafe for a stepper, naming the first task or object that is wrong."""
        if len(self) == 0:
            raise LearningError("a workload needs at least one task")
        self._check_shapes()
        _first(
            _outside(self.submitted_ns, 0, MOST_TIME_NS), f"the time of task {{}} is not between 0 and {MOST_TIME_NS}"
        )
        _first(np.diff(self.submitted_ns, prepend=0) < 0, "task {} is submitted before the task before it")
        for name in ("float_operations", "int_operations"):
            _first(_outside(getattr(self, name), 0), f"{name} of task {{}} are not between 0 and {MOST}")
        _first((self.kinds & ANY_ENGINE) == 0, "task {} can run on no kind of engine")
        _first(_outside(self.object_bytes, 1, MOST_BYTES), f"the size of object {{}} is not between 1 and {MOST_BYTES}")
        accesses = np.repeat(np.arange(len(self)), np.diff(self.access_start))
        wrong = self.access_object >= len(self.object_bytes)
        if wrong.any():
            index = int(np.argmax(wrong))
            raise LearningError(f"task {accesses[index]} uses object {self.access_object[index]}, which nobody has")
        pairs = accesses * len(self.object_bytes) + self.access_object
        if len(np.unique(pairs)) != len(pairs):
            order = np.sort(pairs)
            twice = int(order[:-1][order[1:] == order[:-1]][0])
            raise LearningError(
                f"task {twice // len(self.object_bytes)} uses object {twice % len(self.object_bytes)} twice"
            )

    def _check_shapes(self) -> None:
        """Raise LearningError for columns that do not fit together: kernels use them as indices unchecked."""
        tasks, objects = len(self), len(self.object_bytes)
        for name in ("float_operations", "int_operations", "kinds", "predecessors"):
            _check_length(name, getattr(self, name), tasks)
        _check_length("created", self.created, objects)
        _check_length("access_is_write", self.access_is_write, len(self.access_object))
        for name, listed in (("access_start", self.access_object), ("follower_start", self.follower)):
            starts = getattr(self, name).astype(np.int64)
            _check_length(name, starts, tasks + 1)
            if starts[0] != 0 or starts[-1] != len(listed) or (np.diff(starts) < 0).any():
                raise LearningError(f"{name} does not rise from 0 to {len(listed)}")
        before = np.repeat(np.arange(tasks), np.diff(self.follower_start))
        _first(np.bincount(before[self.follower <= before], minlength=1) > 0, "task {} has a follower before it")
        if (self.follower >= tasks).any() or (np.bincount(self.follower, minlength=tasks) != self.predecessors).any():
            raise LearningError("predecessors do not match the followers")


def _check_length(name: str, column: npt.NDArray[np.generic], length: int) -> None:
    if column.shape != (length,):
        raise LearningError(f"{name} of a workload has shape {column.shape}, not ({length},)")


def _starts(counts: Sequence[int]) -> Numbers:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.uint32)


def _clipped(values: Iterable[int]) -> Longs:
    """Return integers as int64; those beyond it become its ends, which `Workload.check` refuses."""
    least, most = -(1 << 63), (1 << 63) - 1
    return np.array([min(max(value, least), most) for value in values], np.int64)


def _outside(figures: Longs, least: int, most: int = MOST) -> npt.NDArray[np.bool_]:
    return (figures < least) | (figures > most)


def _first(wrong: npt.NDArray[np.bool_], text: str) -> None:
    if wrong.any():
        raise LearningError(text.format(int(np.argmax(wrong))))


def _check_nodes(nodes: Sequence[Node]) -> None:
    names: set[str] = set()
    for number, node in enumerate(nodes):
        at = f"nodes[{number}]"
        if node.name in names:
            raise LearningError(f"two nodes have the name {node.name!r}", at=at)
        names.add(node.name)
        if not node.memories:
            raise LearningError(f"node {node.name} has no memory", at=at)
        for index, engine in enumerate(node.engines):
            rates = (engine.cores, engine.tasks_per_core, engine.float_ops_per_s, engine.int_ops_per_s)
            if not all(0 < rate <= MOST for rate in rates) or engine.slots > 1 << 16 or engine.tasks_per_core > 256:
                raise LearningError(f"{engine} of node {node.name} is invalid", at=f"{at}.engines[{index}]")
        for index, memory in enumerate(node.memories):
            waits = (memory.read_ns, memory.write_ns)
            is_right = all(0 < rate <= MOST for rate in (memory.read_bps, memory.write_bps))
            is_right = is_right and all(0 <= wait <= MOST_LATENCY_NS for wait in waits)
            if not is_right or not 0 < memory.capacity_bytes <= MOST_BYTES:
                raise LearningError(f"{memory} of node {node.name} is invalid", at=f"{at}.memories[{index}]")


def _check_network(network: Network, nodes: int) -> None:
    shape = (len(network.times_ns), nodes, nodes)
    if network.delay_ns.shape != shape or network.rate_bps.shape != shape:
        shapes = f"delays {network.delay_ns.shape} and rates {network.rate_bps.shape}"
        raise LearningError(f"{shapes} of a network are not {shape}", at="network")
    if shape[0] == 0 or network.times_ns[0] != 0 or (np.diff(network.times_ns) <= 0).any():
        raise LearningError("times of a network do not rise from 0", at="network.times_ns")
    if _outside(network.delay_ns, UNREACHABLE_NS, MOST_LATENCY_NS).any() or _outside(network.rate_bps, 0).any():
        raise LearningError("delays or rates of a network are out of range", at="network")


def _check_changes(changes: Sequence[Change], names: set[str]) -> None:
    times = [change.time_ns for change in changes]
    if times != sorted(times) or any(time < 0 for time in times):
        raise LearningError("changes of nodes are not in order of time", at="changes")
    if unknown := next((change.node for change in changes if change.node not in names), None):
        raise LearningError(f"the system has no node {unknown!r}, which changes", at="changes")
