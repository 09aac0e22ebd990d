"""Scores of results, and the resulting costs of ended tasks."""

from __future__ import annotations

from msgspec.structs import replace

from controller.apiserver.resources import ProbeResult, Task
from controller.probing.evaluation import scored
from controller.scheduling.serving.tasks.view import TasksView, has_ended
from controller.scheduling.serving.tasks.writing import Writer, gather_limited
from controller.scheduling.tasks.prices import cost_of
from controller.scheduling.tasks.settings import TaskSettings
from dataplane.clock import NS_PER_S

_MOST = 256
"""Writes per round; the rest follows in the next."""


class Accounts:
    """Writes each score and cost once."""

    def __init__(self, view: TasksView, settings: TaskSettings, writer: Writer) -> None:
        self._view, self._settings, self._writer = view, settings, writer

    async def settle(self) -> None:
        """Write missing scores of results, then the costs of ended tasks."""
        unscored = [result for result in self._view.results.values() if not result.status.policy and result.status.runs]
        await gather_limited(self._score(result) for result in unscored[:_MOST])
        unpaid = [task for task in self._view.tasks.values() if has_ended(task) and task.status.cost is None]
        charged = [
            task for task in unpaid if task.status.dispatched_ns and task.status.finished_ns and task.status.units
        ]
        await gather_limited(self._charge(task) for task in charged[:_MOST])

    async def _score(self, result: ProbeResult) -> None:
        status = scored(self._settings.scoring, result.status)
        await self._writer.result_status(replace(result, status=status))

    async def _charge(self, task: Task) -> None:
        status = task.status
        held_s = max((status.finished_ns or 0) - (status.started_ns or status.dispatched_ns or 0), 0) / NS_PER_S
        # A centre cannot charge for longer than the server has seen the task hold its units.
        seconds = held_s if status.run_time_s is None else min(status.run_time_s, held_s)
        cost = cost_of(self._settings.prices, status.units or 0, seconds, self._score_at(task))
        reasons = (*status.reasons, f"cost {cost.amount:.4g}: {cost.reason}")
        await self._writer.status(task, cost=cost.amount, reasons=reasons)

    def _score_at(self, task: Task) -> float | None:
        """Return the newest score of the task's type where it ran, else the newest of any probe there.

        A score comes from the type's own probe if possible: how good a centre is depends on the work.
        """
        name, location = self._view.type_of(task), (task.status.centre, task.status.unit)
        results = [
            result
            for result in self._view.results.values()
            if (result.spec.centre, result.status.unit or result.spec.unit) == location
            and result.status.score is not None
        ]
        own = [result for result in results if result.spec.task_type == name]
        newest = max(own or results, key=lambda result: result.metadata.created_ns, default=None)
        return None if newest is None else newest.status.score
