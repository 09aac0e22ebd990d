"""Trace of a replayed workload: a row for each unit, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from controller.cluster.hardware import Cluster

Longs = npt.NDArray[np.int64]
NOT_YET: Final = -1
"""The time of an event that has not happened."""


class State(StrEnum):
    """Final state of a unit."""

    FINISHED = "finished"
    RUNNING = "running"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class TaskRecord:
    """A unit of the workload; times in ns since its beginning, None if not reached.

    `submitted_ns`, then `ready_ns` (all its dependencies are done), `started_ns` (placed, holds its shares),
    `transferred_ns` (its inputs have arrived), `finished_ns`. `reason` says why it runs on `nodes`, or on none.
    """

    name: str
    state: State
    submitted_ns: int
    ready_ns: int | None
    started_ns: int | None
    transferred_ns: int | None
    finished_ns: int | None
    kind: str
    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Resources held by each unit from start to end: cpu, memory, thousandths by kind of device."""

    amounts: dict[str, Longs]
    totals: dict[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """All units by number; times are `NOT_YET` if not reached. `left_out` could not be replayed.

    `carried_bits` are by link of the cost map and `links` their names; empty without a network. `end_ns` is the time of
    the last event.
    """

    cluster: Cluster
    names: tuple[str, ...]
    submitted_ns: Longs
    ready_ns: Longs
    started_ns: Longs
    transferred_ns: Longs
    finished_ns: Longs
    kinds: tuple[str, ...]
    nodes: tuple[tuple[str, ...], ...]
    reasons: tuple[str, ...]
    is_refused: npt.NDArray[np.bool_]
    held: Held
    left_out: tuple[tuple[str, str], ...]
    links: tuple[str, ...]
    link_rate_bps: Longs
    carried_bits: Longs
    transfers: int
    end_ns: int

    def state(self, number: int) -> State:
        """Return the state of a unit."""
        if self.is_refused[number]:
            return State.REFUSED
        if self.finished_ns[number] != NOT_YET:
            return State.FINISHED
        return State.WAITING if self.started_ns[number] == NOT_YET else State.RUNNING

    def records(self) -> Iterator[TaskRecord]:
        """Yield all units as values."""
        columns = (self.ready_ns, self.started_ns, self.transferred_ns, self.finished_ns)
        times = zip(*(column.tolist() for column in columns), strict=True)
        for number, (name, moments) in enumerate(zip(self.names, times, strict=True)):
            ready, started, transferred, finished = (None if time == NOT_YET else time for time in moments)
            yield TaskRecord(
                name,
                self.state(number),
                int(self.submitted_ns[number]),
                ready,
                started,
                transferred,
                finished,
                self.kinds[number],
                self.nodes[number],
                self.reasons[number],
            )
