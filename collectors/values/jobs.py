"""State of jobs in switches that add up: progress, waits, stragglers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class JobKey:
    """A job in one of the switches that add up for it."""

    job: int
    switch: str

    def __str__(self) -> str:
        return f"job {self.job} at {self.switch}"


@dataclass(frozen=True, slots=True)
class ChildKey:
    """Contributor to a job at a switch: a host, or a switch that adds up a rack, by its number in the job there."""

    job: int
    switch: str
    number: int
    name: str

    def __str__(self) -> str:
        return f"job {self.job} at {self.switch}: {self.name}"


@dataclass(frozen=True, slots=True)
class JobNote:
    """Job details known only to its operator: its name, its epoch, and its number of cells in each switch."""

    name: str
    epoch: int | None = None
    cells: int | None = None


@dataclass(frozen=True, slots=True)
class ChildState:
    """Waits caused by a child that was the last contributor to items: stragglers.

    `last` counts since the job was first heard of, all others are of the window. Mean and greatest wait are those of
    the items for which it was last, None if there are none; `wait_caused_ns` is the wait it caused, averaged over all
    items of the job. `samples` are the items reported, whichever child was last.
    """

    key: ChildKey
    last: int
    last_share: float
    wait_mean_ns: int | None
    wait_max_ns: int | None
    wait_caused_ns: int
    samples: int


@dataclass(frozen=True, slots=True)
class JobState:
    """A job in one switch, by its reports of complete items; waits are from an item's first contribution to its last.

    `items` (by their numbers), `reported` and `repeated` (contributions that had come before) count since the job was
    first heard of, all other figures are of the window. `items_per_s` is up to now, None while only one item was
    reported; `cells_used` the most cells in use at once; `samples` the items reported. `children` begin with the one
    that causes most of the waiting. `name`, `epoch` and `cells` are None unless they were given.
    """

    key: JobKey
    name: str | None
    epoch: int | None
    cells: int | None
    is_leaf: bool
    items: int
    items_per_s: float | None
    reported: int
    repeated: int
    repeated_per_item: float
    cells_used: int
    wait_mean_ns: int
    wait_p50_ns: int
    wait_p99_ns: int
    wait_max_ns: int
    samples: int
    age_ns: int
    children: tuple[ChildState, ...] = ()
