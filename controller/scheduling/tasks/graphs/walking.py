"""The walk of task graphs: each waiting task's predecessors, and what they mean for it; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from controller.apiserver.resources import Task
from controller.apiserver.resources.predecessors import OnFailure, PredecessorEnd, cycle_in, cycle_text
from controller.apiserver.resources.task import TASK_ENDED, TaskPhase, ends_of
from controller.scheduling.tasks.values import Read

_MOST_NAMED: Final = 5
"""Predecessors that a reason names."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A task and its predecessors: it may begin, waits for some, or is cancelled.

    `ends` are those that have ended, `awaited` those that have not; `reason` says why it waits, `cancelled` why it is
    to fail, '' if neither. A task that `is_stuck` waits for someone to act.
    """

    ends: tuple[PredecessorEnd, ...] = ()
    awaited: tuple[str, ...] = ()
    reason: str = ""
    cancelled: str = ""
    is_stuck: bool = False

    @property
    def is_ready(self) -> bool:
        """True if it may begin."""
        return not self.reason and not self.cancelled

    @property
    def reads(self) -> tuple[Read, ...]:
        """Data that it reads from the centres of its predecessors."""
        return tuple(
            Read("", data.nbytes, end.centre)
            for end in self.ends
            for data in end.inputs
            if end.centre is not None and data.nbytes
        )


READY: Final = Standing()
"""Standing of a task without predecessors."""


def standing_of(task: Task, tasks: Mapping[str, Task]) -> Standing:
    """Return how a task stands, given all tasks by name."""
    spec, ends = task.spec, ends_of(task, tasks)
    ended = {end.task: end for end in ends}
    awaited, failed = list[str](), list[str]()
    for name in spec.predecessors:
        end = ended.get(name)
        if end is not None and end.succeeded:
            continue
        if end is None and name in tasks:
            awaited.append(name)
        else:
            failed.append(f"{name} {_fate(name, tasks)}")
    if failed and spec.on_failure is OnFailure.CANCEL:
        return Standing(ends, tuple(awaited), cancelled=f"cancelled, as its predecessor {failed[0]}")
    if failed and spec.on_failure is OnFailure.WAIT:
        reason = f"its predecessor {failed[0]}: it waits until a task of that name has succeeded"
        return Standing(ends, tuple(awaited), reason, is_stuck=True)
    return Standing(ends, tuple(awaited), f"runs after {_names(awaited)}" if awaited else "")


def walk(waiting: Iterable[Task], tasks: Mapping[str, Task]) -> dict[str, Standing]:
    """Return how each waiting task with predecessors stands; tasks of a cycle say so."""
    standings = {task.metadata.name: standing_of(task, tasks) for task in waiting if task.spec.predecessors}
    # The server refuses cycles; a waiting task must not hang without a word if one is there all the same.
    if cycle := cycle_in({name: standing.awaited for name, standing in standings.items()}):
        reason = f"its predecessors run after it: {cycle_text(cycle)}"
        for name in cycle:
            standings[name] = Standing(standings[name].ends, standings[name].awaited, reason, is_stuck=True)
    return standings


def _fate(name: str, tasks: Mapping[str, Task]) -> str:
    task = tasks.get(name)
    if task is None or task.status.phase not in TASK_ENDED:
        return "was deleted"
    why = "; ".join(task.status.reasons[:1])
    return f"has failed{f' ({why})' if why and task.status.phase is TaskPhase.FAILED else ''}"


def _names(names: list[str]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
