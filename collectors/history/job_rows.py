"""Rows of the jobs that switches add up for, and of their contributors; counts as increases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from collectors.values import ChildState, JobKey, JobState

Row = tuple[Any, ...]


class JobRows:
    """Makes rows of snapshots' jobs; remembers what the totals were."""

    def __init__(self) -> None:
        self._jobs: Mapping[JobKey, JobState] = {}

    def take(self, jobs: Mapping[JobKey, JobState]) -> tuple[list[Row], list[Row]]:
        """Return a row for each job in a switch, and one for each of its children."""
        before, self._jobs = self._jobs, jobs
        states: list[Row] = []
        children: list[Row] = []
        for key, state in jobs.items():
            last = before.get(key)
            # A number that another job has now, or a job that was forgotten, begins at nothing.
            if last is not None and (last.reported > state.reported or last.items > state.items):
                last = None
            states.append(_job(state, last))
            children += _children(state, last)
        return states, children


def _job(state: JobState, last: JobState | None) -> Row:
    return (
        state.key.job,
        state.name,
        state.key.switch,
        state.is_leaf,
        state.epoch,
        state.items - (last.items if last else 0),
        state.items_per_s,
        state.reported - (last.reported if last else 0),
        state.repeated - (last.repeated if last else 0),
        state.cells_used,
        state.cells,
        state.wait_mean_ns,
        state.wait_p50_ns,
        state.wait_p99_ns,
        state.wait_max_ns,
        state.age_ns,
        state.samples,
    )


def _children(state: JobState, last: JobState | None) -> Iterator[Row]:
    before = {child.key: child.last for child in last.children} if last else {}
    for child in state.children:
        yield (
            state.key.job,
            state.name,
            state.key.switch,
            child.key.number,
            child.key.name,
            child.last - before.get(child.key, 0),
            child.last_share,
            *_waits(child),
            child.samples,
        )


def _waits(child: ChildState) -> tuple[int | None, int | None, int]:
    return child.wait_mean_ns, child.wait_max_ns, child.wait_caused_ns
