"""Tasks, centres and results that a request changes: their state before and after, and the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from controller.apiserver.resources import Centre, ProbeResult, Task
from controller.apiserver.resources.base import Count, Name
from controller.apiserver.resources.task import HELD
from controller.common.errors import InvalidError, NotFoundError, StaleError
from dataplane.config import Strict

MOST_TASKS: Final = 256
"""Tasks of one request."""


class DispatchAnswer(Strict, frozen=True):
    """Resources that were written, all at one revision."""

    revision: Count
    tasks: tuple[Name, ...]
    centres: tuple[Name, ...]
    results: tuple[Name, ...] = ()


@dataclass(slots=True)
class TaskState:
    """State of a request's resources, before and after; None for those to delete."""

    tasks: dict[str, Task | None] = field(default_factory=dict)
    centres: dict[str, Centre] = field(default_factory=dict)
    results: dict[str, ProbeResult] = field(default_factory=dict)
    """New results."""
    predecessors: Mapping[str, Task] = field(default_factory=dict)
    """Existing predecessors of its tasks; only read."""

    def task(self, name: str) -> Task:
        """Return a task; raise NotFoundError if there is none."""
        task = self.tasks.get(name)
        if task is None:
            raise NotFoundError(f"there is no Task {name}")
        return task

    def centre(self, name: str) -> Centre:
        """Return a centre; raise NotFoundError if there is none."""
        centre = self.centres.get(name)
        if centre is None:
            raise NotFoundError(f"there is no Centre {name}")
        return centre

    def held(self, name: str, epoch: int) -> Task:
        """Return a task that holds units since this dispatch; raise StaleError if it holds none or since another."""
        task = self.task(name)
        if task.status.epoch != epoch:
            raise StaleError(f"Task {name} is in epoch {task.status.epoch}, no longer in {epoch}")
        if task.status.phase not in HELD:
            raise StaleError(f"Task {name} is {task.status.phase.value}: it holds nothing")
        return task


def check_names(names: Sequence[str]) -> None:
    """Raise InvalidError for a task that a request names twice."""
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise InvalidError(f"Task {twice} is given twice")


def next_version(centre: Centre) -> Centre:
    """Return a centre whose shares have changed."""
    return replace(centre, shares_version=centre.shares_version + 1)
