"""Tasks of silent centres: after the lease they wait again, up to a number of retries; then they have failed."""

from __future__ import annotations

from controller.apiserver.registry.completions import Completion
from controller.apiserver.resources import Task
from controller.apiserver.resources.task import TaskPhase
from controller.scheduling.serving.tasks.metrics import TaskMetrics
from controller.scheduling.serving.tasks.view import TasksView
from controller.scheduling.serving.tasks.writing import Writer, gather_limited
from controller.scheduling.tasks.settings import TaskSettings


class Silence:
    """Takes tasks from silent centres, unless these have reported meanwhile: the server checks their last report."""

    def __init__(self, view: TasksView, settings: TaskSettings, writer: Writer, metrics: TaskMetrics) -> None:
        self._view, self._settings, self._writer, self._metrics = view, settings, writer, metrics

    async def release(self, now_ns: int) -> None:
        """Release the tasks of centres whose lease has expired, and of deleted centres."""
        for name, tasks in self._view.held_by().items():
            centre = self._view.centres.get(name)
            if centre is not None and not self._view.is_silent(centre, now_ns):
                continue
            heartbeat_ns = None if centre is None else centre.status.heartbeat_ns or 0
            await gather_limited(self._take(task, name, heartbeat_ns) for task in tasks)

    async def _take(self, task: Task, centre: str, heartbeat_ns: int | None) -> None:
        status, most = task.status, self._settings.retries + 1
        is_retried = status.epoch < most and not task.spec.is_probe
        why = f"centre {centre} is gone" if heartbeat_ns is None else f"centre {centre} has fallen silent"
        reason = why if is_retried else f"{why}, and it was dispatched {status.epoch} times: not retried"
        item = Completion(
            task=task.metadata.name,
            epoch=status.epoch,
            phase=TaskPhase.PENDING if is_retried else TaskPhase.FAILED,
            heartbeat_ns=heartbeat_ns,
            reasons=(reason,),
            centre=centre if status.members else None,
        )
        if await self._writer.complete(item):
            self._metrics.silent.inc()
