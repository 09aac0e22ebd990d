"""Predecessors of tasks: the edges of a task graph, with the data that they carry, and how predecessors ended.

Edges are by name, within one account. A task may only name predecessors that exist, and its edges never change, so that
a cycle could only close when a deleted task's name is used again; this is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final

from msgspec import Meta

from controller.apiserver.resources.base import Count, Name, TimeNs
from dataplane.config import Strict

MOST_EDGES: Final = 128
"""Bounds what a program is told of them in its environment, a string of at most 128 KiB."""
_MOST_SHOWN: Final = 12
"""Tasks of a cycle that a message names."""


class OnFailure(StrEnum):
    """Fate of a task with a predecessor that has failed or was deleted.

    cancel: it fails without running. run: it runs once all its predecessors have ended in any way. wait: it waits until
    a task of the predecessor's name has succeeded.
    """

    CANCEL = "cancel"
    RUN = "run"
    WAIT = "wait"


class DataOutput(Strict, frozen=True):
    """Data that a task leaves at the centre that ran it, for its successors."""

    name: Name
    nbytes: Count


class DataInput(Strict, frozen=True):
    """Data that a task reads from a predecessor: one of its outputs, or so many bytes."""

    task: Name
    output: Name | None = None
    nbytes: Count | None = None


class PredecessorEnd(Strict, frozen=True):
    """A predecessor's end, and where it left its outputs; kept because its record may be deleted."""

    task: Name
    succeeded: bool
    centre: Name | None = None
    finished_ns: TimeNs | None = None
    inputs: Annotated[tuple[DataInput, ...], Meta(max_length=MOST_EDGES)] = ()
    """Data that is read from it, each with its bytes."""


After = Annotated[tuple[Name, ...], Meta(max_length=MOST_EDGES)]
Inputs = Annotated[tuple[DataInput, ...], Meta(max_length=MOST_EDGES)]
Outputs = Annotated[tuple[DataOutput, ...], Meta(max_length=64)]
Ends = Annotated[tuple[PredecessorEnd, ...], Meta(max_length=MOST_EDGES)]


def cycle_through(name: str, after: Sequence[str], edges: Callable[[str], Sequence[str]]) -> tuple[str, ...]:
    """Return the tasks of a cycle that a task with these predecessors closes, in the order of `after`; () if none.

    `edges` returns the predecessors that a task still waits for.
    """
    paths: dict[str, str | None] = dict.fromkeys(after)
    waiting = list(paths)
    for task in waiting:
        if task == name:
            return _path(name, task, paths)
        for before in edges(task):
            if before not in paths:
                paths[before] = task
                waiting.append(before)
    return ()


def cycle_in(edges: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """Return the tasks of a cycle in a graph that maps tasks to their predecessors; () if there is none."""
    left = {name: [before for before in edges[name] if before in edges] for name in edges}
    followers: dict[str, list[str]] = {name: [] for name in edges}
    for name, before in left.items():
        for predecessor in before:
            followers[predecessor].append(name)
    counts = {name: len(before) for name, before in left.items()}
    free = [name for name, count in counts.items() if not count]
    for name in free:
        for follower in followers[name]:
            counts[follower] -= 1
            if not counts[follower]:
                free.append(follower)
    stuck = {name for name, count in counts.items() if count}
    if not stuck:
        return ()
    # Every stuck task has a stuck predecessor: following these must come back to a task.
    walked: list[str] = []
    name = min(stuck)
    while name not in walked:
        walked.append(name)
        name = next(before for before in left[name] if before in stuck)
    return (*walked[walked.index(name) :], name)


def cycle_text(cycle: Sequence[str]) -> str:
    """Return a cycle on one line."""
    if len(cycle) > _MOST_SHOWN:
        shown = (*cycle[: _MOST_SHOWN - 1], f"{len(cycle) - _MOST_SHOWN} more", cycle[-1])
        return " -> ".join(shown)
    return " -> ".join(cycle)


def _path(name: str, last: str, paths: Mapping[str, str | None]) -> tuple[str, ...]:
    """Return the way from a task to itself, along its predecessors."""
    backwards = [last]
    while (before := paths[backwards[-1]]) is not None:
        backwards.append(before)
    return (name, *reversed(backwards))
