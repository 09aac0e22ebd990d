"""Graphs of tasks in the scheduler: followers of failed tasks are cancelled, all others planned in order of rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from controller.apiserver.resources import Task
from controller.apiserver.resources.task import TaskPhase
from controller.scheduling.serving.tasks.knowledge import left_s
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.serving.tasks.writing import Writer, gather_limited
from controller.scheduling.tasks.deciding import Verdict
from controller.scheduling.tasks.graphs.ranking import Ranked, bytes_of, edges_of, names_in, ranked
from controller.scheduling.tasks.graphs.walking import Standing, walk
from controller.scheduling.tasks.slots import NEVER_S
from controller.scheduling.tasks.values import PendingTask, Read


class Graphs:
    """Walks the graphs of waiting tasks."""

    def __init__(self, view: TasksView, writer: Writer) -> None:
        self._view, self._writer = view, writer

    async def walk(self, is_mine: Callable[[Task], bool]) -> dict[str, Standing]:
        """Return how each waiting task with predecessors stands.

        Fail those whose predecessors have failed or are gone, then their own followers, as each wants.
        """
        while True:
            standings = walk(filter(is_mine, self._view.waiting()), self._view.tasks)
            lost = {name: standing for name, standing in standings.items() if standing.cancelled}
            before = {name: self._view.tasks[name].metadata.revision for name in lost}
            await gather_limited(self._cancel(self._view.tasks[name], standing) for name, standing in lost.items())
            if all(self._revision(name) == revision for name, revision in before.items()):
                return standings  # none, or nothing could be written: the next round tries again

    async def _cancel(self, task: Task, standing: Standing) -> None:
        await self._writer.status(
            task, phase=TaskPhase.FAILED, reasons=(standing.cancelled[:1024],), predecessors=standing.ends
        )

    def _revision(self, name: str) -> int:
        task = self._view.tasks.get(name)
        return 0 if task is None else task.metadata.revision

    def ranked(
        self,
        waiting: Mapping[str, Task],
        standings: Mapping[str, Standing],
        run_s: Callable[[Task], float],
        s_per_byte: float,
    ) -> Ranked:
        """Return the ranks of the tasks of all graphs; `run_s` returns a mean run time, NaN if it is unknown."""
        edges = edges_of(waiting, standings, self._view.tasks)
        names = [name for name in names_in(edges) if name in self._view.tasks]
        times_s = {name: run_s(waiting[name]) for name in names if name in waiting}
        return ranked(edges, times_s, s_per_byte, {name: self._view.tasks[name].metadata.created_ns for name in names})

    def predictions(self, wall_ns: int) -> Predictions:
        """Return what is known of the ends of tasks, before any is planned."""
        return Predictions(self._view, wall_ns)


@dataclass(slots=True)
class Predictions:
    """Centres and ends of tasks that others run after: of those that run, and of those planned so far."""

    _view: TasksView
    _wall_ns: int
    _planned: dict[str, tuple[str, float]] = field(default_factory=dict)

    def note(self, verdict: Verdict) -> None:
        """Take what was decided about a task."""
        if (option := verdict.option) is not None:
            self._planned[verdict.task.name] = (option.offer[0], verdict.finish_s)

    def ahead(self, task: Task, pending: PendingTask, standing: Standing) -> PendingTask | None:
        """Return a task as it will be once its predecessors have ended; None if one's end is unknown."""
        reads, ready_s = list(pending.reads), 0.0
        for name in standing.awaited:
            predicted = self._of(name)
            if predicted is None or not predicted[1] < NEVER_S:
                return None
            centre, end_s = predicted
            ready_s = max(ready_s, end_s)
            source = self._view.tasks[name]
            sizes = (bytes_of(data.nbytes, data.output, source) for data in task.spec.inputs if data.task == name)
            reads += [Read("", nbytes, centre) for nbytes in sizes if nbytes]
        return replace(pending, reads=tuple(reads), ready_s=ready_s)

    def _of(self, name: str) -> tuple[str, float] | None:
        task = self._view.tasks.get(name)
        if task is not None and task.is_held and task.status.centre is not None:
            return (task.status.centre, left_s(task, self._wall_ns))
        return self._planned.get(name)
