"""Outcomes of tasks' dispatches, from the tasks' records."""

from __future__ import annotations

from controller.apiserver.resources import Task
from controller.apiserver.resources.task import TASK_ENDED, TaskPhase
from controller.scheduling.framework.lessons import Learner, Note, SetLearner
from controller.scheduling.serving.lessons import Lessons
from controller.scheduling.serving.tasks.view import WAITING, TasksView
from controller.scheduling.tasks.deciding import Verdict


def utilisation_of(view: TasksView) -> float:
    """Return the share of the units of all ready centres that running tasks hold."""
    ready = {name: centre for name, centre in view.centres.items() if centre.status.ready}
    units = sum(offer.count for centre in ready.values() for offer in centre.status.units)
    running = (task for task in view.tasks.values() if task.status.phase is TaskPhase.RUNNING)
    held = sum(count for task in running for centre, count in task.held_units.items() if centre in ready)
    return min(held / units, 1.0) if units else 0.0


class TaskLessons:
    """Tells learning policies where tasks went, and the outcomes."""

    def __init__(self, lessons: Lessons, view: TasksView) -> None:
        self._lessons, self._view = lessons, view

    def note(self, task: Task, verdict: Verdict) -> Note | None:
        """Return the callback for the dispatch of a decided task, None if no policy learns."""
        learner = self._lessons.learners.get(task.spec.profile)
        if not isinstance(learner, Learner) or verdict.row is None:
            return None
        if verdict.others and isinstance(learner, SetLearner):
            return learner.note_set(verdict.task, verdict.timed, verdict.examined.passing, verdict.rows)
        return learner.note(verdict.task, verdict.timed, verdict.examined.passing, verdict.row)

    def dispatched(self, task: Task, note: Note | None) -> None:
        """Report a dispatched task, and track its outcome.

        The measured time is from a task's submission, or the end of its last predecessor, to its start; for a task
        that is sent again, from its new dispatch.
        """
        name, learner = task.metadata.name, self._lessons.learners.get(task.spec.profile)
        now = self._view.tasks.get(name)
        if note is None or learner is None or now is None or not now.status.epoch:
            return
        status = now.status
        key = f"{name}/{status.epoch}"
        note(key)
        ready_ns = max((end.finished_ns or 0 for end in status.predecessors), default=0)
        asked_ns = max(now.metadata.created_ns, ready_ns) if status.epoch == 1 else status.dispatched_ns or 0
        self._lessons.record(name, learner, key=key, epoch=status.epoch, asked_ns=asked_ns)
        self.read_outcome(now)

    def read_outcome(self, task: Task) -> None:
        """Read the outcome of a task's last dispatch from its record."""
        lessons, name, status = self._lessons, task.metadata.name, task.status
        if (awaited := lessons.awaited(name)) is None:
            return
        if status.epoch != awaited.epoch or status.phase in WAITING:
            lessons.failed(name)
            return
        if status.started_ns is not None:
            lessons.started(name, status.started_ns)
        elif status.phase is TaskPhase.SUCCEEDED and status.finished_ns is not None:
            lessons.started(name, status.finished_ns)
        if status.phase in TASK_ENDED and status.finished_ns is not None:
            lessons.ended(name, status.finished_ns)

    def read_outcomes(self) -> None:
        """Read all tasks' records after they were listed again."""
        for name in self._lessons.subjects():
            if (task := self._view.tasks.get(name)) is None:
                self._lessons.gone(name)
            else:
                self.read_outcome(task)
