"""Tasks that wait, planned all together: those that begin now are dispatched, all others say why they wait."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from controller.api.registry.dispatches import Dispatch
from controller.api.resources import Task
from controller.api.resources.decision import DecisionSpec
from controller.api.resources.task import TaskPhase, UnitChoice
from controller.errors import ControllerError
from controller.schedulers.costs import Costs
from controller.schedulers.framework import Explanation
from controller.schedulers.probe.dispatch.deciding import Verdict, explained, summary
from controller.schedulers.probe.dispatch.planning import Plan, order_of
from controller.schedulers.probe.dispatch.profiles import TaskProfile
from controller.schedulers.probe.dispatch.settings import TaskSettings
from controller.schedulers.probe.dispatch.values import Options, PendingTask
from controller.schedulers.serving.tasks.decisions import decision_of
from controller.schedulers.serving.tasks.knowledge import Knowledge, pending_of
from controller.schedulers.serving.tasks.view import TasksView
from controller.schedulers.serving.tasks.writing import Writer, few_at_once

LOGGER: Final = logging.getLogger("millrace.scheduler")
_BREATH: Final = 100
"""Decisions after which others of the event loop get their turn."""
_MOST_TOLD: Final = 256
"""Tasks that are told in one round why they wait; the others hear it in the next."""


class Dispatching:
    """Plans and dispatches."""

    def __init__(
        self,
        view: TasksView,
        knowledge: Knowledge,
        settings: TaskSettings,
        *,
        profiles: Mapping[str, TaskProfile],
        writer: Writer,
        costs: Costs,
    ) -> None:
        self._view, self._knowledge, self._settings = view, knowledge, settings
        self._profiles, self._writer, self._costs = profiles, writer, costs
        self._said: dict[str, str] = {}
        self._strangers: set[str] = set()

    async def dispatch(self, now_ns: int, wall_ns: int) -> None:
        """Plan all tasks that wait, send those that begin now, and tell the others."""
        tasks = {task.metadata.name: task for task in self._view.waiting() if self._is_mine(task)}
        self._said = {name: said for name, said in self._said.items() if name in tasks}
        if not tasks:
            return
        pending = order_of(self._pending(task) for task in tasks.values())[: self._settings.most]
        await self._knowledge.hours.read(pending, wall_ns)
        view = self._knowledge.centres_view(now_ns, wall_ns, self._costs(), pending)
        plan, due, waiting = Plan(view), defaultdict[str, list[Verdict]](list), list[Verdict]()
        for number, one in enumerate(pending):
            if number % _BREATH == _BREATH - 1:
                await asyncio.sleep(0)
            if (verdict := self._verdict(plan, tasks[one.name], one, wall_ns)) is None:
                continue
            if verdict.option is not None and verdict.start_s <= 0:
                due[verdict.option.offer[0]].append(verdict)
            else:
                waiting.append(verdict)
        await few_at_once(self._send_all(tasks, some) for some in due.values())
        await few_at_once(self._tell(tasks[one.asked.task.name], one) for one in self._untold(tasks, waiting))

    def _is_mine(self, task: Task) -> bool:
        if task.spec.is_probe or task.spec.asks:
            return False
        if task.spec.profile in self._profiles:
            return True
        if task.spec.profile not in self._strangers:
            self._strangers.add(task.spec.profile)
            LOGGER.warning("tasks of profile %s are left to another scheduler: there is none here", task.spec.profile)
        return False

    def _pending(self, task: Task) -> PendingTask:
        name = self._view.type_of(task)
        return pending_of(task, name, self._knowledge.kernels_of(name))

    def _verdict(self, plan: Plan, task: Task, pending: PendingTask, wall_ns: int) -> Verdict | None:
        """Return what is decided about a task, None while its type's first probes are under way."""
        profile, name = self._profiles[task.spec.profile], pending.task_type
        options = self._options(profile, pending, wall_ns)
        if not (pending.centre and pending.unit) and self._knowledge.is_being_probed(name, pending.since_ns, wall_ns):
            return Verdict.nothing(plan.question(pending, options))
        return plan.decide(profile, pending, options)

    def _options(self, profile: TaskProfile, pending: PendingTask, wall_ns: int) -> Options:
        return self._knowledge.options(profile, self._knowledge.known_type(pending.task_type, pending.units), wall_ns)

    async def _send_all(self, tasks: Mapping[str, Task], verdicts: Sequence[Verdict]) -> None:
        """Send tasks to one centre, one after the other: each one's shares rest on those before."""
        for verdict in verdicts:
            task = tasks[verdict.asked.task.name]
            if not await self._send(task, verdict):
                return

    async def _send(self, task: Task, verdict: Verdict) -> bool:
        option = verdict.option
        assert option is not None
        assert verdict.row is not None
        centre, unit = option.offer
        high = float(verdict.asked.options.high[verdict.row])
        expected_s = high if math.isfinite(high) and not self._profiles[task.spec.profile].benchmark else None
        item = Dispatch(
            task=task.metadata.name,
            centre=centre,
            unit=None if task.spec.choice is UnitChoice.CENTRE else unit,
            units=option.units,
            expected_s=expected_s,
        )
        spec, _ = self._decision(task, verdict)
        sent = await self._writer.dispatch(task, item, spec)
        self._said.pop(task.metadata.name, None)
        return sent

    def _untold(self, tasks: Mapping[str, Task], verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Return those that are to be told, as many as one round tells; those that were told nothing come first."""
        ordered = sorted(verdicts, key=lambda one: bool(tasks[one.asked.task.name].status.reasons))
        return ordered[:_MOST_TOLD]

    async def _tell(self, task: Task, verdict: Verdict) -> None:
        """Have a task say why it waits; what was decided is kept when it has become something else."""
        name, type_name = task.metadata.name, verdict.asked.task.task_type
        if verdict.option is None and (doing := self._knowledge.probing_line(type_name)):
            await self._writer.tell(task, TaskPhase.PROBING, doing)
            return
        try:
            spec, why = self._decision(task, verdict)
        except ControllerError as error:
            await self._writer.tell(task, TaskPhase.PENDING, str(error))
            return
        problem = self._knowledge.problem_of(type_name)
        reason = f"{spec.reason}; {problem}" if problem and verdict.option is None else spec.reason
        key = _kind_of(verdict, why)
        if self._said.get(name) == key and task.status.reasons:
            return
        self._said[name] = key
        await self._writer.keep(name, spec)
        await self._writer.tell(task, TaskPhase.PENDING, reason)

    def _decision(self, task: Task, verdict: Verdict) -> tuple[DecisionSpec, Explanation]:
        profile, now_ns = self._profiles[task.spec.profile], self._writer.now_ns()
        why = explained(profile, verdict, most=self._settings.explained_centres)
        spec = decision_of(
            profile, verdict, why, scheduler=self._writer.name, begun_ns=verdict.asked.view.now_ns, decided_ns=now_ns
        )
        return spec, why


def _kind_of(verdict: Verdict, why: Explanation) -> str:
    """Return what a decision says without its figures, which change all the time."""
    if verdict.option is not None:
        return f"waits for {verdict.option.offer}"
    return summary(verdict, why)
