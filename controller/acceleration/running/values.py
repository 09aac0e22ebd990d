"""Values of a run: a plan of three steps, and the workers' times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec
import pyarrow as pa

from dataplane.config import Strict

PARTS = "_parts"
"""The table of partial results that a merge reads."""
MOST_COPIES = 64
"""Maximum copies of a result in a trial of merging."""


class Engine(StrEnum):
    """Computing engine: DuckDB or numpy on a processor, torch on a processor or a GPU."""

    DUCKDB = "duckdb"
    NUMPY = "numpy"
    TORCH = "torch"
    CUDA = "torch-cuda"


class OperatorKind(StrEnum):
    """Operators that run by name; each is also a statement."""

    FILTER = "filter"
    AGGREGATE = "aggregate"
    JOIN = "join"
    SORT = "sort"


class Operator(Strict, frozen=True):
    """An operator over the sharded table: its rows, groups, sums or order.

    filter: rows whose `column` is less than `below`. aggregate: sums of `sums` and the number of rows of each value of
    `column`, or of all rows if it is ''. join: each row with the rows of the table `other` of the same `column`. sort:
    rows by `column`, the first `limit` of them unless that is 0.
    """

    kind: OperatorKind
    table: str = "data"
    column: str = ""
    below: float = 0.0
    sums: tuple[str, ...] = ()
    other: str = ""
    limit: int = 0


class Split(Strict, frozen=True):
    """A statement in three parts: on each shard, on partial results (`parts`), and at the root.

    `sharded` is the table that is split. `grows` means that a merge has as many rows as its parts together. `sums` is
    the number of partial results' last columns if these are all added up, by the groups in the columns before; else 0.
    """

    partial: str
    merge: str
    final: str
    sharded: str
    grows: bool
    sums: int = 0


class Plan(Strict, frozen=True):
    """Computation of each worker, and its engine: a statement in DuckDB, or an operator by another engine.

    `devices` are those of a statement's steps that do not run in DuckDB, by name (`steps.naming`).
    """

    engine: Engine
    split: Split
    operator: Operator | None = None
    devices: dict[str, str] = msgspec.field(default_factory=dict)


class Backend(Protocol):
    """Computes a plan over tables that it stores."""

    def load(self, name: str, table: pa.Table) -> None:
        """Store a table."""

    def partial(self) -> pa.Table:
        """Return the result on this shard, to be merged."""

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        """Merge partial results."""

    def finish(self, merged: pa.Table) -> pa.Table:
        """Return the result, as the statement over all data would give it."""

    def interrupt(self) -> None:
        """Cancel the computation from another thread; its caller gets RunError."""

    def step_runs(self) -> tuple[StepRun, ...]:
        """Return where the steps ran that were planned for a device, in the last `partial` and `finish`."""


@dataclass(frozen=True, slots=True)
class StepRun:
    """A step of a statement that was planned for a device: where it ran, its seconds there, or why DuckDB ran it."""

    step: str
    device: str
    seconds: float | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class WorkerTimes:
    """Seconds of one worker in one run, by its own clock: on its shard, waiting for others, merging, sending.

    `cpu_s` is the total processor time, `partial_bytes` the size of its own partial result, `sent_bytes` what it sent
    on. `steps` are those planned for a device.
    """

    compute_s: float
    wait_s: float
    merge_s: float
    send_s: float
    cpu_s: float
    partial_bytes: int
    sent_bytes: int
    steps: tuple[StepRun, ...] = ()


@dataclass(frozen=True, slots=True)
class Trial:
    """An operator on one worker, without a network: seconds on its shard, and of merging `copies` of its result.

    `input_bytes` are of the sharded table, `other_bytes` of all other tables. `cpu_s` is the processor time of
    `compute_s`.
    """

    input_bytes: int
    other_bytes: int
    output_bytes: int
    copies: int
    compute_s: float
    merge_s: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """A table that one worker sent to another one: the processor time that it took on either side."""

    nbytes: int
    sent_cpu_s: float
    received_cpu_s: float


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds of a run by its client's clock, from `go` until the root has merged, and each worker's."""

    run_time_s: float
    workers: tuple[WorkerTimes, ...]
